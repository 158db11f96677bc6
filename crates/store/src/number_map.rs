//! A map by numbers that hashes with one multiplication.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map with the same hashes in every run, so that runs can be repeated. For keys that are the shard's own numbers: no
/// client can choose them to collide.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Hashes numbers with one multiplication.
#[derive(Clone, Copy, Default)]
pub struct NumberHasher(u64);

/// An odd number near 2^64 divided by the golden ratio (Knuth's multiplicative hashing).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(SPREAD);
    }

    fn finish(&self) -> u64 {
        // The upper half is well mixed; hash tables use the lower one.
        self.0.rotate_left(32)
    }
}

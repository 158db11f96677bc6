//! Random values from the engine's seed: lease tokens, the tag of ids, jitter.

use ganger_types::{Epoch, IdTag, LeaseToken};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};

/// The random values of one start of a shard. The same seed gives the same values in the same order.
pub(crate) struct RandomSource {
    epoch: Epoch,
    random: ChaCha12Rng,
    /// Number of tokens drawn so far.
    tokens: u64,
    id_tag: IdTag,
}

impl RandomSource {
    /// The random values from `seed` for the start with this epoch.
    pub(crate) fn new(epoch: Epoch, seed: [u8; 32]) -> Self {
        let mut random = ChaCha12Rng::from_seed(seed);
        let id_tag = IdTag(random.next_u32() & 0xF_FFFF);
        Self {
            epoch,
            random,
            tokens: 0,
            id_tag,
        }
    }

    /// The epoch of this start.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The tag of the ids that are made after this start.
    pub(crate) fn id_tag(&self) -> IdTag {
        self.id_tag
    }

    /// A new token, which cannot be guessed.
    pub(crate) fn token(&mut self) -> LeaseToken {
        self.tokens += 1;
        let mut secret = [0; 12];
        self.random.fill_bytes(&mut secret);
        LeaseToken {
            epoch: self.epoch,
            counter: self.tokens,
            secret,
        }
    }

    /// A number of 64 random bits.
    pub(crate) fn number(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// A number from 0 to `max`, almost uniformly distributed if `max` is small.
    pub(crate) fn up_to(&mut self, max: u32) -> u32 {
        self.random.next_u32() % (max + 1)
    }
}

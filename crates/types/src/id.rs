//! Ids of jobs, leases, commits, events.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::limits::NAME_BYTES_MAX;
use crate::name::NameError;
use crate::short_bytes::ShortBytes;

/// The number of a job in its shard, in order of creation; never reused within a store.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct JobKey(pub u64);

/// The epoch of a shard: a number that every start raises durably.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// The position of an event in the shard's history: consecutive, never reused.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position(pub u64);

/// Twenty random bits that each start draws. They are part of every engine-made id, so that a store restored from a
/// backup cannot give an id a second time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdTag(pub u32);

/// The id of a shard: a short string, `1` by default.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(Arc<str>);

impl Serialize for ShardId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ShardId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::new(&text).ok_or_else(|| serde::de::Error::custom("no name of a shard"))
    }
}

impl ShardId {
    /// Takes 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
    pub fn new(text: &str) -> Option<Self> {
        let fits = (1..=64).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        fits.then(|| Self(text.into()))
    }

    /// The shard id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ShardId {
    fn default() -> Self {
        Self("1".into())
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// The id of a job within its namespace: chosen by the client (up to 255 bytes) or made by the engine.
///
/// Engine-made ids look like `00000k3v-x7qz`: eight digits of Crockford's base 32 that sort by creation, and four of
/// the [`IdTag`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(ShortBytes);

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const KEY_DIGITS: usize = 8;
const TAG_DIGITS: usize = 4;

const MADE_BYTES: usize = KEY_DIGITS + 1 + TAG_DIGITS;

fn write_digits(out: &mut [u8], mut value: u64) {
    for place in out.iter_mut().rev() {
        let digit = usize::try_from(value & 31).expect("five bits fit");
        *place = ALPHABET[digit];
        value >>= 5;
    }
}

fn made_text(key: JobKey, tag: IdTag) -> [u8; MADE_BYTES] {
    let mut text = [b'-'; MADE_BYTES];
    write_digits(&mut text[..KEY_DIGITS], key.0);
    write_digits(&mut text[KEY_DIGITS + 1..], u64::from(tag.0));
    text
}

fn read_digits(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0_u64, |value, byte| {
        let digit = ALPHABET.iter().position(|known| known == byte)?;
        Some((value << 5) | u64::try_from(digit).ok()?)
    })
}

impl JobId {
    /// Takes any bytes up to 255.
    ///
    /// # Errors
    /// If it is longer.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NameError> {
        let bytes = bytes.as_ref();
        if bytes.len() > NAME_BYTES_MAX {
            return Err(NameError {
                what: "job id",
                bytes: bytes.len(),
            });
        }
        Ok(Self(bytes.into()))
    }

    /// The id that the engine makes for the job numbered `key`.
    ///
    /// # Panics
    /// Beyond 2^40 jobs in one shard.
    pub fn made(key: JobKey, tag: IdTag) -> Self {
        assert!(key.0 < 1 << 40, "a shard numbers at most 2^40 jobs");
        Self(made_text(key, tag).as_slice().into())
    }

    /// Whether [`JobId::made`] returns this id.
    pub fn is_made(&self, key: JobKey, tag: IdTag) -> bool {
        key.0 < 1 << 40 && self.0[..] == made_text(key, tag)
    }

    /// The number and the tag in the id; `None` if it does not have the form of engine-made ids.
    pub fn parts(&self) -> Option<(JobKey, IdTag)> {
        if self.0.len() != MADE_BYTES || self.0[KEY_DIGITS] != b'-' {
            return None;
        }
        let key = read_digits(&self.0[..KEY_DIGITS])?;
        let tag = read_digits(&self.0[KEY_DIGITS + 1..])?;
        Some((JobKey(key), IdTag(u32::try_from(tag).ok()?)))
    }

    /// Returns the bytes of the id.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The id as text; bytes that are not UTF-8 become U+FFFD.
    pub fn to_text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = ShortBytes::deserialize(deserializer)?;
        Self::new(&*bytes).map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The token that proves a lease: unique over restarts and restored backups, and impossible to guess (`rel L2`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken {
    /// Epoch of the grant.
    pub epoch: Epoch,
    /// Number of the grant within the epoch.
    pub counter: u64,
    /// Random part of the token: 96 bits that cannot be guessed.
    pub secret: [u8; 12],
}

impl LeaseToken {
    /// Reads the text form: 56 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 56 {
            return None;
        }
        let mut raw = [0_u8; 28];
        for (byte, pair) in raw.iter_mut().zip(text.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).ok()?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Self::from_bytes(&raw)
    }

    /// Reads the 28-byte form.
    pub fn from_bytes(raw: &[u8]) -> Option<Self> {
        let raw: &[u8; 28] = raw.try_into().ok()?;
        Some(Self {
            epoch: Epoch(u64::from_be_bytes(raw[..8].try_into().ok()?)),
            counter: u64::from_be_bytes(raw[8..16].try_into().ok()?),
            secret: raw[16..].try_into().ok()?,
        })
    }

    /// Returns the token in its 28-byte form.
    pub fn to_bytes(self) -> [u8; 28] {
        let mut raw = [0; 28];
        raw[..8].copy_from_slice(&self.epoch.0.to_be_bytes());
        raw[8..16].copy_from_slice(&self.counter.to_be_bytes());
        raw[16..].copy_from_slice(&self.secret);
        raw
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes()
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Shows epoch and counter but not the secret, because this form appears in logs.
impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseToken({}.{})", self.epoch.0, self.counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_ids_sort_by_creation_and_read_back() {
        let tag = IdTag(0xF_1234);
        let ids: Vec<_> = [0, 1, 31, 32, 70_000, (1 << 40) - 1]
            .map(|key| JobId::made(JobKey(key), tag))
            .into();
        assert!(ids.is_sorted());
        assert_eq!(ids[4].parts(), Some((JobKey(70_000), tag)));
        assert!(ids[4].is_made(JobKey(70_000), tag));
        assert!(!ids[4].is_made(JobKey(70_001), tag));
        assert!(!ids[4].is_made(JobKey(70_000 + (1 << 40)), tag));
        assert_eq!(JobId::new("not-made").expect("short").parts(), None);
    }

    #[test]
    fn tokens_read_back() {
        let token = LeaseToken {
            epoch: Epoch(7),
            counter: 9,
            secret: [3; 12],
        };
        assert_eq!(LeaseToken::parse(&token.to_string()), Some(token));
        assert_eq!(LeaseToken::parse("zz"), None);
        assert!(!format!("{token:?}").contains("0303"));
    }
}

//! The library of known scripts that clients have sent, by the digests of their bytes.
//!
//! The library is empty after a restart: clients send a script again when its digest is unknown.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ganger_qless::{ScriptKind, recognise};
use ganger_types::qless::Generation;
use sha1::{Digest as _, Sha1};

use crate::limits::{SCRIPT_BYTES_MAX, SCRIPTS_MAX};
use crate::value::Value;

/// The SHA-1 digest of a script's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Digest([u8; 20]);

impl Digest {
    /// Computes the digest of `text`.
    pub(crate) fn of(text: &[u8]) -> Self {
        Self(Sha1::digest(text).into())
    }

    /// Parses 40 hexadecimal digits in either case; `None` for other texts.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let (pairs, []) = text.as_chunks::<2>() else {
            return None;
        };
        let mut bytes = [0; 20];
        if pairs.len() != bytes.len() {
            return None;
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }
}

fn digit(letter: u8) -> Option<u8> {
    let value = char::from(letter).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Writes the digest as 40 hexadecimal digits in lower case.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The known scripts, at most [`SCRIPTS_MAX`]. A new script replaces the oldest one.
#[derive(Default)]
pub(crate) struct Library(Mutex<KnownScripts>);

#[derive(Default)]
struct KnownScripts {
    /// The generation of each known script.
    generations: HashMap<Digest, Generation>,
    /// Digests in the order in which clients sent them, the oldest first.
    order: VecDeque<Digest>,
}

impl Library {
    /// Adds a script that a client sent, and returns its digest and generation.
    ///
    /// # Errors
    /// The reply for a script that is too long, that ganger does not know, or whose generation it does not serve.
    pub(crate) fn learn(&self, text: &[u8]) -> Result<(Digest, Generation), Value> {
        if text.len() > SCRIPT_BYTES_MAX {
            return Err(unknown());
        }
        let digest = Digest::of(text);
        if let Some(generation) = self.find(digest) {
            return Ok((digest, generation));
        }
        let generation = match recognise(text) {
            ScriptKind::Served(generation) => generation,
            ScriptKind::Later => return Err(later()),
            ScriptKind::Unknown => return Err(unknown()),
        };
        let mut known = self.known();
        if known.generations.insert(digest, generation).is_none() {
            known.order.push_back(digest);
        }
        if known.order.len() > SCRIPTS_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.generations.remove(&oldest);
        }
        Ok((digest, generation))
    }

    /// Returns the generation of the script with this digest; `None` if it is unknown.
    pub(crate) fn find(&self, digest: Digest) -> Option<Generation> {
        self.known().generations.get(&digest).copied()
    }

    /// Removes all scripts from the library.
    pub(crate) fn forget(&self) {
        *self.known() = KnownScripts::default();
    }

    fn known(&self) -> MutexGuard<'_, KnownScripts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown() -> Value {
    Value::error("ERR ganger does not run Lua and does not know this script")
}

fn later() -> Value {
    Value::error("ERR ganger does not know the script of reqless from 0.14 on: use reqless 0.13")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(comment: usize) -> String {
        format!("-- {comment}\nlocal a = cjson, 'ql:'\nQlessAPI.put = function(now, me, queue) end")
    }

    #[test]
    fn digests_are_read_in_either_case_and_written_in_lower() {
        let empty = Digest::of(b"");
        let text = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
        assert_eq!(empty.to_string(), text);
        assert_eq!(Digest::read(text.to_uppercase().as_bytes()), Some(empty));
        for wrong in [
            "",
            "da",
            &text[1..],
            &format!("{text}00"),
            &text.replace('d', "g"),
        ] {
            assert_eq!(Digest::read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_known_script_is_remembered_and_another_is_not() {
        let library = Library::default();
        let (digest, generation) = library.learn(script(0).as_bytes()).expect("known");
        assert_eq!(generation, Generation::Two);
        assert_eq!(library.find(digest), Some(generation));
        assert_eq!(library.learn(b"return 1"), Err(unknown()));
        assert_eq!(library.find(Digest::of(b"return 1")), None);
        library.forget();
        assert_eq!(library.find(digest), None);
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let library = Library::default();
        let learned = |comment| {
            let learned = library.learn(script(comment).as_bytes());
            learned.expect("known").0
        };
        let digests: Vec<_> = (0..=SCRIPTS_MAX).map(learned).collect();
        assert_eq!(library.find(digests[0]), None);
        assert!(
            digests[1..]
                .iter()
                .all(|digest| library.find(*digest).is_some())
        );
        assert_eq!(library.known().order.len(), SCRIPTS_MAX);
    }

    #[test]
    fn a_text_too_long_to_be_a_script_is_not_looked_at() {
        let long = script(0) + &" ".repeat(SCRIPT_BYTES_MAX);
        assert_eq!(Library::default().learn(long.as_bytes()), Err(unknown()));
    }
}

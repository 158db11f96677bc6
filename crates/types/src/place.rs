//! Where a listing of jobs goes on.
//!
//! Jobs of ours are listed by number. Behind them come the guests: jobs that are kept by other parts of the engine, have no
//! number, and are shown among ours; first those of qless by their ids, then items of raw keys by queue and id.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use bytes::Bytes;

use crate::id::JobKey;
use crate::query::JobQuery;

/// The last job of a page. As text it is opaque to clients, who send it back unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One of ours.
    Job(JobKey),
    /// One behind all of ours.
    Guest(Guest),
}

/// A job that has no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guest {
    /// A job of qless: its jid.
    Qless(Bytes),
    /// An item of raw keys.
    Item {
        /// Its queue, as the key's beginning says.
        queue: Bytes,
        /// Its id there.
        id: Bytes,
    },
}

impl JobQuery {
    /// Asks for the page behind one that ended here.
    pub fn go_on(&mut self, place: Place) {
        match place {
            Place::Job(key) => self.after = Some(key),
            Place::Guest(guest) => self.after_guest = Some(guest),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(key) => write!(f, "{key}"),
            Self::Guest(Guest::Qless(jid)) => write!(f, "q{}", hex(jid)),
            Self::Guest(Guest::Item { queue, id }) => write!(f, "k{}-{}", hex(queue), hex(id)),
        }
    }
}

/// What is no place of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not the end of a page")]
pub struct NoPlace;

impl FromStr for Place {
    type Err = NoPlace;

    fn from_str(text: &str) -> Result<Self, NoPlace> {
        if let Some(jid) = text.strip_prefix('q') {
            return Ok(Self::Guest(Guest::Qless(unhex(jid)?)));
        }
        if let Some(item) = text.strip_prefix('k') {
            let (queue, id) = item.split_once('-').ok_or(NoPlace)?;
            let (queue, id) = (unhex(queue)?, unhex(id)?);
            return Ok(Self::Guest(Guest::Item { queue, id }));
        }
        let number = text.parse().map_err(|_| NoPlace)?;
        Ok(Self::Job(JobKey(number)))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Result<Bytes, NoPlace> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(NoPlace);
    }
    let pairs = digits.chunks_exact(2).map(|pair| {
        let pair = std::str::from_utf8(pair).map_err(|_| NoPlace)?;
        u8::from_str_radix(pair, 16).map_err(|_| NoPlace)
    });
    pairs.collect::<Result<Vec<u8>, NoPlace>>().map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_as_it_was_written() {
        let item = |queue: &'static [u8], id: &'static [u8]| {
            Place::Guest(Guest::Item {
                queue: Bytes::from_static(queue),
                id: Bytes::from_static(id),
            })
        };
        for place in [
            Place::Job(JobKey(0)),
            Place::Job(JobKey(u64::MAX)),
            Place::Guest(Guest::Qless(Bytes::from_static(b"a\x00\xff"))),
            item(b"jobs:item", b""),
            item(b"", b"7"),
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in ["", "x", "-1", "q1", "qgg", "k", "k61", "k61-6", "1 "] {
            assert_eq!(text.parse::<Place>(), Err(NoPlace), "{text:?}");
        }
    }
}

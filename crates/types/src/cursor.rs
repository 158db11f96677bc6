//! Where a listing of jobs goes on.
//!
//! Jobs of ours are listed by number. Behind them come the external jobs: jobs that are kept by other parts of the engine, have no
//! number, and are shown among ours; first those of qless by their ids, then items of raw keys by queue and id.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use bytes::Bytes;

use crate::id::JobKey;
use crate::query::JobQuery;

/// The last job of a page. As text it is opaque to clients, who send it back unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageCursor {
    /// A job of the engine, by its number.
    Job(JobKey),
    /// One behind all of ours.
    ExternalJob(ExternalJob),
}

/// A job that has no number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExternalJob {
    /// A job of qless: its jid.
    Qless(Bytes),
    /// An item of raw keys.
    Item {
        /// Its queue, as the key's beginning says.
        queue: Bytes,
        /// The item's id within that queue.
        id: Bytes,
    },
}

impl JobQuery {
    /// Asks for the page behind one that ended here.
    pub fn go_on(&mut self, place: PageCursor) {
        match place {
            PageCursor::Job(key) => self.after = Some(key),
            PageCursor::ExternalJob(external_job) => self.after_external_job = Some(external_job),
        }
    }
}

impl fmt::Display for PageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(key) => write!(f, "{key}"),
            Self::ExternalJob(ExternalJob::Qless(jid)) => write!(f, "q{}", hex(jid)),
            Self::ExternalJob(ExternalJob::Item { queue, id }) => {
                write!(f, "k{}-{}", hex(queue), hex(id))
            }
        }
    }
}

/// What is no place of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not the end of a page")]
pub struct NoCursor;

impl FromStr for PageCursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        if let Some(jid) = text.strip_prefix('q') {
            return Ok(Self::ExternalJob(ExternalJob::Qless(unhex(jid)?)));
        }
        if let Some(item) = text.strip_prefix('k') {
            let (queue, id) = item.split_once('-').ok_or(NoCursor)?;
            let (queue, id) = (unhex(queue)?, unhex(id)?);
            return Ok(Self::ExternalJob(ExternalJob::Item { queue, id }));
        }
        let number = text.parse().map_err(|_| NoCursor)?;
        Ok(Self::Job(JobKey(number)))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Result<Bytes, NoCursor> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(NoCursor);
    }
    let pairs = digits.chunks_exact(2).map(|pair| {
        let pair = std::str::from_utf8(pair).map_err(|_| NoCursor)?;
        u8::from_str_radix(pair, 16).map_err(|_| NoCursor)
    });
    pairs
        .collect::<Result<Vec<u8>, NoCursor>>()
        .map(Bytes::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back_as_it_was_written() {
        let item = |queue: &'static [u8], id: &'static [u8]| {
            PageCursor::ExternalJob(ExternalJob::Item {
                queue: Bytes::from_static(queue),
                id: Bytes::from_static(id),
            })
        };
        for place in [
            PageCursor::Job(JobKey(0)),
            PageCursor::Job(JobKey(u64::MAX)),
            PageCursor::ExternalJob(ExternalJob::Qless(Bytes::from_static(b"a\x00\xff"))),
            item(b"jobs:item", b""),
            item(b"", b"7"),
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }

    #[test]
    fn anything_else_is_none() {
        for text in ["", "x", "-1", "q1", "qgg", "k", "k61", "k61-6", "1 "] {
            assert_eq!(text.parse::<PageCursor>(), Err(NoCursor), "{text:?}");
        }
    }
}

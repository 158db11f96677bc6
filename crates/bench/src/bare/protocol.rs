//! The protocol of the bare server: a head of five bytes and what it announces, in both directions. Requests are answered
//! in their order.
//!
//! | request | carries | answer carries |
//! |---|---|---|
//! | [`ENQUEUE`] | as many payloads | nothing |
//! | [`TAKE`] | nothing | as many ids and payloads as there were, up to the number |
//! | [`TAKE_WAITING`] | nothing | the same, after a wait of up to a second for the first |
//! | [`COMPLETE`] | as many ids | nothing |

/// Enqueues so many jobs.
pub(super) const ENQUEUE: u8 = b'E';
/// Takes up to so many jobs.
pub(super) const TAKE: u8 = b'T';
/// Takes up to so many jobs and waits for the first.
pub(super) const TAKE_WAITING: u8 = b'W';
/// Completes so many jobs.
pub(super) const COMPLETE: u8 = b'C';

/// Bytes of a head: what it is, and a number.
pub(super) const HEAD_BYTES: usize = 5;
/// Bytes of a length and of an id.
pub(super) const LENGTH_BYTES: usize = 4;
pub(super) const ID_BYTES: usize = 8;

/// Adds the head of a message: its type, and the number of its entries.
pub(super) fn add_head(out: &mut Vec<u8>, what: u8, count: usize) {
    out.push(what);
    add_length(out, count);
}

/// Adds a length. None of a benchmark exceeds 32 bits.
pub(super) fn add_length(out: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
}

/// The head at the beginning, if it is there whole.
pub(super) fn head(bytes: &[u8]) -> Option<(u8, usize)> {
    let (what, rest) = bytes.split_first()?;
    Some((*what, length(rest)?))
}

/// The length at the beginning.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let bytes = bytes.first_chunk::<LENGTH_BYTES>()?;
    usize::try_from(u32::from_be_bytes(*bytes)).ok()
}

/// The id at the beginning.
pub(super) fn id(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.first_chunk::<ID_BYTES>()?))
}

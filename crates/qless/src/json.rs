//! Reads and writes JSON in the form that clients of the script send and expect. Strings may contain any bytes.
//!
//! The [`Writer`] formats replies like the encoder of the script, because clients and tests compare them. The parser is
//! strict ([`kind`], [`list`], [`object`]). Texts that only pass through, such as a job's data, are checked and kept
//! unchanged.

mod read;
mod write;

use bytes::Bytes;
use ganger_types::qless::QlessTag;

pub(crate) use read::{JsonError, Kind, kind, list, object, values};
pub(crate) use write::Writer;

use crate::number;

/// Returns a tag as the text under which it is indexed and listed.
pub(crate) fn tag_text(tag: &QlessTag) -> Bytes {
    match tag {
        QlessTag::Text(text) => text.clone(),
        QlessTag::Number(value) => number::write(*value).into(),
    }
}

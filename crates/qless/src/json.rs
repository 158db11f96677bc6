//! JSON as the script's clients get it and send it, over any bytes.
//!
//! Replies have the habits of the encoder that the script uses ([`Writer`]), which clients and checks compare with. What
//! clients send is read strictly ([`kind`], [`list`], [`object`]), with strings of any bytes; texts that only pass
//! through, such as a job's data, are checked and kept as they came.

mod read;
mod write;

use bytes::Bytes;
use ganger_types::qless::QlessTag;

pub(crate) use read::{Kind, Wrong, kind, list, object, values};
pub(crate) use write::Writer;

use crate::number;

/// A tag as the text under which it is looked up and listed.
pub(crate) fn tag_text(tag: &QlessTag) -> Bytes {
    match tag {
        QlessTag::Text(text) => text.clone(),
        QlessTag::Number(value) => number::write(*value).into(),
    }
}

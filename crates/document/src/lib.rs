//! The JSON documents of ganger: bodies of requests and answers.
//!
//! HTTP bodies and answers, the files of `ganger submit` and the output of `--json` are these documents, so the same
//! job reads the same everywhere. Names, times, durations and bytes have their text form here; requests convert to
//! the commands of `ganger-types`, records convert to views. Parsing is strict: unknown and duplicate fields are
//! refused, and every error names its place.

#![forbid(unsafe_code)]

mod error;
pub mod escape;
pub mod json;
pub mod labels;
pub mod measure;
pub mod names;
pub mod one_of;
pub mod place;
pub mod raw_json;
pub mod reference;
pub mod request;
pub mod retry;
pub mod settings;
pub mod short;
pub mod time;
pub mod view;

pub use error::DocumentError;
pub use one_of::OneOf;
pub use reference::Shards;

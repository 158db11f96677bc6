//! Why a document was refused.

use std::fmt;

use crate::place;

/// An error in a document: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentError {
    /// Stable code of the refusal, as `docs/errors.md` lists it.
    pub code: &'static str,
    /// What is wrong, where, and the next step.
    pub detail: String,
    /// The offending value, as a JSON pointer (RFC 6901); `None` if no single value is to blame.
    pub pointer: Option<String>,
    /// Line and column of the text, from 1; `None` if the text is not the cause.
    pub place: Option<(usize, usize)>,
}

impl DocumentError {
    /// An error about the document as a whole.
    pub fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            pointer: None,
            place: None,
        }
    }

    /// Adds the line and column of the offending value in `text`, if the error has none yet.
    #[must_use]
    pub fn located_in(mut self, text: &[u8]) -> Self {
        let pointer = self.pointer.as_deref();
        self.place = self
            .place
            .or_else(|| pointer.map(|pointer| place::of_pointer(text, pointer)));
        self
    }

    /// Names the offending value by its JSON pointer.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>) -> Self {
        self.pointer = Some(pointer.into());
        self
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for DocumentError {}

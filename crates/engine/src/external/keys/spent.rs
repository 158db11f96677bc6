//! What calls that make one commit have taken: elements in their answers, and steps through lists and names.
//!
//! A commit is one step of the shard, so it is bounded: a call beyond the bounds is refused before it does anything.

use ganger_types::keys::KeyError;
use ganger_types::limits::{KEY_REPLY_BYTES_MAX, KEY_REPLY_ELEMENTS_MAX, KEY_STEPS_MAX};

/// Bytes that count for an element in an answer beside its own.
pub(super) const ELEMENT_BYTES: usize = 64;

/// What has been taken so far.
#[derive(Debug, Default)]
pub(super) struct Spent {
    elements: usize,
    steps: usize,
}

impl Spent {
    /// Takes so many elements for an answer.
    pub(super) fn elements(&mut self, count: usize) -> Result<(), KeyError> {
        let elements = self.elements.saturating_add(count);
        if elements > KEY_REPLY_ELEMENTS_MAX {
            return Err(KeyError::ReplyTooLarge);
        }
        self.elements = elements;
        Ok(())
    }

    /// Takes steps. A call that needs more than are left is still carried out, the next one is not.
    pub(super) fn steps(&mut self, count: usize) -> Result<(), KeyError> {
        if self.steps > KEY_STEPS_MAX {
            return Err(KeyError::TooMuchWork);
        }
        self.steps = self.steps.saturating_add(count);
        Ok(())
    }
}

/// Refuses an answer of elements with these lengths if it is too large.
pub(super) fn check_bytes(lengths: impl IntoIterator<Item = usize>) -> Result<(), KeyError> {
    let mut bytes = 0_usize;
    for length in lengths {
        bytes = bytes.saturating_add(ELEMENT_BYTES).saturating_add(length);
        if bytes > KEY_REPLY_BYTES_MAX {
            return Err(KeyError::ReplyTooLarge);
        }
    }
    Ok(())
}

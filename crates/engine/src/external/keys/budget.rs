//! The budget of the calls of one commit: elements in their answers, and steps through lists and names.
//!
//! A commit blocks the shard, so its work is limited: a call beyond the limits is refused before it does anything.

use ganger_types::keys::KeyError;
use ganger_types::limits::{KEY_REPLY_BYTES_MAX, KEY_REPLY_ELEMENTS_MAX, KEY_STEPS_MAX};

/// Bytes that count for an element in an answer besides its own.
pub(super) const ELEMENT_BYTES: usize = 64;

/// The part of the budget that is used.
#[derive(Debug, Default)]
pub(super) struct Budget {
    elements: usize,
    steps: usize,
}

impl Budget {
    /// Counts the elements of an answer; refuses them if they are too many.
    pub(super) fn elements(&mut self, count: usize) -> Result<(), KeyError> {
        let elements = self.elements.saturating_add(count);
        if elements > KEY_REPLY_ELEMENTS_MAX {
            return Err(KeyError::ReplyTooLarge);
        }
        self.elements = elements;
        Ok(())
    }

    /// Counts steps. A call that needs more steps than are left is still applied; the next one is refused.
    pub(super) fn steps(&mut self, count: usize) -> Result<(), KeyError> {
        if self.steps > KEY_STEPS_MAX {
            return Err(KeyError::TooMuchWork);
        }
        self.steps = self.steps.saturating_add(count);
        Ok(())
    }
}

/// Refuses an answer whose elements have these lengths if it is too large.
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

//! The part of the server's memory that a connection holds, counted in the budget that all ports share.

use ganger_access::{Full, Hold};

/// Bytes of a connection that are not counted: a small command costs no look at the budget.
const FREE_BYTES: usize = 16 << 10;
/// What is counted is a multiple of it.
const STEP_BYTES: usize = 16 << 10;

/// What a connection holds for commands and replies.
pub(crate) struct Memory {
    hold: Hold,
    counted: usize,
}

impl Memory {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold, counted: 0 }
    }

    /// Holds so many bytes in all from now on.
    ///
    /// # Errors
    /// If the budget has no room; then it holds what it held.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Full> {
        let wanted = bytes.saturating_sub(FREE_BYTES).div_ceil(STEP_BYTES) * STEP_BYTES;
        if wanted != self.counted {
            self.hold.set(wanted)?;
            self.counted = wanted;
        }
        Ok(())
    }

    /// Holds so many bytes in all, whether or not there is room: what cannot be given back now.
    pub(crate) fn set_anyway(&mut self, bytes: usize) {
        if self.set(bytes).is_err() {
            let more = bytes.saturating_sub(self.counted);
            self.hold.grow_anyway(more);
            self.counted += more;
        }
    }

    /// Bytes that are counted now.
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }
}

/// The refusal of what there is no room for.
pub(crate) fn no_room(full: Full) -> String {
    format!("BUSY {full}")
}

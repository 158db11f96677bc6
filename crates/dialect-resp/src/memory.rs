//! The memory of a connection, counted in the budget that all ports share.

use ganger_access::{Full, Hold};

/// Bytes of a connection that are not counted, so that small commands need no access to the budget.
const FREE_BYTES: usize = 16 << 10;
/// Unit of the counted memory, in bytes.
const STEP_BYTES: usize = 16 << 10;

/// The memory of a connection's commands and replies.
pub(crate) struct Memory {
    hold: Hold,
    counted: usize,
}

impl Memory {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold, counted: 0 }
    }

    /// Sets the number of bytes that the connection holds.
    ///
    /// # Errors
    /// If the budget has no room; the number then does not change.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), Full> {
        let wanted = bytes.saturating_sub(FREE_BYTES).div_ceil(STEP_BYTES) * STEP_BYTES;
        if wanted != self.counted {
            self.hold.set(wanted)?;
            self.counted = wanted;
        }
        Ok(())
    }

    /// Sets the number of bytes even if the budget has no room, for memory that cannot be freed now.
    pub(crate) fn set_anyway(&mut self, bytes: usize) {
        if self.set(bytes).is_err() {
            let more = bytes.saturating_sub(self.counted);
            self.hold.grow_anyway(more);
            self.counted += more;
        }
    }

    /// The number of bytes that are counted now.
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }
}

/// The error for a command that the budget has no room for.
pub(crate) fn no_room(full: Full) -> String {
    format!("BUSY {full}")
}

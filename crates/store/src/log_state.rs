//! The log in front of a store's rows, in numbers.

/// The log in front of a store's rows, in numbers that people watch. All are 0 for a store without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Bytes of the log, those that could be freed too.
    pub bytes: u64,
    /// Acknowledged commits whose rows are not written.
    pub commits_behind: u64,
    /// How often a part of the log could not be freed because somebody else used it, since the store was made.
    pub times_busy: u64,
    /// Commits whose wait for a standby the database has cancelled, since the store was made.
    pub waits_cancelled: u64,
}

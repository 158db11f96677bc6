//! The log in front of a store's rows, in numbers.

/// What an acknowledged commit in a database survives, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DurabilityMode {
    /// Not even a crash of the database's server, which the settings accept.
    None,
    /// A crash of that server, not its loss.
    Alone,
    /// The loss of that server: its storage is replicated, as the settings say.
    Storage,
    /// The loss of that server: a standby has the commit.
    Quorum,
}

impl DurabilityMode {
    /// All modes, from the weakest to the strongest.
    pub const ALL: [Self; 4] = [Self::None, Self::Alone, Self::Storage, Self::Quorum];

    /// The mode in one word, for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Alone => "alone",
            Self::Storage => "storage",
            Self::Quorum => "quorum",
        }
    }

    /// The mode with this [`DurabilityMode::number`].
    pub fn of_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.number() == number)
    }

    /// The mode as a number, for gauges; 0 stands for no database.
    pub fn number(self) -> u64 {
        match self {
            Self::None => 1,
            Self::Alone => 2,
            Self::Storage => 3,
            Self::Quorum => 4,
        }
    }
}

impl std::fmt::Display for DurabilityMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Quorum => "survives the loss of the primary",
            Self::Storage => {
                "survives the loss of the primary, if its storage is replicated as the settings say"
            }
            Self::Alone => "survives a crash of the server, not its loss",
            Self::None => "may be lost in a crash of the server",
        })
    }
}

/// The log in front of a store's rows, in numbers that people watch. All are 0 for a store without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogState {
    /// Bytes of the log, those that could be freed too.
    pub bytes: u64,
    /// Acknowledged commits whose rows are not written.
    pub commits_behind: u64,
    /// Bytes that these commits have in the log.
    pub bytes_behind: u64,
    /// Commits that waited because too much was behind, since the store was made.
    pub times_blocked: u64,
    /// Commits that were too large for the log and were written into the rows at once, since the store was made.
    pub times_too_large: u64,
    /// What a commit survives; `None` if the store is a file, or not open.
    pub durability: Option<DurabilityMode>,
    /// How often a part of the log could not be freed because somebody else used it, since the store was made.
    pub times_busy: u64,
    /// Commits whose wait for a standby the database has cancelled, since the store was made.
    pub waits_cancelled: u64,
}

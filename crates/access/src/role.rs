//! Roles, and the verbs that each includes.

use std::fmt;
use std::str::FromStr;

/// The kind of an operation, for access control.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads facts about the server, but nothing about jobs.
    Greet,
    /// Reads jobs, queues, statistics, events.
    Observe,
    /// Submits new jobs to a queue.
    Submit,
    /// Cancels jobs that have not ended.
    Cancel,
    /// Leases jobs and reports on them.
    Work,
    /// Changes, removes and retries jobs; sets queues and schedules.
    Operate,
    /// Sets the limits of a whole namespace.
    Govern,
    /// Speaks for another shard.
    Peer,
}

impl Verb {
    /// Whether the audit log records every use, and not only refused ones (`rel S15`).
    pub fn is_audited(self) -> bool {
        matches!(self, Self::Cancel | Self::Operate | Self::Govern)
    }
}

/// A set of verbs with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Role with every right of a client.
    Admin,
    /// Role for everything about jobs, queues and schedules except running jobs.
    Operator,
    /// Role that submits, reads and cancels jobs.
    Producer,
    /// Role that leases jobs and reports on them, without seeing anything else.
    Worker,
    /// Role that only reads.
    Reader,
}

impl Role {
    /// All roles, from the most rights to the least.
    pub const ALL: [Self; 5] = [
        Self::Admin,
        Self::Operator,
        Self::Producer,
        Self::Worker,
        Self::Reader,
    ];

    /// Returns the name of the role.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::Reader => "reader",
        }
    }

    /// Returns the role with the fewest rights that includes the verb; `None` if no role does.
    pub fn least(verb: Verb) -> Option<Self> {
        Self::ALL.into_iter().rev().find(|role| role.may(verb))
    }

    /// Whether the role changes nothing.
    pub fn is_read_only(self) -> bool {
        self == Self::Reader
    }

    /// Whether the role includes the verb. No role includes `Verb::Peer`: see [`crate::Identity::may`].
    pub fn may(self, verb: Verb) -> bool {
        use Verb as V;
        match verb {
            V::Greet => true,
            V::Observe => matches!(
                self,
                Self::Admin | Self::Operator | Self::Producer | Self::Reader
            ),
            V::Submit | V::Cancel => {
                matches!(self, Self::Admin | Self::Operator | Self::Producer)
            }
            V::Work => matches!(self, Self::Admin | Self::Worker),
            V::Operate => matches!(self, Self::Admin | Self::Operator),
            V::Govern => self == Self::Admin,
            V::Peer => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = Self::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| {
            format!("{text:?} is not a role: there are admin, operator, producer, worker, reader")
        })
    }
}

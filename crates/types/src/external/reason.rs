//! Causes why a job of an external system does not run.

use std::time::Duration;

use crate::name::Worker;
use crate::time::Timestamp;
use crate::why::{Reason, whole};

/// A cause why a job of an external system does not run, beside those that jobs of the engine have too.
#[derive(Clone, Debug, PartialEq)]
pub enum ExternalReason {
    /// The job runs under a lock of qless, which only a later call can end.
    Locked {
        /// The worker that has the job.
        worker: Worker,
        /// The number of the attempt, from 1.
        attempt: u32,
        /// When the lock expires, on the clock of the client that took it.
        until: Timestamp,
    },
    /// The job waits for room under throttles of qless.
    Throttled {
        /// The names of the throttles that are full.
        by: Vec<String>,
    },
    /// The job is an item of raw keys, and its lease is live.
    KeyLeased {
        /// The session that works on it, as the lease names it.
        session: String,
        /// The time until the lease expires; `None`: it never does.
        left: Option<Duration>,
        /// Whether the server puts the item back on its queue then.
        goes_back: bool,
    },
    /// The job is an item of raw keys that a client took from its queue and has no lease for.
    KeyTaken {
        /// The longest time after it was taken until the server puts it back; `None`: a cleaner must do that.
        back_after: Option<Duration>,
    },
    /// The job is an item of raw keys that is in no list.
    KeyStaged {
        /// The longest time until the server puts it on its queue; `None`: a cleaner must do that.
        queued_after: Option<Duration>,
    },
}

impl From<ExternalReason> for Reason {
    fn from(reason: ExternalReason) -> Self {
        Self::External(reason)
    }
}

impl ExternalReason {
    /// The stable code of the cause.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locked { .. } => "locked",
            Self::Throttled { .. } => "throttled",
            Self::KeyLeased { .. } => "key_leased",
            Self::KeyTaken { .. } => "key_taken",
            Self::KeyStaged { .. } => "key_staged",
        }
    }

    /// The cause as a sentence, in lower case and without a full stop.
    pub fn text(&self) -> String {
        match self {
            Self::Locked { worker, .. } => format!(
                "worker {worker} runs the job under a lock of qless, which expires by that client's clock"
            ),
            Self::Throttled { by } => {
                format!("the job waits for room under {}", by.join(", "))
            }
            Self::KeyLeased {
                session,
                left,
                goes_back,
            } => key_leased(session, *left, *goes_back),
            Self::KeyTaken { back_after } => {
                let next = server_or_cleaner(*back_after, "puts it back");
                format!("the item was taken from its queue without a lease: {next}")
            }
            Self::KeyStaged { queued_after } => {
                let next = server_or_cleaner(*queued_after, "puts it on its queue");
                format!("the item is in no list: {next}")
            }
        }
    }
}

fn key_leased(session: &str, left: Option<Duration>, goes_back: bool) -> String {
    let Some(left) = left else {
        return format!("{session} works on the item under a lease that never expires");
    };
    let next = if goes_back {
        "then the server puts the item back on its queue"
    } else {
        "then a cleaner must put the item back"
    };
    let left = whole(left);
    format!("{session} works on the item under a lease that expires in {left}; {next}")
}

/// Who acts next: the server within `after`, or a cleaner that the user runs.
fn server_or_cleaner(after: Option<Duration>, does: &str) -> String {
    match after {
        Some(after) => format!("the server {does} within {}", whole(after)),
        None => format!("no rule of the server applies, so a cleaner {does}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_names_who_acts_next() {
        let seconds = |count| Some(Duration::from_secs(count));
        let leased = |left, goes_back| ExternalReason::KeyLeased {
            session: "s1".to_owned(),
            left,
            goes_back,
        };
        for (reason, text) in [
            (
                leased(None, false),
                "s1 works on the item under a lease that never expires",
            ),
            (
                leased(seconds(9), true),
                "s1 works on the item under a lease that expires in 9s; then the server puts the item back on its queue",
            ),
            (
                ExternalReason::KeyTaken {
                    back_after: seconds(30),
                },
                "the item was taken from its queue without a lease: the server puts it back within 30s",
            ),
        ] {
            assert_eq!(reason.text(), text, "{}", reason.code());
        }
    }
}

//! The server of a database that was used last. A standby that takes the place of its primary raises the timeline, so
//! a former primary that still answers is recognised, and so is a server that has taken another's place.
//!
//! A server that was started again, and a database that was created again under the same name, count as other servers:
//! they may have been restored from a backup.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::durability::Durability;
use crate::fault::Fault;

/// Who a server of a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Number of the cluster of databases, which its standbys share.
    pub system_identifier: i64,
    /// Number that every promotion of a standby raises; 0 if the server does not tell it.
    pub timeline: u32,
}

/// Which run of a server answers, and which of its databases. A database that is restored has another one of these, as
/// long as nobody stays connected while it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerRun {
    /// When the server was started, in microseconds since 1970.
    pub started_at_us: i64,
    /// Number of the database in its server, which another one of the same name does not have.
    pub database_oid: i64,
}

/// A server that was used, or heard of.
#[derive(Clone, Copy, Debug)]
struct Seen {
    identity: ServerIdentity,
    /// `None` if it was only heard of.
    run: Option<ServerRun>,
}

/// The newest server of a database that this process has used, or heard of from another node.
#[derive(Debug, Default)]
pub struct NewestServer {
    /// `None` before the first connection.
    seen: Mutex<Option<Seen>>,
    /// How often another server has taken the place of the one before.
    number: AtomicU64,
}

impl NewestServer {
    /// Takes note of the server of a new connection, before anything is read there.
    ///
    /// # Errors
    /// If it is a former primary: a server with a newer timeline has been used.
    pub fn admit(&self, found: &Durability) -> Result<(), Fault> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (identity, run) = (found.identity(), found.run);
        // Servers that do not tell their timeline all have number 0.
        if let Some(Seen {
            identity: before, ..
        }) = *seen
            && before.is_newer_than(identity)
            && identity.timeline > 0
        {
            let (found, timeline) = (identity.timeline, before.timeline);
            return Err(Fault::Lost(format!(
                "the server has timeline {found} and is a former primary: one with timeline {timeline} has taken its place"
            )));
        }
        let is_known = seen.is_none_or(|before| {
            before.identity == identity && before.run.is_none_or(|before| before == run)
        });
        if !is_known {
            self.number.fetch_add(1, Ordering::AcqRel);
        }
        *seen = Some(Seen {
            identity,
            run: Some(run),
        });
        Ok(())
    }

    /// Takes note of a server that was found elsewhere, or that another node has told of. Returns whether it has taken the
    /// place of the one that this process uses; from then on that one is a former primary here too.
    pub fn learn(&self, told: ServerIdentity) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let is_newer = seen.is_some_and(|before| told.is_newer_than(before.identity));
        if is_newer {
            *seen = Some(Seen {
                identity: told,
                run: None,
            });
            self.number.fetch_add(1, Ordering::AcqRel);
        }
        is_newer
    }

    /// Returns the newest server that is known; `None` before the first connection.
    pub fn now(&self) -> Option<ServerIdentity> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.map(|seen| seen.identity)
    }

    /// Returns how often another server has taken the place of the one before.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }
}

impl ServerIdentity {
    /// Whether it has taken the place of that other server of the same database.
    fn is_newer_than(self, other: Self) -> bool {
        self.system_identifier == other.system_identifier && self.timeline > other.timeline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_store::DurabilityMode;

    fn server(system_identifier: i64, timeline: u32) -> Durability {
        Durability {
            mode: DurabilityMode::Alone,
            system_identifier,
            timeline,
            run: ServerRun::default(),
        }
    }

    #[test]
    fn a_server_that_was_started_again_and_a_database_that_was_created_again_are_others() {
        let newest = NewestServer::default();
        let admit = |started_at_us, database_oid| {
            let run = ServerRun {
                started_at_us,
                database_oid,
            };
            let found = Durability {
                run,
                ..server(7, 1)
            };
            newest.admit(&found).expect("it is no former primary");
            newest.number()
        };
        assert_eq!((admit(5, 1), admit(5, 1)), (0, 0));
        assert_eq!((admit(6, 1), admit(6, 1)), (1, 1));
        assert_eq!((admit(6, 2), admit(6, 2)), (2, 2));
        // One that was heard of is the same when it is used.
        newest.learn(ServerIdentity {
            system_identifier: 7,
            timeline: 2,
        });
        let promoted = newest.admit(&server(7, 2));
        assert_eq!((promoted.is_ok(), newest.number()), (true, 3));
    }

    #[test]
    fn a_former_primary_is_refused_and_a_promoted_standby_is_noticed() {
        let newest = NewestServer::default();
        let admit = |timeline| newest.admit(&server(7, timeline)).is_ok();
        assert!(admit(1) && admit(1));
        assert_eq!(newest.number(), 0);
        assert!(admit(2));
        assert_eq!(newest.number(), 1);
        assert!(!admit(1));
        assert!(admit(2));
        assert_eq!(newest.number(), 1);
    }

    #[test]
    fn a_former_primary_is_known_from_others_too() {
        let newest = NewestServer::default();
        let told = |system_identifier, timeline| {
            newest.learn(ServerIdentity {
                system_identifier,
                timeline,
            })
        };
        assert!(!told(7, 9), "it knows no server yet");
        assert!(newest.admit(&server(7, 2)).is_ok());
        assert!(!told(7, 2) && !told(7, 1) && !told(8, 3));
        assert_eq!(newest.number(), 0);
        assert!(told(7, 3));
        assert_eq!(newest.number(), 1);
        assert!(newest.admit(&server(7, 2)).is_err());
        assert!(newest.admit(&server(7, 3)).is_ok());
        assert_eq!(newest.number(), 1);
    }

    #[test]
    fn another_database_and_one_without_timelines_are_used() {
        let newest = NewestServer::default();
        assert!(newest.admit(&server(7, 5)).is_ok());
        assert!(newest.admit(&server(8, 1)).is_ok());
        assert_eq!(newest.number(), 1);
        assert!(newest.admit(&server(8, 0)).is_ok());
    }
}

//! The server of a database that was used last. A standby that takes the place of its primary raises the timeline, so
//! a former primary that still answers is recognised, and so is a server that has taken another's place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::durability::Durability;
use crate::fault::Fault;

/// The server of a database that this process has used last.
#[derive(Debug, Default)]
pub struct NewestServer {
    /// System identifier and timeline; `None` before the first connection.
    seen: Mutex<Option<(i64, u32)>>,
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
        let found = (found.system_identifier, found.timeline);
        match *seen {
            Some(before) if before == found => {}
            // Servers that do not tell their timeline all have number 0.
            Some((system, timeline)) if system == found.0 && timeline > found.1 && found.1 > 0 => {
                let found = found.1;
                return Err(Fault::Lost(format!(
                    "the server has timeline {found} and is a former primary: one with timeline {timeline} has taken its place"
                )));
            }
            before => {
                *seen = Some(found);
                if before.is_some() {
                    self.number.fetch_add(1, Ordering::AcqRel);
                }
            }
        }
        Ok(())
    }

    /// Returns how often another server has taken the place of the one before.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durability::DurabilityMode;

    fn server(system_identifier: i64, timeline: u32) -> Durability {
        Durability {
            mode: DurabilityMode::Alone,
            system_identifier,
            timeline,
        }
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
    fn another_database_and_one_without_timelines_are_used() {
        let newest = NewestServer::default();
        assert!(newest.admit(&server(7, 5)).is_ok());
        assert!(newest.admit(&server(8, 1)).is_ok());
        assert_eq!(newest.number(), 1);
        assert!(newest.admit(&server(8, 0)).is_ok());
    }
}

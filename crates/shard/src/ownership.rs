//! Until when a process surely owns a shard that several processes may own in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ganger_types::{Command, ShardId};

use crate::CallError;
use crate::clock::Clock;

/// The time until which a process surely owns a shard, by its [`Clock::monotonic`].
///
/// Commits need none of this: the store refuses those of an earlier owner. Reads are answered without a commit, so
/// after this time another process may have changed what they would show.
#[derive(Debug, Default)]
pub struct Ownership {
    until_micros: AtomicU64,
}

impl Ownership {
    /// Sets the time until which the process surely owns the shard.
    pub fn set_until(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.until_micros.store(micros, Ordering::Release);
    }

    /// Ends the ownership: another process may own the shard.
    pub fn end(&self) {
        self.set_until(Duration::ZERO);
    }

    /// Whether the process surely owns the shard at this time.
    pub fn is_sure(&self, now: Duration) -> bool {
        now < Duration::from_micros(self.until_micros.load(Ordering::Acquire))
    }
}

/// Whether a command may be answered without a commit: reads, and renewals that change nothing else.
pub(crate) fn may_need_no_commit(command: &Command) -> bool {
    matches!(command, Command::Query(_) | Command::Renew(_))
}

/// Refuses answers that may be out of date, because the process no longer surely owns the shard.
#[derive(Clone)]
pub(crate) struct OwnershipCheck {
    pub(crate) shard: ShardId,
    pub(crate) clock: Arc<dyn Clock>,
    /// `None` if no other process can own the shard.
    pub(crate) ownership: Option<Arc<Ownership>>,
}

impl OwnershipCheck {
    /// Passes on an answer that was read before this call. The time is read now, after the answer: a process that
    /// stood still in between does not know whether it owned the shard when it read.
    pub(crate) fn pass<V>(&self, answer: Result<V, CallError>) -> Result<V, CallError> {
        match &self.ownership {
            Some(ownership) if !ownership.is_sure(self.clock.monotonic()) => {
                Err(CallError::unavailable(
                    &self.shard,
                    "this node is not sure that it still owns the shard",
                ))
            }
            _ => answer,
        }
    }

    /// [`OwnershipCheck::pass`] for a command: a refusal is an answer from memory too, all else was committed.
    pub(crate) fn pass_reply<V>(
        &self,
        reply: Result<V, CallError>,
        is_read: bool,
    ) -> Result<V, CallError> {
        if is_read || matches!(reply, Err(CallError::Rejected(_))) {
            return self.pass(reply);
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use ganger_types::{JobId, Rejection, Timestamp};

    use super::*;
    use crate::ManualClock;

    #[test]
    fn an_answer_from_memory_needs_sure_ownership_and_a_commit_does_not() {
        let clock = ManualClock::new(Timestamp(0));
        let ownership = Arc::new(Ownership::default());
        let check = OwnershipCheck {
            shard: ShardId::default(),
            clock: clock.clone(),
            ownership: Some(Arc::clone(&ownership)),
        };
        ownership.set_until(Duration::from_secs(5));
        assert_eq!(check.pass(Ok(1)), Ok(1));
        clock.advance(Duration::from_secs(5));
        assert!(matches!(
            check.pass(Ok(1)),
            Err(CallError::Unavailable { .. })
        ));
        let job = JobId::new("a").expect("it is a name");
        let rejected = || {
            Err::<u8, _>(CallError::Rejected(Rejection::JobNotFound {
                job: job.clone(),
            }))
        };
        let refused = check.pass_reply(rejected(), false);
        assert!(matches!(refused, Err(CallError::Unavailable { .. })));
        assert_eq!(check.pass_reply(Ok(2), false), Ok(2), "it was committed");
        ownership.set_until(Duration::from_secs(9));
        assert!(matches!(
            check.pass_reply(rejected(), false),
            Err(CallError::Rejected(_))
        ));
        ownership.end();
        assert!(check.pass(Ok(1)).is_err());
    }

    #[test]
    fn a_shard_without_other_owners_always_answers() {
        let check = OwnershipCheck {
            shard: ShardId::default(),
            clock: ManualClock::new(Timestamp(0)),
            ownership: None,
        };
        assert_eq!(check.pass(Ok(1)), Ok(1));
    }
}

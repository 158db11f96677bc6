//! Supplies: when a producer may send its next message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Load;
use crate::pace::{Next, Paced};

/// Where the messages of one producer come from.
pub(crate) enum Supply {
    /// Messages of so many jobs while the load has room, until it is over.
    Room(Arc<Load>, usize),
    /// Messages until the quota that all producers share is used up.
    Quota(Arc<Quota>),
    /// Messages at the times of a pace.
    Paced(Paced),
}

impl Supply {
    pub(crate) fn next(&mut self) -> Next {
        match self {
            Self::Room(load, _) if load.is_over() => Next::Nothing,
            Self::Room(load, jobs) if load.try_take_room(*jobs) => Next::Message,
            Self::Room(load, _) if load.is_over() => Next::Nothing,
            Self::Room(..) => Next::NotYet(None),
            Self::Quota(quota) if quota.take() => Next::Message,
            Self::Quota(_) => Next::Nothing,
            Self::Paced(paced) => paced.next(),
        }
    }

    /// The payload of the message that may be sent now; absent: that of the load.
    pub(crate) fn payload(&self) -> Option<&[u8]> {
        match self {
            Self::Room(..) | Self::Quota(_) => None,
            Self::Paced(paced) => Some(paced.payload()),
        }
    }

    /// Notes that the oldest messages, so many, are durable.
    pub(crate) fn acknowledged(&mut self, messages: usize) {
        if let Self::Paced(paced) = self {
            paced.acknowledged(messages);
        }
    }

    /// Waits until asking again makes sense.
    pub(crate) async fn until_next(&self) {
        if let Self::Room(load, jobs) = self {
            load.until_room(*jobs).await;
        }
    }
}

/// Messages that the producers of a load have still to send.
pub(crate) struct Quota {
    jobs_each: u64,
    jobs_max: u64,
    taken: AtomicU64,
    ends_at: Instant,
}

impl Quota {
    /// So many jobs in messages of `jobs_each`, or what can be sent in the time.
    pub(crate) fn new(jobs_each: usize, jobs_max: u64, time_max: Duration) -> Arc<Self> {
        Arc::new(Self {
            jobs_each: u64::try_from(jobs_each).unwrap_or(1),
            jobs_max,
            taken: AtomicU64::new(0),
            ends_at: Instant::now() + time_max,
        })
    }

    fn take(&self) -> bool {
        let before = self.taken.fetch_add(self.jobs_each, Ordering::Relaxed);
        before < self.jobs_max && Instant::now() < self.ends_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_ends_after_its_jobs() {
        let quota = Quota::new(100, 250, Duration::from_secs(60));
        let mut supply = Supply::Quota(quota);
        let sent = std::iter::repeat_with(|| supply.next()).take(5);
        let sent = sent.filter(|next| *next == Next::Message).count();
        assert_eq!(sent, 3);
    }

    #[test]
    fn room_comes_back_with_completed_jobs() {
        let load = Load::new("queue".to_owned(), 0, 1, Some(1));
        let mut supply = Supply::Room(Arc::clone(&load), 1);
        assert_eq!(supply.next(), Next::Message);
        assert_eq!(supply.next(), Next::NotYet(None));
        load.note_completed(1);
        assert_eq!(supply.next(), Next::Message);
        load.end();
        assert_eq!(supply.next(), Next::Nothing);
    }
}

//! How long commits took lately: the difference between two counts of all commits since the start.

use std::collections::VecDeque;
use std::time::Duration;

use ganger_metrics::Histogram;
use ganger_types::{ShardId, Timestamp};

use crate::facts::CommitFacts;

/// Time between two counts that are kept.
const STEP: Duration = Duration::from_secs(10);
/// Time that the oldest count lies back.
const WINDOW: Duration = Duration::from_secs(300);

/// Counts of the commits of one shard, oldest first.
#[derive(Debug)]
pub(crate) struct CommitWindow {
    pub(crate) shard: ShardId,
    counts: VecDeque<(Timestamp, Histogram)>,
}

impl CommitWindow {
    pub(crate) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            counts: VecDeque::new(),
        }
    }

    /// Adds the count of now, and returns what it says about the last 5 minutes, or the time since the first count.
    pub(crate) fn add(&mut self, now: Timestamp, count: Histogram) -> CommitFacts {
        let facts = match self.counts.front() {
            Some((_, first)) => between(first, &count),
            None => CommitFacts::default(),
        };
        // A clock that went back would keep counts too long.
        if self.counts.back().is_some_and(|(last, _)| now < *last) {
            self.counts.clear();
        }
        let is_due = |(last, _): &(Timestamp, Histogram)| now.since(*last) >= STEP;
        if self.counts.back().is_none_or(is_due) {
            self.counts.push_back((now, count));
        }
        while self.counts.len() > 1 && self.counts[1].0.after(WINDOW) <= now {
            self.counts.pop_front();
        }
        facts
    }
}

/// The commits that one count has and an earlier one had not.
fn between(before: &Histogram, after: &Histogram) -> CommitFacts {
    let count = after.count.saturating_sub(before.count);
    let mut buckets = after
        .buckets
        .iter()
        .enumerate()
        .map(|(place, (bound, up_to))| {
            let earlier = before.buckets.get(place).map_or(0, |bucket| bucket.1);
            (*bound, up_to.saturating_sub(earlier))
        });
    let p99 = buckets.find(|(_, up_to)| count > 0 && up_to * 100 >= count * 99);
    let p99 = p99.and_then(|(bound, _)| Duration::try_from_secs_f64(bound).ok());
    CommitFacts { count, p99 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Timestamp {
        Timestamp(second * 1_000_000)
    }

    fn counted(fast: u64, slow: u64) -> Histogram {
        Histogram {
            buckets: vec![(0.01, fast), (1.0, fast + slow)],
            sum: 0.0,
            count: fast + slow,
        }
    }

    #[test]
    fn only_the_commits_of_the_last_five_minutes_count() {
        let mut window = CommitWindow::new(ShardId::default());
        assert_eq!(window.add(at(0), counted(0, 500)), CommitFacts::default());
        let fast = Some(Duration::from_millis(10));
        let found = window.add(at(10), counted(99, 501));
        assert_eq!(
            found,
            CommitFacts {
                count: 100,
                p99: fast
            }
        );
        let found = window.add(at(20), counted(99, 510));
        assert_eq!(found.p99, Some(Duration::from_secs(1)));
        for second in (30..=400).step_by(10) {
            window.add(at(second), counted(99, 510));
        }
        let found = window.add(at(405), counted(100, 510));
        assert_eq!(
            found,
            CommitFacts {
                count: 1,
                p99: fast
            }
        );
        assert!(window.counts.len() <= 32);
    }

    #[test]
    fn commits_beyond_the_longest_bucket_have_no_bound() {
        let before = Histogram {
            count: 0,
            ..counted(0, 0)
        };
        let after = Histogram {
            count: 10,
            ..counted(5, 0)
        };
        assert_eq!(
            between(&before, &after),
            CommitFacts {
                count: 10,
                p99: None
            }
        );
    }
}

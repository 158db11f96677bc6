//! What is known of each failure group besides its number of jobs: times, a message, queues and kinds, the last hour.
//!
//! It is beside the engine: fed by the jobs that fail, and after a start by the failed jobs that were kept, as far as
//! they are read. Its memory is bounded.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ganger_types::{Group, JobRecord, JobState, Kind, Namespace, Queue, Timestamp};
use serde::{Deserialize, Serialize};

/// Maximum number of groups; further ones are not described.
const GROUPS_MAX: usize = 10_000;
/// Queues, and kinds, of a group that are counted.
const NAMES_MAX: usize = 20;
/// Bytes of a message that are kept.
const MESSAGE_BYTES_MAX: usize = 500;
/// Length of a step of the last hour.
const STEP_SECONDS: u64 = 600;
/// Steps of the last hour.
const STEPS: usize = 6;

/// What is known of a failure group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFacts {
    /// Time of the first failure that is known.
    pub first_at: Timestamp,
    /// Time of the last failure.
    pub last_at: Timestamp,
    /// Message of the last failure, at most 500 bytes.
    pub message: String,
    /// Number of failures by queue, for at most 20 queues.
    #[serde(with = "crate::pairs")]
    pub by_queue: BTreeMap<Queue, u64>,
    /// Number of failures by kind, for at most 20 kinds.
    #[serde(with = "crate::pairs")]
    pub by_kind: BTreeMap<Kind, u64>,
    /// Number of failures by time: number of the step, and failures in it, oldest first.
    steps: Vec<(u64, u64)>,
}

impl GroupFacts {
    /// Returns the number of failures in each ten minutes of the last hour, oldest first.
    pub fn last_hour(&self, now: Timestamp) -> [u64; STEPS] {
        let mut hour = [0; STEPS];
        let current = step(now);
        for (number, failures) in &self.steps {
            let age = current.saturating_sub(*number);
            let place = usize::try_from(age)
                .ok()
                .and_then(|age| (STEPS - 1).checked_sub(age));
            if let Some(place) = place {
                hour[place] += failures;
            }
        }
        hour
    }

    /// Returns the queues with the most failures, at most `limit`, each with its number.
    pub fn queues_with_most(&self, limit: usize) -> Vec<(&Queue, u64)> {
        most(&self.by_queue, limit)
    }

    /// Returns the kinds with the most failures, at most `limit`, each with its number.
    pub fn kinds_with_most(&self, limit: usize) -> Vec<(&Kind, u64)> {
        most(&self.by_kind, limit)
    }

    /// Returns what is known of the same group on two shards together.
    #[must_use]
    pub fn merged(self, other: Self) -> Self {
        let (mut newer, older) = if self.last_at >= other.last_at {
            (self, other)
        } else {
            (other, self)
        };
        newer.first_at = newer.first_at.min(older.first_at);
        for (queue, failures) in older.by_queue {
            *newer.by_queue.entry(queue).or_default() += failures;
        }
        for (kind, failures) in older.by_kind {
            *newer.by_kind.entry(kind).or_default() += failures;
        }
        newer
    }

    fn note(&mut self, record: &JobRecord, message: &str, at: Timestamp) {
        if self.by_kind.is_empty() || at < self.first_at {
            self.first_at = at;
        }
        if at >= self.last_at {
            self.last_at = at;
            let end = message.floor_char_boundary(MESSAGE_BYTES_MAX);
            message[..end].clone_into(&mut self.message);
        }
        count(&mut self.by_queue, &record.queue);
        count(&mut self.by_kind, &record.kind);
        let number = step(at);
        match self.steps.binary_search_by_key(&number, |step| step.0) {
            Ok(place) => self.steps[place].1 += 1,
            Err(place) => self.steps.insert(place, (number, 1)),
        }
        if self.steps.len() > STEPS {
            self.steps.remove(0);
        }
    }
}

/// The names with the highest numbers; those with the same number by name.
fn most<K: Ord>(counts: &BTreeMap<K, u64>, limit: usize) -> Vec<(&K, u64)> {
    let mut all: Vec<_> = counts.iter().map(|(name, count)| (name, *count)).collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    all.truncate(limit);
    all
}

fn step(at: Timestamp) -> u64 {
    at.0 / ganger_types::time::MICROS_PER_SECOND / STEP_SECONDS
}

fn count<K: Ord + Clone>(counts: &mut BTreeMap<K, u64>, key: &K) {
    if let Some(number) = counts.get_mut(key) {
        *number += 1;
    } else if counts.len() < NAMES_MAX {
        counts.insert(key.clone(), 1);
    }
}

/// The failure groups of a shard.
#[derive(Debug, Default)]
pub(crate) struct FailureTable {
    spaces: HashMap<Namespace, HashMap<Group, GroupFacts>>,
    len: usize,
    /// Time of the first failure since the start; `None` before it.
    began: Option<Timestamp>,
    /// Namespaces whose kept jobs have been read since the start.
    read: BTreeSet<Namespace>,
}

impl FailureTable {
    /// Records a job that has failed for good now.
    pub(crate) fn note(&mut self, record: &JobRecord) {
        if let Some(failure) = &record.failure {
            self.began.get_or_insert(failure.at);
        }
        self.add(record);
    }

    /// Whether the kept jobs of a namespace have not been read since the start.
    pub(crate) fn is_unread(&self, namespace: &Namespace) -> bool {
        !self.read.contains(namespace)
    }

    /// Adds the kept jobs of a namespace, as far as they were read. Those that have failed since the start are there
    /// already.
    pub(crate) fn add_kept<'a>(
        &mut self,
        namespace: &Namespace,
        records: impl Iterator<Item = &'a JobRecord>,
    ) {
        if !self.read.insert(namespace.clone()) {
            return;
        }
        let began = self.began;
        for record in records {
            let at = record.failure.as_ref().map(|failure| failure.at);
            if at.is_some_and(|at| began.is_none_or(|began| at < began)) {
                self.add(record);
            }
        }
    }

    fn add(&mut self, record: &JobRecord) {
        let failure = record.failure.as_ref();
        let Some(failure) = failure.filter(|_| record.state == JobState::Failed) else {
            return;
        };
        if !self.spaces.contains_key(&record.namespace) {
            self.spaces.insert(record.namespace.clone(), HashMap::new());
        }
        let Some(groups) = self.spaces.get_mut(&record.namespace) else {
            return;
        };
        if !groups.contains_key(&failure.group) {
            if self.len >= GROUPS_MAX {
                return;
            }
            self.len += 1;
            groups.insert(failure.group.clone(), GroupFacts::default());
        }
        if let Some(facts) = groups.get_mut(&failure.group) {
            facts.note(record, &failure.message, failure.at);
        }
    }

    /// What is known of a group; `None` if no failure of it is known.
    pub(crate) fn get(&self, namespace: &Namespace, group: &Group) -> Option<&GroupFacts> {
        self.spaces.get(namespace)?.get(group)
    }

    /// Forgets groups of a namespace that have no kept jobs any more.
    pub(crate) fn keep(&mut self, namespace: &Namespace, is_kept: impl Fn(&Group) -> bool) {
        if let Some(groups) = self.spaces.get_mut(namespace) {
            let before = groups.len();
            groups.retain(|group, _| is_kept(group));
            self.len -= before - groups.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::{Failure, JobId, JobKey};

    fn failed(key: u64, message: &str, at: u64) -> JobRecord {
        let mut record = JobRecord::new(
            JobKey(key),
            JobId::new(key.to_string()).expect("short"),
            Namespace::default(),
            Queue::from_static("mail"),
            Kind::from_static("send"),
        );
        record.state = JobState::Failed;
        record.failure = Some(Failure {
            group: Group::from_static("io"),
            message: message.to_owned(),
            at: Timestamp(at * 1_000_000),
            worker: None,
        });
        record
    }

    #[test]
    fn a_group_is_described_by_its_failures_in_any_order() {
        let mut table = FailureTable::default();
        for (key, message, at) in [(1, "first", 7_200), (2, "last", 8_000), (3, "old", 100)] {
            table.note(&failed(key, message, at));
        }
        let group = Group::from_static("io");
        let facts = table.get(&Namespace::default(), &group).expect("known");
        assert_eq!(facts.first_at, Timestamp(100_000_000));
        assert_eq!(facts.last_at, Timestamp(8_000_000_000));
        assert_eq!(facts.message, "last");
        assert_eq!(facts.by_queue.values().sum::<u64>(), 3);
        assert_eq!(
            facts.last_hour(Timestamp(8_400_000_000)),
            [0, 0, 0, 1, 1, 0]
        );
        table.keep(&Namespace::default(), |_| false);
        assert_eq!(table.get(&Namespace::default(), &group), None);
    }
}

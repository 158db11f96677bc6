//! What workers ask for and how their attempts end, since the start. It is beside the engine: nothing is decided by it,
//! and a restart begins it again.

use std::collections::HashMap;
use std::time::Duration;

use ganger_types::command::Lease;
use ganger_types::history::AttemptEnd;
use ganger_types::limits::{LEASE_FOR_DEFAULT, WORKERS_MAX};
use ganger_types::observed::{Asker, WorkerFacts};
use ganger_types::{Namespace, Queue, Timestamp, Worker};

/// Maximum number of workers that are named as those that ask a queue.
const ASKERS_MAX: usize = 100;
/// Queues of one worker that are remembered.
const QUEUES_MAX: usize = 100;
/// Bytes of the address and of the version that are remembered.
const TEXT_BYTES_MAX: usize = 120;

/// Full minutes over which the rate of a worker is taken, beside the current one.
const RATE_MINUTES: u64 = 5;
/// Minutes whose successes are counted.
const MINUTES: usize = 6;
/// Shortest time over which a rate is taken.
const RATE_OVER_MIN: Duration = Duration::from_secs(60);

/// What is known of the workers of a shard.
#[derive(Debug, Default)]
pub(crate) struct WorkerTable {
    spaces: HashMap<Namespace, HashMap<Worker, Known>>,
    len: usize,
}

/// What is known of one worker.
#[derive(Debug, Default)]
struct Known {
    facts: WorkerFacts,
    successes: Successes,
}

/// Number of attempts that succeeded in each of the last minutes.
#[derive(Debug, Default)]
struct Successes {
    /// The current minute, counted from the epoch.
    minute: u64,
    /// Counts by the remainder of the minute.
    counts: [u32; MINUTES],
}

impl WorkerTable {
    /// Records a request for jobs that waits at most `wait_for`.
    pub(crate) fn ask(&mut self, lease: &Lease, wait_for: Duration, now: Timestamp) {
        let Some(worker) = &lease.worker else {
            return;
        };
        let Some(known) = self.known(&lease.namespace, worker, now) else {
            return;
        };
        let facts = &mut known.facts;
        let named = lease.queues.iter().take(QUEUES_MAX).map(|take| &take.queue);
        if !facts.queues.iter().eq(named.clone()) {
            facts.queues = named.cloned().collect();
        }
        facts.slots = lease.jobs_max;
        facts.free_slots = lease.jobs_max;
        facts.asked_at = now;
        facts.waits_until = now.after(wait_for);
    }

    /// Records where a worker is and which program it is.
    pub(crate) fn introduce(
        &mut self,
        namespace: &Namespace,
        worker: &Worker,
        (address, version): (&str, &str),
        now: Timestamp,
    ) {
        if let Some(Known { facts, .. }) = self.known(namespace, worker, now) {
            for (known, given) in [(&mut facts.address, address), (&mut facts.version, version)] {
                let given = &given[..given.floor_char_boundary(TEXT_BYTES_MAX)];
                if known != given {
                    given.clone_into(known);
                }
            }
        }
    }

    /// Counts a job that was granted to a worker.
    pub(crate) fn grant(&mut self, namespace: &Namespace, worker: &Worker) {
        if let Some(known) = self.find(namespace, worker) {
            known.facts.free_slots = known.facts.free_slots.saturating_sub(1);
        }
    }

    /// Counts the end of an attempt at the time `now`.
    pub(crate) fn end(
        &mut self,
        namespace: &Namespace,
        worker: &Worker,
        end: &AttemptEnd,
        now: Timestamp,
    ) {
        let Some(Known { facts, successes }) = self.find(namespace, worker) else {
            return;
        };
        match end {
            AttemptEnd::Succeeded => {
                facts.completed += 1;
                successes.add(now);
            }
            AttemptEnd::Failed { .. } | AttemptEnd::TimedOut => facts.failed += 1,
            AttemptEnd::Expired => facts.lost += 1,
            AttemptEnd::Released { .. } | AttemptEnd::Cancelled => {}
        }
    }

    fn find(&mut self, namespace: &Namespace, worker: &Worker) -> Option<&mut Known> {
        self.spaces.get_mut(namespace)?.get_mut(worker)
    }

    /// What is known of a worker at the time `now`; `None` if it has not asked since the start.
    pub(crate) fn get(
        &self,
        namespace: &Namespace,
        worker: &Worker,
        now: Timestamp,
    ) -> Option<WorkerFacts> {
        let known = self.spaces.get(namespace)?.get(worker)?;
        let rate = known.successes.per_minute_in_tenths(known.facts.since, now);
        Some(WorkerFacts {
            completed_per_minute_in_tenths: rate,
            ..known.facts.clone()
        })
    }

    /// The workers that ask a queue for jobs, or did within the last minute: name, slots, and time of the last request.
    pub(crate) fn askers(
        &self,
        namespace: &Namespace,
        queue: &Queue,
        now: Timestamp,
    ) -> Vec<Asker> {
        let workers = self.spaces.get(namespace).into_iter().flatten();
        let asks = |facts: &WorkerFacts| {
            now.since(facts.waits_until) <= LEASE_FOR_DEFAULT && facts.queues.contains(queue)
        };
        let workers = workers.map(|(worker, known)| (worker, &known.facts));
        let asking = workers.filter(|(_, facts)| asks(facts)).take(ASKERS_MAX);
        let mut asking: Vec<_> = asking
            .map(|(worker, facts)| Asker {
                worker: worker.clone(),
                slots: facts.slots,
                asked_at: facts.asked_at,
            })
            .collect();
        asking.sort_by(|a, b| a.worker.cmp(&b.worker));
        asking
    }

    /// What is known of a worker, which is made if it is missing; `None` if too many others have asked in the last
    /// minute.
    fn known(
        &mut self,
        namespace: &Namespace,
        worker: &Worker,
        now: Timestamp,
    ) -> Option<&mut Known> {
        let is_known = self.find(namespace, worker).is_some();
        if !is_known {
            if self.len >= WORKERS_MAX {
                self.forget_silent(now);
            }
            if self.len >= WORKERS_MAX {
                return None;
            }
            self.len += 1;
            if !self.spaces.contains_key(namespace) {
                self.spaces.insert(namespace.clone(), HashMap::new());
            }
            let mut known = Known::default();
            known.facts.since = now;
            let space = self.spaces.get_mut(namespace)?;
            space.insert(worker.clone(), known);
        }
        self.find(namespace, worker)
    }

    /// Forgets the workers that have not asked for a minute.
    fn forget_silent(&mut self, now: Timestamp) {
        for workers in self.spaces.values_mut() {
            workers.retain(|_, known| now.since(known.facts.waits_until) <= LEASE_FOR_DEFAULT);
        }
        self.spaces.retain(|_, workers| !workers.is_empty());
        self.len = self.spaces.values().map(HashMap::len).sum();
    }
}

impl Successes {
    fn add(&mut self, now: Timestamp) {
        let minute = minute_of(now);
        if minute > self.minute {
            for passed in self.minute + 1..=minute.min(self.minute + RATE_MINUTES + 1) {
                self.counts[place(passed)] = 0;
            }
            self.minute = minute;
        }
        // A clock that went back counts for the newest minute.
        self.counts[place(self.minute)] += 1;
    }

    /// Tenths of an attempt per minute, over five full minutes and the current one, or since the time `since`.
    fn per_minute_in_tenths(&self, since: Timestamp, now: Timestamp) -> u64 {
        let minute = minute_of(now).max(self.minute);
        let first = minute.saturating_sub(RATE_MINUTES);
        let counted = (first..=self.minute).map(|minute| u128::from(self.counts[place(minute)]));
        let from = Timestamp(first * MINUTE_MICROS).max(since);
        let over = now.since(from).max(RATE_OVER_MIN).as_millis();
        u64::try_from(counted.sum::<u128>() * 600_000 / over).unwrap_or(u64::MAX)
    }
}

/// Microseconds of a minute.
const MINUTE_MICROS: u64 = 60 * ganger_types::time::MICROS_PER_SECOND;

fn minute_of(time: Timestamp) -> u64 {
    time.0 / MINUTE_MICROS
}

/// Place of a minute among the counts.
fn place(minute: u64) -> usize {
    usize::try_from(minute % (RATE_MINUTES + 1)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::command::{TakeFrom, TakeMode};

    fn lease(worker: &str, queue: &'static str) -> Lease {
        Lease {
            namespace: Namespace::default(),
            queues: vec![TakeFrom {
                queue: Queue::from_static(queue),
                weight: 1,
            }],
            mode: TakeMode::Ordered,
            worker: Some(Worker::new(worker).expect("short")),
            jobs_max: 4,
            lease_for: None,
            request: None,
        }
    }

    fn second(number: u64) -> Timestamp {
        Timestamp(number * 1_000_000)
    }

    #[test]
    fn a_worker_asks_a_queue_while_its_request_waits_and_a_minute_longer() {
        let mut table = WorkerTable::default();
        table.ask(&lease("w1", "mail"), Duration::from_secs(300), second(0));
        table.ask(&lease("w2", "images"), Duration::ZERO, second(0));
        let askers = |table: &WorkerTable, queue, at| {
            let found = table.askers(&Namespace::default(), &Queue::from_static(queue), at);
            found.len()
        };
        assert_eq!(askers(&table, "mail", second(350)), 1);
        assert_eq!(askers(&table, "mail", second(361)), 0);
        assert_eq!(askers(&table, "images", second(60)), 1);
        assert_eq!(askers(&table, "images", second(61)), 0);
    }

    #[test]
    fn ends_are_counted_for_workers_that_have_asked() {
        let mut table = WorkerTable::default();
        let (space, worker) = (Namespace::default(), Worker::from_static("w1"));
        table.end(&space, &worker, &AttemptEnd::Succeeded, second(1));
        assert_eq!(table.get(&space, &worker, second(1)), None);
        table.ask(&lease("w1", "mail"), Duration::ZERO, second(5));
        table.introduce(&space, &worker, ("10.0.0.7:41000", "ganger/9"), second(6));
        for end in [
            AttemptEnd::Succeeded,
            AttemptEnd::Expired,
            AttemptEnd::TimedOut,
        ] {
            table.end(&space, &worker, &end, second(7));
        }
        let facts = table.get(&space, &worker, second(8)).expect("it has asked");
        assert_eq!((facts.completed, facts.failed, facts.lost), (1, 1, 1));
        assert_eq!((facts.slots, facts.since), (4, second(5)));
        assert_eq!(facts.version, "ganger/9");
    }

    #[test]
    fn granted_jobs_take_slots_until_the_next_request() {
        let mut table = WorkerTable::default();
        let (space, worker) = (Namespace::default(), Worker::from_static("w1"));
        table.grant(&space, &worker);
        table.ask(&lease("w1", "mail"), Duration::ZERO, second(0));
        let free = |table: &WorkerTable| {
            table
                .get(&space, &worker, second(0))
                .map(|it| it.free_slots)
        };
        assert_eq!(free(&table), Some(4));
        for _ in 0..3 {
            table.grant(&space, &worker);
        }
        assert_eq!(free(&table), Some(1));
        for _ in 0..3 {
            table.grant(&space, &worker);
        }
        assert_eq!(free(&table), Some(0));
        table.ask(&lease("w1", "mail"), Duration::ZERO, second(1));
        assert_eq!(free(&table), Some(4));
    }

    #[test]
    fn the_rate_of_a_worker_is_that_of_the_last_minutes() {
        let mut table = WorkerTable::default();
        let (space, worker) = (Namespace::default(), Worker::from_static("w1"));
        table.ask(&lease("w1", "mail"), Duration::ZERO, second(6_000));
        let rate = |table: &WorkerTable, at| {
            let facts = table
                .get(&space, &worker, second(at))
                .expect("it has asked");
            facts.completed_per_minute_in_tenths
        };
        for number in 0..6 {
            table.end(
                &space,
                &worker,
                &AttemptEnd::Succeeded,
                second(6_000 + number),
            );
        }
        assert_eq!(rate(&table, 6_010), 60, "at least a minute is counted");
        assert_eq!(rate(&table, 6_120), 30);
        assert_eq!(rate(&table, 6_300), 12);
        assert_eq!(rate(&table, 6_360), 0, "the minute is no longer counted");
        table.end(&space, &worker, &AttemptEnd::Succeeded, second(6_360));
        assert_eq!(rate(&table, 6_360), 2);
        table.end(&space, &worker, &AttemptEnd::Succeeded, second(60_000));
        assert_eq!(rate(&table, 60_000), 2, "older minutes are gone");
    }
}

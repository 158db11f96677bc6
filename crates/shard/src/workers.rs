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

/// What is known of the workers of a shard.
#[derive(Debug, Default)]
pub(crate) struct WorkerTable {
    spaces: HashMap<Namespace, HashMap<Worker, WorkerFacts>>,
    len: usize,
}

impl WorkerTable {
    /// Records a request for jobs that waits at most `wait_for`.
    pub(crate) fn ask(&mut self, lease: &Lease, wait_for: Duration, now: Timestamp) {
        let Some(worker) = &lease.worker else {
            return;
        };
        let Some(facts) = self.facts(&lease.namespace, worker, now) else {
            return;
        };
        let named = lease.queues.iter().take(QUEUES_MAX).map(|take| &take.queue);
        if !facts.queues.iter().eq(named.clone()) {
            facts.queues = named.cloned().collect();
        }
        facts.slots = lease.jobs_max;
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
        if let Some(facts) = self.facts(namespace, worker, now) {
            for (known, given) in [(&mut facts.address, address), (&mut facts.version, version)] {
                let given = &given[..given.floor_char_boundary(TEXT_BYTES_MAX)];
                if known != given {
                    given.clone_into(known);
                }
            }
        }
    }

    /// Counts the end of an attempt.
    pub(crate) fn end(&mut self, namespace: &Namespace, worker: &Worker, end: &AttemptEnd) {
        let space = self.spaces.get_mut(namespace);
        let Some(facts) = space.and_then(|workers| workers.get_mut(worker)) else {
            return;
        };
        match end {
            AttemptEnd::Succeeded => facts.completed += 1,
            AttemptEnd::Failed { .. } | AttemptEnd::TimedOut => facts.failed += 1,
            AttemptEnd::Expired => facts.lost += 1,
            AttemptEnd::Released { .. } | AttemptEnd::Cancelled => {}
        }
    }

    /// What is known of a worker; `None` if it has not asked since the start.
    pub(crate) fn get(&self, namespace: &Namespace, worker: &Worker) -> Option<&WorkerFacts> {
        self.spaces.get(namespace)?.get(worker)
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

    /// The facts of a worker, which are made if they are missing; `None` if too many others have asked in the last
    /// minute.
    fn facts(
        &mut self,
        namespace: &Namespace,
        worker: &Worker,
        now: Timestamp,
    ) -> Option<&mut WorkerFacts> {
        let is_known = self.get(namespace, worker).is_some();
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
            let facts = WorkerFacts {
                since: now,
                ..WorkerFacts::default()
            };
            let space = self.spaces.get_mut(namespace)?;
            space.insert(worker.clone(), facts);
        }
        self.spaces.get_mut(namespace)?.get_mut(worker)
    }

    /// Forgets the workers that have not asked for a minute.
    fn forget_silent(&mut self, now: Timestamp) {
        for workers in self.spaces.values_mut() {
            workers.retain(|_, facts| now.since(facts.waits_until) <= LEASE_FOR_DEFAULT);
        }
        self.spaces.retain(|_, workers| !workers.is_empty());
        self.len = self.spaces.values().map(HashMap::len).sum();
    }
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
        table.end(&space, &worker, &AttemptEnd::Succeeded);
        assert_eq!(table.get(&space, &worker), None);
        table.ask(&lease("w1", "mail"), Duration::ZERO, second(5));
        table.introduce(&space, &worker, ("10.0.0.7:41000", "ganger/9"), second(6));
        for end in [
            AttemptEnd::Succeeded,
            AttemptEnd::Expired,
            AttemptEnd::TimedOut,
        ] {
            table.end(&space, &worker, &end);
        }
        let facts = table.get(&space, &worker).expect("it has asked");
        assert_eq!((facts.completed, facts.failed, facts.lost), (1, 1, 1));
        assert_eq!((facts.slots, facts.since), (4, second(5)));
        assert_eq!(facts.version, "ganger/9");
    }
}

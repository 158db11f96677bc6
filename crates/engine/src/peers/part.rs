//! Submissions over several shards: each shard holds a part until the decider has decided (`rel G8`).
//!
//! The submitter reserves numbers on every shard, prepares the decider's part first and then the others, and lets the
//! decider decide. If the submitter dies, the decider aborts the submission after a while, and a shard that holds an
//! undecided part asks the decider.

use crate::check::at_most;
use std::time::Duration;

use ganger_types::command::{Decide, Dependency, Enqueue, Reserve};
use ganger_types::limits::GRAPH_JOBS_MAX;
use ganger_types::reply::Enqueued;
use ganger_types::{
    Answer, Change, Due, Graph, IdempotencyKey, JobId, JobKey, Message, Namespace, Now, Part,
    PartRecord, Rejection, Reply,
};

use crate::command::{Batch, Fingerprint, edges_of};
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::state::{SpaceIndex, Timer};
use crate::turn::Turn;

/// Time for which an idempotency key is kept, as for other submissions.
const IDEMPOTENCY_KEY_FOR: Duration = Duration::from_secs(86_400);
/// Time after which the decider aborts a submission whose submitter has died. Its other parts have to be durable within
/// that, and until then nobody else can use its job ids.
const UNDECIDED_FOR: Duration = Duration::from_secs(30);
/// Interval at which a shard with an undecided part asks the decider.
const ASK_EVERY: Duration = Duration::from_secs(30);
const ASK_EVERY_MAX: Duration = Duration::from_secs(300);
/// Delay before the first question to the decider.
const ASK_AFTER: Duration = Duration::from_secs(2);
/// Minimum time for which a committed part is kept, so that its graph can be cancelled on all shards.
const REMEMBERED_FOR: Duration = Duration::from_secs(7 * 86_400);
/// Maximum number of open reservations. Beyond it the oldest is dropped, and its submitter must try again.
const RESERVATIONS_MAX: usize = 100_000;

impl Engine {
    /// Reserves numbers. Nothing is stored: after a restart, the use of an earlier reservation is refused.
    pub(crate) fn reserve(&mut self, cmd: Reserve) -> Answer {
        at_most(
            "the number of jobs of a submission",
            u64::from(cmd.jobs),
            u64::try_from(GRAPH_JOBS_MAX).unwrap_or(u64::MAX),
        )?;
        if cmd.jobs == 0 {
            return Err(Rejection::NothingSubmitted);
        }
        let first = self.meta.next_key;
        self.meta.next_key = JobKey(first.0 + u64::from(cmd.jobs));
        self.peers.reserved.insert(first, cmd.jobs);
        if self.peers.reserved.len() > RESERVATIONS_MAX {
            self.peers.reserved.pop_first();
        }
        Ok(Reply::Reserved {
            first,
            id_tag: self.random.id_tag(),
        })
    }

    pub(crate) fn prepare(&mut self, mut part: Part, turn: &mut Turn<'_>) -> Answer {
        let name = (part.record.namespace.clone(), part.record.graph.clone());
        if self.peers.parts.contains_key(&name) {
            // A repeat: the numbers were reserved for this part only.
            return Ok(Reply::Done);
        }
        let count = u32::try_from(part.jobs.len()).unwrap_or(u32::MAX);
        let first = part.record.first;
        let is_reserved = self.peers.reserved.get(&first) == Some(&count)
            && part.record.id_tag == self.random.id_tag()
            && part.record.count == count;
        if !is_reserved {
            return Err(Rejection::NotReserved { first });
        }
        if part
            .dependents
            .iter()
            .any(|(_, waits)| waits.shard == self.shard)
        {
            let shard = self.shard.clone();
            return Err(Rejection::OwnShard { shard });
        }
        self.check_idempotency_key(turn.now, &part.record)?;
        let prints = prints_of(&part);
        let cmd = as_submission(&mut part);
        let outside = self.check_part(turn.now, &cmd, &prints, turn.known);
        part.jobs = cmd.jobs;
        let outside = outside?;

        self.peers.reserved.remove(&first);
        part.record.outside = outside;
        let numbered = part.jobs.iter().zip(first.0..);
        part.record.client_ids = numbered
            .filter_map(|(job, key)| Some((JobKey(key), job.id.clone()?)))
            .collect();
        part.record.prepared_at = turn.now.wall;
        part.record.is_committed = false;
        part.record.cancelled = None;
        let record = part.record.clone();
        turn.out
            .changes
            .push(Change::PutPart(Box::new(record.clone())));
        turn.out.changes.push(Change::PutPartJobs(Box::new(part)));
        self.add_part(turn.now, record);
        Ok(Reply::Done)
    }

    /// Refuses a second submission with the same key. This is rare, because the submitter has asked before.
    fn check_idempotency_key(&self, now: Now, record: &PartRecord) -> Result<(), Rejection> {
        let Some(answer) = &record.answer else {
            return Ok(());
        };
        let space = self.find_space(&record.namespace);
        if space.is_some_and(|space| {
            self.spaces[space]
                .idempotency_records
                .contains_key(&answer.key)
        }) {
            return Err(Rejection::IdempotencyConflict);
        }
        match self.part_with_key(now, &record.namespace, &answer.key) {
            None => Ok(()),
            Some(earlier) => {
                let print = earlier.answer.as_ref().map(|answer| answer.fingerprint);
                Err(if print == Some(answer.fingerprint) {
                    Rejection::IdempotencyKeyBusy
                } else {
                    Rejection::IdempotencyConflict
                })
            }
        }
    }

    /// The submission over several shards with an idempotency key that this shard decides or has decided.
    pub(crate) fn part_with_key(
        &self,
        now: Now,
        namespace: &Namespace,
        key: &IdempotencyKey,
    ) -> Option<&PartRecord> {
        let space = self.find_space(namespace)?;
        let graph = self.spaces[space].part_idempotency_keys.get(key)?;
        let part = self.peers.parts.get(&(namespace.clone(), graph.clone()))?;
        (now.wall < part.prepared_at.after(IDEMPOTENCY_KEY_FOR)).then_some(part)
    }

    /// Checks everything that enqueueing would check, and refuses what only one shard can do. Returns the jobs
    /// outside the submission that the part waits for.
    fn check_part(
        &self,
        now: Now,
        cmd: &Enqueue,
        prints: &[u64],
        known: &FinishedIndex,
    ) -> Result<Vec<(JobKey, JobId)>, Rejection> {
        if self.runs_on_callers_clock(&cmd.namespace) {
            return Err(Rejection::OneShardOnly {
                index: 0,
                what: "a namespace on its callers' clocks",
            });
        }
        if let Some(index) = cmd.jobs.iter().position(|job| job.unique.is_some()) {
            return Err(Rejection::OneShardOnly {
                index,
                what: "a unique key",
            });
        }
        for (job, print) in cmd.jobs.iter().zip(prints) {
            // The submitter has asked before, and has omitted jobs that existed.
            if let Some(id) = &job.id
                && self.same_id(&cmd.namespace, id, *print, known)?.is_some()
            {
                return Err(Rejection::IdBusy { job: id.clone() });
            }
        }
        self.check_submission(now, cmd, known)?;
        let mut outside = std::collections::BTreeMap::new();
        for edge in cmd.jobs.iter().flat_map(edges_of) {
            if let Dependency::Job(id) = &edge.dependency {
                let live = self.find_job(&cmd.namespace, id);
                let key = live.or_else(|| known.find(&cmd.namespace, id).map(|record| record.key));
                outside.insert(key.expect("dependencies were checked"), id.clone());
            }
        }
        Ok(outside.into_iter().collect())
    }

    /// Adds a new or loaded part.
    pub(crate) fn add_part(&mut self, now: Now, record: PartRecord) {
        let space = self.make_space(&record.namespace);
        let timer = Timer::Part(record.graph.clone());
        let state = &mut self.spaces[space];
        let due = if record.is_committed {
            Due::Wall(record.prepared_at.after(REMEMBERED_FOR))
        } else if record.decider == self.shard {
            Due::Elapsed(now.elapsed.after(UNDECIDED_FOR))
        } else {
            Due::Elapsed(now.elapsed.after(ASK_AFTER))
        };
        state.timers.arm(due, timer);
        if !record.is_committed {
            for (key, id) in &record.client_ids {
                state.promised.insert(id.clone(), *key);
            }
        }
        if let Some(answer) = &record.answer {
            let graph = record.graph.clone();
            state
                .part_idempotency_keys
                .insert(answer.key.clone(), graph);
        }
        let name = (record.namespace.clone(), record.graph.clone());
        if !record.is_committed {
            self.peers.undecided.insert(record.first, name.clone());
        }
        self.peers.part_due.insert(name.clone(), due);
        self.peers.parts.insert(name, record);
    }

    /// Decides a submission, on its decider. A decision may be repeated but not changed.
    pub(crate) fn decide(&mut self, cmd: &Decide, turn: &mut Turn<'_>) -> Answer {
        let name = (cmd.namespace.clone(), cmd.graph.clone());
        let refused = || Rejection::NotPrepared {
            graph: cmd.graph.clone(),
        };
        let Some(record) = self.peers.parts.get(&name) else {
            // The submission was aborted or never prepared: nothing of it is stored.
            return if cmd.is_committed {
                Err(refused())
            } else {
                Ok(Reply::Done)
            };
        };
        if record.decider != self.shard || (record.is_committed && !cmd.is_committed) {
            return Err(refused());
        }
        if record.is_committed {
            return Ok(Reply::Done);
        }
        self.settle(&name, cmd.is_committed, turn);
        Ok(Reply::Done)
    }

    /// Applies a decision on the decider and sends it to the other shards.
    fn settle(&mut self, name: &(Namespace, Graph), is_committed: bool, turn: &mut Turn<'_>) {
        let others: Vec<_> = self.peers.parts[name]
            .shards
            .iter()
            .filter(|shard| **shard != self.shard)
            .cloned()
            .collect();
        for shard in others {
            let message = Message::Decided {
                namespace: name.0.clone(),
                graph: name.1.clone(),
                is_committed,
            };
            self.post(&shard, message, turn);
        }
        if is_committed {
            self.start_part(name, turn);
        } else {
            self.drop_part(name, turn);
        }
    }

    /// Enqueues the jobs of a prepared part. `known` has them, and the ended jobs outside that they wait for.
    pub(super) fn start_part(&mut self, name: &(Namespace, Graph), turn: &mut Turn<'_>) {
        let mut part = turn
            .known
            .part(name)
            .expect("the host reads the part that a command starts")
            .clone();
        let space = self.undecide(name);
        let (first, id_tag) = (part.record.first, part.record.id_tag);
        let answers: Vec<Enqueued> = part
            .jobs
            .iter()
            .zip(first.0..)
            .map(|(job, key)| Enqueued {
                key: JobKey(key),
                id: job
                    .id
                    .clone()
                    .unwrap_or_else(|| JobId::made(JobKey(key), id_tag)),
                existed: false,
            })
            .collect();
        let prints: Vec<Option<u64>> = prints_of(&part).into_iter().map(Some).collect();
        for (place, dependent) in std::mem::take(&mut part.dependents) {
            self.add_dependent(JobKey(first.0 + u64::from(place)), dependent, turn);
        }
        let graph = Some(name.1.clone());
        let jobs = part.jobs;
        let batch = Batch {
            space,
            graph,
            id_tag,
        };
        self.write_jobs(&batch, jobs, (&answers, &prints), turn);
        turn.out
            .changes
            .push(Change::RemovePartJobs(name.0.clone(), name.1.clone()));

        let record = self
            .peers
            .parts
            .get_mut(name)
            .expect("undecided parts are known");
        record.is_committed = true;
        record.client_ids = Vec::new();
        record.outside = Vec::new();
        let cancelled = record.cancelled.take();
        let record = record.clone();
        let decides = record.decider == self.shard;
        let due = Due::Wall(turn.now.wall.after(REMEMBERED_FOR));
        self.arm_part(space, name, due);
        turn.out.changes.push(Change::PutPart(Box::new(record)));
        if let Some(reason) = cancelled {
            self.propagate_endings(turn);
            // Shards that got the cancellation before their part had nothing to cancel then.
            if decides {
                self.cancel_elsewhere(name, &reason, turn);
            }
            self.cancel_graph(name, &reason, turn);
        }
    }

    /// Removes the part of an aborted submission.
    pub(super) fn drop_part(&mut self, name: &(Namespace, Graph), turn: &mut Turn<'_>) {
        self.undecide(name);
        let Some(record) = self.forget_part(name, turn) else {
            return;
        };
        let last = JobKey(record.first.0 + u64::from(record.count));
        let asked: Vec<JobKey> = self
            .peers
            .down
            .range(record.first..last)
            .map(|(key, _)| *key)
            .collect();
        for key in asked {
            let given = record.client_ids.iter().find(|(given, _)| *given == key);
            let id = given.map_or_else(|| JobId::made(key, record.id_tag), |(_, id)| id.clone());
            self.reject_follows(&name.0, key, &id, turn);
        }
    }

    fn forget_part(
        &mut self,
        name: &(Namespace, Graph),
        turn: &mut Turn<'_>,
    ) -> Option<PartRecord> {
        let record = self.peers.parts.remove(name)?;
        self.peers.part_due.remove(name);
        let space = self.make_space(&record.namespace);
        if let Some(answer) = &record.answer {
            let idempotency_records = &mut self.spaces[space].part_idempotency_keys;
            if idempotency_records.get(&answer.key) == Some(&record.graph) {
                idempotency_records.remove(&answer.key);
            }
        }
        let (namespace, graph) = name.clone();
        turn.out.changes.push(Change::RemovePart(namespace, graph));
        Some(record)
    }

    /// Removes a part from the undecided ones, with its timer.
    fn undecide(&mut self, name: &(Namespace, Graph)) -> SpaceIndex {
        let record = self.peers.parts[name].clone();
        self.peers.undecided.remove(&record.first);
        let space = self.make_space(&record.namespace);
        for (_, id) in &record.client_ids {
            self.spaces[space].promised.remove(id);
        }
        if let Some(due) = self.peers.part_due.get(name) {
            self.spaces[space]
                .timers
                .disarm_if_armed(*due, Timer::Part(name.1.clone()));
        }
        space
    }

    fn arm_part(&mut self, space: SpaceIndex, name: &(Namespace, Graph), due: Due) {
        self.spaces[space]
            .timers
            .arm(due, Timer::Part(name.1.clone()));
        self.peers.part_due.insert(name.clone(), due);
    }

    /// Handles the timer of a part: the decider aborts an undecided one, another shard asks the decider, and a
    /// committed one is removed.
    pub(crate) fn part_fell_due(&mut self, space: SpaceIndex, graph: Graph, turn: &mut Turn<'_>) {
        let name = (self.spaces[space].name.clone(), graph);
        let Some(record) = self.peers.parts.get(&name).cloned() else {
            return;
        };
        if record.is_committed {
            if self.spaces[space].graphs.contains_key(&name.1) {
                self.arm_part(space, &name, Due::Wall(turn.now.wall.after(REMEMBERED_FOR)));
                return;
            }
            self.forget_part(&name, turn);
        } else if record.decider == self.shard {
            self.settle(&name, false, turn);
        } else {
            let message = Message::Inquire {
                namespace: name.0.clone(),
                graph: name.1.clone(),
            };
            self.post_once(&record.decider, message, turn);
            let waited = turn.now.wall.since(record.prepared_at);
            let pause = (waited / 4).clamp(ASK_EVERY, ASK_EVERY_MAX);
            self.arm_part(space, &name, Due::Elapsed(turn.now.elapsed.after(pause)));
        }
    }

    /// Parts that are not decided, in order of their numbers.
    pub(crate) fn undecided_parts(&self) -> Vec<PartRecord> {
        let names = self.peers.undecided.values();
        names.map(|name| self.peers.parts[name].clone()).collect()
    }

    /// Whether an undecided submission waits for this job, or has messages for it.
    pub(crate) fn is_needed_by_part(&self, key: JobKey) -> bool {
        self.peers.undecided.values().any(|name| {
            let outside = &self.peers.parts[name].outside;
            outside.binary_search_by_key(&key, |(key, _)| *key).is_ok()
        })
    }

    /// The undecided part that has this number.
    pub(super) fn undecided_with(&self, key: JobKey) -> Option<&(Namespace, Graph)> {
        let (_, name) = self.peers.undecided.range(..=key).next_back()?;
        let record = &self.peers.parts[name];
        (key.0 < record.first.0 + u64::from(record.count)).then_some(name)
    }

    /// The number of a job of an undecided part, by its id.
    pub(crate) fn undecided_job(&self, namespace: &Namespace, id: &JobId) -> Option<JobKey> {
        let space = self.find_space(namespace)?;
        if let Some(key) = self.spaces[space].promised.get(id) {
            return Some(*key);
        }
        let (key, tag) = id.parts()?;
        let name = self.undecided_with(key)?;
        (self.peers.parts[name].id_tag == tag && name.0 == *namespace).then_some(key)
    }
}

/// The part's jobs as a submission, for the shared checks.
fn as_submission(part: &mut Part) -> Enqueue {
    Enqueue {
        namespace: part.record.namespace.clone(),
        jobs: std::mem::take(&mut part.jobs),
        idempotency_key: None,
        graph: true,
    }
}

/// The fingerprint of each job, for repeats under its id; 0 for jobs without an id of the client.
fn prints_of(part: &Part) -> Vec<u64> {
    let jobs = part.jobs.iter().enumerate();
    jobs.map(|(place, job)| match (&job.id, part.prints.get(place)) {
        (None, _) => 0,
        (Some(_), Some(print)) => *print,
        (Some(_), None) => Fingerprint::of_job(job),
    })
    .collect()
}

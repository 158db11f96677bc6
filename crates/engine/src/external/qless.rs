//! qless: a separate state machine in each namespace, on the clocks of its callers.
//!
//! This module passes calls to it, writes its rows once per turn, and loads them after a start. Listings show its
//! jobs among the engine's (`as_job`, `as_queue`, `explain`), but they have rows of their own, and no timer of the
//! engine acts on them.

mod again;
mod as_job;
mod as_queue;
mod cancel;
mod explain;
mod lease;
mod list;
mod moves;

pub(crate) use as_job::state as job_state;

use std::collections::{BTreeMap, BTreeSet};

use ganger_qless::Qless;
use ganger_types::import::{ImportOutcome, QlessSource};
use ganger_types::query::JobQuery;
use ganger_types::reply::{ExternalJobView, QueueView};
use ganger_types::why::Explanation;
use ganger_types::{
    Bytes, Change, Elapsed, ExternalChange, ExternalJob, ExternalRow, Group, Happening, JobId,
    JobState, Namespace, Now, QlessAnswer, QlessCall, QlessMessage, QlessRow, Queue, Timestamp,
};

use super::{ExternalJobScan, ExternalSystem, ScanLimits, short};
use crate::Effects;

/// The qless state of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct QlessSpaces {
    spaces: BTreeMap<Namespace, Qless>,
    /// Namespaces that were called in this turn; only their rows may have changed.
    called: BTreeSet<Namespace>,
    /// Queues that got ready jobs, to wake waiting workers.
    woken: BTreeSet<(Namespace, Bytes)>,
    /// Events about jobs since the last [`QlessSpaces::take_happened`], in order.
    happened: Vec<(Namespace, Happening)>,
}

impl QlessSpaces {
    /// Applies a call. It uses the time in the call; the server's time only matters for the expiry of throttles.
    pub(crate) fn call(&mut self, at: Elapsed, call: QlessCall, out: &mut Effects) -> QlessAnswer {
        let QlessCall { namespace, request } = call;
        self.change(&namespace, out, |qless, messages| {
            qless.call(at, request, messages)
        })
    }

    /// Imports a record from Redis.
    pub(crate) fn import(
        &mut self,
        at: Elapsed,
        namespace: &Namespace,
        source: QlessSource,
        out: &mut Effects,
    ) -> ImportOutcome {
        self.change(namespace, out, |qless, _| qless.import(at, source))
    }

    /// Lets `act` change the state of a namespace, and emits its messages.
    pub(crate) fn change<T>(
        &mut self,
        namespace: &Namespace,
        out: &mut Effects,
        act: impl FnOnce(&mut Qless, &mut Vec<QlessMessage>) -> T,
    ) -> T {
        if !self.called.contains(namespace) {
            self.called.insert(namespace.clone());
        }
        let qless = self.spaces.entry(namespace.clone()).or_default();
        let mut messages = Vec::new();
        let answer = act(qless, &mut messages);
        moves::take(qless, |happening| {
            self.happened.push((namespace.clone(), happening));
        });
        for queue in qless.take_grown() {
            self.woken.insert((namespace.clone(), queue));
        }
        let from = |message| (namespace.clone(), message);
        out.messages.extend(messages.into_iter().map(from));
        answer
    }

    /// Queues that got ready jobs since the last call, as far as their names may be those of ours.
    pub(crate) fn take_woken(&mut self) -> Vec<(Namespace, Queue)> {
        let woken = std::mem::take(&mut self.woken).into_iter();
        let named = |(namespace, queue)| Some((namespace, Queue::new(queue).ok()?));
        woken.filter_map(named).collect()
    }

    /// Events about jobs since the last call, in order.
    pub(crate) fn take_happened(&mut self) -> Vec<(Namespace, Happening)> {
        std::mem::take(&mut self.happened)
    }

    /// Whether a pop of the queue would find a ready job.
    pub(crate) fn has_ready(&self, namespace: &Namespace, queue: &Queue) -> bool {
        let qless = self.space(namespace);
        qless.is_some_and(|qless| qless.has_ready(queue.as_bytes()))
    }

    /// Whether the end of the turn may have rows to write.
    pub(crate) fn was_called(&self) -> bool {
        !self.called.is_empty()
    }

    /// Writes the rows that changed during the turn, each once.
    pub(crate) fn end_turn(&mut self, out: &mut Effects) {
        for namespace in std::mem::take(&mut self.called) {
            let Some(qless) = self.spaces.get_mut(&namespace) else {
                continue;
            };
            for (key, row) in qless.take_changed() {
                let namespace = namespace.clone();
                out.changes.push(match row {
                    Some(row) => {
                        Change::External(ExternalChange::PutQless(namespace, Box::new(row)))
                    }
                    None => Change::External(ExternalChange::RemoveQless(namespace, key)),
                });
            }
        }
    }

    /// Whether a job with this id exists.
    pub(crate) fn has_job(&self, namespace: &Namespace, id: &JobId) -> bool {
        self.state(namespace, id).is_some()
    }

    /// The job of a row, shown as a job of the engine; `None` if the row is not a job of qless.
    pub(crate) fn job_of_row(&self, row: &ExternalRow) -> Option<ExternalJobView> {
        let ExternalRow::Qless(namespace, row) = row else {
            return None;
        };
        let QlessRow::Job(job) = &**row else {
            return None;
        };
        let id = JobId::new(&job.jid).ok()?;
        as_job::view_of(self.space(namespace)?, namespace, &id, job)
    }

    /// The state of a namespace, if it has any.
    pub(crate) fn space(&self, namespace: &Namespace) -> Option<&Qless> {
        self.spaces.get(namespace)
    }

    /// The failure groups with the number of jobs in each; long names are cut, as in the jobs.
    pub(crate) fn failure_groups(&self, namespace: &Namespace) -> Vec<(Group, u64)> {
        let groups = self
            .space(namespace)
            .into_iter()
            .flat_map(Qless::failure_sizes);
        let named = groups.filter_map(|(group, count)| {
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            Some((short(group, Group::new)?, count))
        });
        named.collect()
    }
}

impl ExternalSystem for QlessSpaces {
    fn load(&mut self, row: ExternalRow) {
        if let ExternalRow::Qless(namespace, row) = row {
            self.spaces.entry(namespace).or_default().load(*row);
        }
    }

    fn rows(&self) -> Vec<ExternalRow> {
        let spaces = self.spaces.iter().flat_map(|(namespace, qless)| {
            let rows = qless.rows().into_iter();
            rows.map(|row| ExternalRow::Qless(namespace.clone(), Box::new(row)))
        });
        spaces.collect()
    }

    fn check(&self, wrong: &mut Vec<String>) {
        for (namespace, qless) in &self.spaces {
            let mut found = Vec::new();
            qless.check(&mut found);
            let lines = found.into_iter();
            wrong.extend(lines.map(|line| format!("qless of {namespace}: {line}")));
        }
    }

    fn namespaces(&self) -> Vec<&Namespace> {
        let in_use = self.spaces.iter().filter(|(_, qless)| qless.is_in_use());
        in_use.map(|(namespace, _)| namespace).collect()
    }

    fn state(&self, namespace: &Namespace, id: &JobId) -> Option<JobState> {
        let job = self.space(namespace)?.job_by_id(id.as_bytes())?;
        Some(as_job::state(job))
    }

    fn job(&self, _: Now, namespace: &Namespace, id: &JobId) -> Option<ExternalJobView> {
        as_job::view(self.space(namespace)?, namespace, id)
    }

    fn jobs(
        &self,
        _: Now,
        query: &JobQuery,
        after: Option<&ExternalJob>,
        measure: ScanLimits,
    ) -> ExternalJobScan {
        let qless = self.space(&query.namespace);
        qless.map_or(ExternalJobScan::NONE, |qless| {
            list::scan(qless, query, after, measure)
        })
    }

    fn id_when_hidden(&self, _: &ExternalJob) -> Option<JobId> {
        None
    }

    fn why(&self, now: Now, namespace: &Namespace, id: &JobId) -> Option<Explanation> {
        explain::explain(self.space(namespace)?, id, now.elapsed, now.wall)
    }

    fn needed_instead(&self) -> &'static str {
        "it is a job of qless: call qless to change it"
    }

    fn queues(&self, namespace: &Namespace) -> Vec<Queue> {
        let names = self.space(namespace).map(Qless::queue_names);
        let names = names.unwrap_or_default();
        names
            .iter()
            .filter_map(|name| Queue::new(name).ok())
            .collect()
    }

    fn queue(&self, namespace: &Namespace, queue: &Queue) -> Option<QueueView> {
        let qless = self.space(namespace)?;
        let is_there = qless.queue_names().contains(queue.as_bytes());
        is_there.then(|| as_queue::view(qless, queue))
    }

    fn add_to(&self, namespace: &Namespace, view: &mut QueueView) {
        if let Some(qless) = self.space(namespace) {
            as_queue::add(view, qless);
        }
    }
}

/// A time in the form of qless.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "microseconds of the next centuries have all their digits"
)]
pub(crate) fn seconds(at: Timestamp) -> f64 {
    at.0 as f64 / 1e6
}

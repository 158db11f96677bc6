//! External systems: raw keys of Redis clients, and qless. The engine keeps their state beside its own jobs.
//!
//! Each is an [`ExternalSystem`] with its own rules. Its jobs have no numbers and no job rows, and listings show them
//! among the engine's jobs. A job of the engine hides an external job with the same id, and a job of qless hides an
//! item of raw keys. The rest of the engine uses only this module, and `external_jobs` for commands about external
//! jobs.

mod keys;
mod qless;

use std::collections::BTreeSet;

use ganger_types::query::JobQuery;
use ganger_types::reply::{ExternalJobView, QueueView};
use ganger_types::why::Explanation;
use ganger_types::{
    Bytes, Elapsed, Epoch, ExternalCall, ExternalJob, ExternalReply, ExternalRow, Group, Happening,
    JobId, JobState, LeaseToken, NameError, Namespace, Now, Queue, Rejection, limits,
};

use crate::Effects;
pub use keys::Glob;
use keys::Keys;
use qless::QlessSpaces;
pub(crate) use qless::{job_state, seconds};

/// A system whose state the engine keeps beside its jobs.
pub(crate) trait ExternalSystem {
    /// Loads a stored row after a start. Rows of other systems are ignored.
    fn load(&mut self, row: ExternalRow);

    /// All stored rows of the system, for comparison.
    fn rows(&self) -> Vec<ExternalRow>;

    /// Compares the indexes with the rows and adds a line to `wrong` for each difference.
    fn check(&self, wrong: &mut Vec<String>);

    /// Namespaces that have jobs or queues of the system.
    fn namespaces(&self) -> Vec<&Namespace>;

    /// The state of the job with this id; `None` if there is none.
    fn state(&self, namespace: &Namespace, id: &JobId) -> Option<JobState>;

    /// The job with this id, shown as a job of the engine.
    fn job(&self, now: Now, namespace: &Namespace, id: &JobId) -> Option<ExternalJobView>;

    /// The jobs after `after` (`None`: all) that a query may match.
    fn jobs(
        &self,
        now: Now,
        query: &JobQuery,
        after: Option<&ExternalJob>,
        measure: ScanLimits,
    ) -> ExternalJobScan;

    /// The id under which a job is shown while another job hides it; `None` if it is not shown.
    fn id_when_hidden(&self, job: &ExternalJob) -> Option<JobId>;

    /// Why the job is not running; `None` if there is no such job.
    fn why(&self, now: Now, namespace: &Namespace, id: &JobId) -> Option<Explanation>;

    /// What to do instead of a command that only jobs of the engine support, for its rejection.
    fn needed_instead(&self) -> &'static str;

    /// The queues whose names are valid queue names.
    fn queues(&self, namespace: &Namespace) -> Vec<Queue>;

    /// The system's view of a queue; `None` if it does not have the queue.
    fn queue(&self, namespace: &Namespace, queue: &Queue) -> Option<QueueView>;

    /// Adds the jobs of the system's queue of that name to the view of a queue.
    fn add_to(&self, namespace: &Namespace, view: &mut QueueView);
}

/// The external systems of one shard.
#[derive(Debug, Default)]
pub(crate) struct ExternalSystems {
    pub(crate) keys: Keys,
    pub(crate) qless: QlessSpaces,
}

impl ExternalSystems {
    /// All systems. A job hides jobs of later systems with the same id; listings have this order.
    pub(crate) fn all(&self) -> [&dyn ExternalSystem; 2] {
        [&self.qless, &self.keys]
    }

    /// The index in [`Self::all`] of the system of a job.
    pub(crate) fn place_of(job: &ExternalJob) -> usize {
        match job {
            ExternalJob::Qless(_) => 0,
            ExternalJob::Item { .. } => 1,
        }
    }

    /// Applies a call to its system; the reply is of the same system.
    pub(crate) fn apply(
        &mut self,
        now: Now,
        call: ExternalCall,
        out: &mut Effects,
    ) -> ExternalReply {
        match call {
            ExternalCall::Keys(calls) => ExternalReply::Keys(self.keys.apply(now, *calls, out)),
            ExternalCall::Qless(call) => {
                ExternalReply::Qless(self.qless.call(now.elapsed, *call, out))
            }
        }
    }

    /// Loads a stored row.
    pub(crate) fn load(&mut self, row: ExternalRow) {
        match row {
            ExternalRow::Key(_) | ExternalRow::Element(_) => self.keys.load(row),
            ExternalRow::Qless(..) => self.qless.load(row),
        }
    }

    /// Completes the loading, after all rows.
    pub(crate) fn loaded(&mut self) {
        self.keys.loaded();
    }

    /// All stored rows of the systems, for comparison.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ExternalRow> {
        self.all().into_iter().flat_map(ExternalSystem::rows)
    }

    /// Compares the indexes with the rows and adds a line to `wrong` for each difference.
    pub(crate) fn check(&self, wrong: &mut Vec<String>) {
        for system in self.all() {
            system.check(wrong);
        }
    }

    /// Applies at most `limit` expirations and other due work. Returns whether more is due.
    pub(crate) fn advance(&mut self, now: Now, limit: usize, out: &mut Effects) -> bool {
        self.keys.advance(now, limit, out)
    }

    /// The time of the next due work; `None` if there is none.
    pub(crate) fn next_due(&self) -> Option<Elapsed> {
        self.keys.next_due()
    }

    /// Writes the rows that changed during the turn and have not been written yet.
    pub(crate) fn end_turn(&mut self, out: &mut Effects) {
        self.qless.end_turn(out);
    }

    /// Whether the end of the turn may have rows to write.
    pub(crate) fn may_write_at_end(&self) -> bool {
        self.qless.was_called()
    }

    /// Queues that got ready jobs since the last call, if their names are valid queue names.
    pub(crate) fn take_woken(&mut self) -> Vec<(Namespace, Queue)> {
        self.qless.take_woken()
    }

    /// Events about external jobs since the last call, in order.
    pub(crate) fn take_happened(&mut self) -> Vec<(Namespace, Happening)> {
        self.qless.take_happened()
    }

    /// Whether a lease command would get an external job of this queue.
    pub(crate) fn has_ready(&self, namespace: &Namespace, queue: &Queue) -> bool {
        self.qless.has_ready(namespace, queue)
    }

    /// Namespaces that have jobs or queues of external systems.
    pub(crate) fn namespaces(&self) -> BTreeSet<&Namespace> {
        self.all()
            .into_iter()
            .flat_map(ExternalSystem::namespaces)
            .collect()
    }

    /// The state of the external job with this id.
    pub(crate) fn state(&self, namespace: &Namespace, id: &JobId) -> Option<JobState> {
        self.all()
            .into_iter()
            .find_map(|system| system.state(namespace, id))
    }

    /// Why the external job with this id is not running; `None` if there is no such job.
    pub(crate) fn why(&self, now: Now, namespace: &Namespace, id: &JobId) -> Option<Explanation> {
        self.all()
            .into_iter()
            .find_map(|system| system.why(now, namespace, id))
    }

    /// Queues of external systems, if their names are valid queue names.
    pub(crate) fn queues(&self, namespace: &Namespace) -> BTreeSet<Queue> {
        self.all()
            .into_iter()
            .flat_map(|system| system.queues(namespace))
            .collect()
    }

    /// The external systems' view of a queue; `None` if none of them has it.
    pub(crate) fn queue(&self, namespace: &Namespace, queue: &Queue) -> Option<QueueView> {
        let mut systems = self.all().into_iter();
        let mut view = systems.find_map(|system| system.queue(namespace, queue))?;
        systems.for_each(|system| system.add_to(namespace, &mut view));
        Some(view)
    }

    /// Adds the jobs of their queues of that name to the view of a queue.
    pub(crate) fn add_to(&self, namespace: &Namespace, view: &mut QueueView) {
        for system in self.all() {
            system.add_to(namespace, view);
        }
    }

    /// Failure groups with the number of jobs in each; long names are cut, as in the jobs.
    pub(crate) fn failure_groups(&self, namespace: &Namespace) -> Vec<(Group, u64)> {
        self.qless.failure_groups(namespace)
    }

    /// Whether the id names an external job that the engine's commands can lease, cancel, delete and retry.
    pub(crate) fn takes_commands(&self, namespace: &Namespace, id: &JobId) -> bool {
        self.qless.state(namespace, id).is_some()
    }

    /// The rejection of a command that only jobs of the engine support; `None` if the id names no external job.
    pub(crate) fn refuse(&self, namespace: &Namespace, id: &JobId) -> Option<Rejection> {
        self.all().into_iter().find_map(|system| {
            let state = system.state(namespace, id)?;
            Some(wrong_state(id, state, system.needed_instead()))
        })
    }
}

/// Placeholder for the token of an external job that has none.
const NO_TOKEN: LeaseToken = LeaseToken {
    epoch: Epoch(0),
    counter: 0,
    secret: [0; 12],
};

/// A name of these bytes, cut to the maximum length.
fn short<T>(bytes: &Bytes, name: impl Fn(Bytes) -> Result<T, NameError>) -> Option<T> {
    name(bytes.slice(..bytes.len().min(limits::NAME_BYTES_MAX))).ok()
}

/// Whether a query matches jobs in this state.
fn asks_for(query: &JobQuery, state: JobState) -> bool {
    query.states.contains(state)
}

/// The result of a scan of external jobs.
pub(crate) struct ExternalJobScan {
    /// Number of jobs that were looked at.
    pub(crate) count: usize,
    /// Jobs that the query may match.
    pub(crate) found: Vec<(ExternalJob, ExternalJobView)>,
    /// Last job that was looked at, if there are more.
    pub(crate) rest: Option<ExternalJob>,
}

impl ExternalJobScan {
    const NONE: Self = Self {
        count: 0,
        found: Vec::new(),
        rest: None,
    };
}

/// The limits of a scan: jobs to look at, and jobs to return.
#[derive(Clone, Copy)]
pub(crate) struct ScanLimits {
    pub(crate) looked_at: usize,
    pub(crate) found: usize,
}

/// The rejection of a command that needs the job in another state; `needed` is the next step for the caller.
pub(crate) fn wrong_state(job: &JobId, state: JobState, needed: &'static str) -> Rejection {
    Rejection::WrongState {
        job: job.clone(),
        state,
        needed,
    }
}

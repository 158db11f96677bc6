//! External systems: raw keys of Redis clients, and qless. The engine keeps their state beside its own jobs.
//!
//! Each is one [`ExternalSystem`], which lives by rules of its own. Its jobs have no numbers and no rows of jobs, and are
//! shown among ours: one of ours with the same id hides an external job, one of qless an item of raw keys. The rest of
//! the engine sees only this module, and `external_jobs`, which has the commands about their jobs.

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

/// A system whose state is kept beside our jobs, by rules of its own.
pub(crate) trait ExternalSystem {
    /// Takes a row back as it was stored, after a start. Rows of other systems are not its own and are passed over.
    fn load(&mut self, row: ExternalRow);

    /// All rows that are stored of it, for comparing.
    fn rows(&self) -> Vec<ExternalRow>;

    /// Compares the indexes with the rows; adds a line for each thing that disagrees.
    fn check(&self, wrong: &mut Vec<String>);

    /// Namespaces that have jobs or queues of it.
    fn namespaces(&self) -> Vec<&Namespace>;

    /// The state of the job with this id; `None` if there is none.
    fn state(&self, namespace: &Namespace, id: &JobId) -> Option<JobState>;

    /// The job with this id, as if it were one of ours.
    fn job(&self, now: Now, namespace: &Namespace, id: &JobId) -> Option<ExternalJobView>;

    /// Jobs behind `after` (`None`: from the first on): those that a query may ask for.
    fn jobs(
        &self,
        now: Now,
        query: &JobQuery,
        after: Option<&ExternalJob>,
        measure: Measure,
    ) -> ExternalJobScan;

    /// The id under which a job is shown while another job hides it; `None` if it is not shown then.
    fn id_when_hidden(&self, job: &ExternalJob) -> Option<JobId>;

    /// Why the job is not running; `None` if there is no such job.
    fn why(&self, now: Now, namespace: &Namespace, id: &JobId) -> Option<Explanation>;

    /// Why a command that is for jobs of ours only is refused if it names this job of the system.
    fn needed_instead(&self) -> &'static str;

    /// Its queues, as far as their names may be those of ours.
    fn queues(&self, namespace: &Namespace) -> Vec<Queue>;

    /// The queue as this system knows it, if it does.
    fn queue(&self, namespace: &Namespace, queue: &Queue) -> Option<QueueView>;

    /// Adds what is in its queue of that name to the view of a queue.
    fn add_to(&self, namespace: &Namespace, view: &mut QueueView);
}

/// The external systems of one shard.
#[derive(Debug, Default)]
pub(crate) struct ExternalSystems {
    pub(crate) keys: Keys,
    pub(crate) qless: QlessSpaces,
}

impl ExternalSystems {
    /// All of them. A job hides those of later systems with the same id; listings come in this order.
    pub(crate) fn all(&self) -> [&dyn ExternalSystem; 2] {
        [&self.qless, &self.keys]
    }

    /// The place in [`Self::all`] of the system that has this job.
    pub(crate) fn place_of(job: &ExternalJob) -> usize {
        match job {
            ExternalJob::Qless(_) => 0,
            ExternalJob::Item { .. } => 1,
        }
    }

    /// Carries a call out.
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

    /// Takes a row back as it was stored.
    pub(crate) fn load(&mut self, row: ExternalRow) {
        match row {
            ExternalRow::Key(_) | ExternalRow::Element(_) => self.keys.load(row),
            ExternalRow::Qless(..) => self.qless.load(row),
        }
    }

    /// To be called once all rows are loaded.
    pub(crate) fn loaded(&mut self) {
        self.keys.loaded();
    }

    /// All rows that are stored of them, for comparing.
    pub(crate) fn rows(&self) -> impl Iterator<Item = ExternalRow> {
        self.all().into_iter().flat_map(ExternalSystem::rows)
    }

    /// Compares the indexes with the rows; adds a line for each thing that disagrees.
    pub(crate) fn check(&self, wrong: &mut Vec<String>) {
        for system in self.all() {
            system.check(wrong);
        }
    }

    /// Does what is due by `now`, at most `limit` things; true if more is due.
    pub(crate) fn advance(&mut self, now: Now, limit: usize, out: &mut Effects) -> bool {
        self.keys.advance(now, limit, out)
    }

    /// When there is next something to do; `None` if nothing waits for time.
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

    /// Queues that got ready jobs since the last call, as far as their names may be those of ours.
    pub(crate) fn take_woken(&mut self) -> Vec<(Namespace, Queue)> {
        self.qless.take_woken()
    }

    /// What was done to jobs since the last call, in order.
    pub(crate) fn take_happened(&mut self) -> Vec<(Namespace, Happening)> {
        self.qless.take_happened()
    }

    /// Whether a worker of ours would get a job of this queue.
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

    /// Queues of external systems, as far as their names may be those of ours.
    pub(crate) fn queues(&self, namespace: &Namespace) -> BTreeSet<Queue> {
        self.all()
            .into_iter()
            .flat_map(|system| system.queues(namespace))
            .collect()
    }

    /// The queue as the external systems know it, if one of them does.
    pub(crate) fn queue(&self, namespace: &Namespace, queue: &Queue) -> Option<QueueView> {
        let mut systems = self.all().into_iter();
        let mut view = systems.find_map(|system| system.queue(namespace, queue))?;
        systems.for_each(|system| system.add_to(namespace, &mut view));
        Some(view)
    }

    /// Adds what is in their queues of that name to the view of one of ours.
    pub(crate) fn add_to(&self, namespace: &Namespace, view: &mut QueueView) {
        for system in self.all() {
            system.add_to(namespace, view);
        }
    }

    /// Failure groups with the number of jobs in each; names are cut as in the jobs.
    pub(crate) fn failure_groups(&self, namespace: &Namespace) -> Vec<(Group, u64)> {
        self.qless.failure_groups(namespace)
    }

    /// Whether the id names a job that workers of ours run, and commands cancel, delete and retry.
    pub(crate) fn takes_commands(&self, namespace: &Namespace, id: &JobId) -> bool {
        self.qless.state(namespace, id).is_some()
    }

    /// The refusal of a command that is for jobs of ours only, if the id names a job of one of these systems.
    pub(crate) fn refuse(&self, namespace: &Namespace, id: &JobId) -> Option<Rejection> {
        self.all().into_iter().find_map(|system| {
            let state = system.state(namespace, id)?;
            Some(wrong_state(id, state, system.needed_instead()))
        })
    }
}

/// What says of an external job that nobody holds it by a token.
const NO_TOKEN: LeaseToken = LeaseToken {
    epoch: Epoch(0),
    counter: 0,
    secret: [0; 12],
};

/// A name of these bytes, cut to what a name may have.
fn short<T>(bytes: &Bytes, name: impl Fn(Bytes) -> Result<T, NameError>) -> Option<T> {
    name(bytes.slice(..bytes.len().min(limits::NAME_BYTES_MAX))).ok()
}

/// Whether a query asks for jobs in this state.
fn asks_for(query: &JobQuery, state: JobState) -> bool {
    query.states.contains(state)
}

/// The jobs that were found among some external jobs.
pub(crate) struct ExternalJobScan {
    /// Number of jobs that were looked at.
    pub(crate) count: usize,
    /// Those that may be asked for.
    pub(crate) found: Vec<(ExternalJob, ExternalJobView)>,
    /// The last one that was looked at, if there are more.
    pub(crate) rest: Option<ExternalJob>,
}

impl ExternalJobScan {
    const NONE: Self = Self {
        count: 0,
        found: Vec::new(),
        rest: None,
    };
}

/// How many to look at, and how many to find.
#[derive(Clone, Copy)]
pub(crate) struct Measure {
    pub(crate) looked_at: usize,
    pub(crate) found: usize,
}

/// The refusal of a command that needs the job to be otherwise: `needed` says what to do instead.
pub(crate) fn wrong_state(job: &JobId, state: JobState, needed: &'static str) -> Rejection {
    Rejection::WrongState {
        job: job.clone(),
        state,
        needed,
    }
}

//! External jobs: jobs that other parts of the engine keep by rules of their own, and that are shown among ours.
//!
//! They are those of qless, and the items of work queues of raw keys. They have no numbers and no rows of jobs. One of ours
//! with the same id hides an external job, one of qless an item.

use ganger_types::qless::QlessJob;
use ganger_types::query::JobQuery;
use ganger_types::reply::{ExternalJobView, QueueView};
use ganger_types::{
    Bytes, Epoch, ExternalJob, JobId, JobState, LeaseToken, NameError, Namespace, Now, Queue,
    Rejection, limits,
};

use crate::engine::Engine;
use crate::finished_index::FinishedIndex;

/// Jobs that one question looks at: so many that a page is often whole, so few that nobody else waits for long.
const LOOKED_AT_MAX: usize = 4_000;

/// What says of an external job that nobody holds it by a token.
pub(crate) const NO_TOKEN: LeaseToken = LeaseToken {
    epoch: Epoch(0),
    counter: 0,
    secret: [0; 12],
};

/// A name of these bytes, cut to what a name may have.
pub(crate) fn short<T>(bytes: &Bytes, name: impl Fn(Bytes) -> Result<T, NameError>) -> Option<T> {
    name(bytes.slice(..bytes.len().min(limits::NAME_BYTES_MAX))).ok()
}

/// Whether a query asks for jobs in this state.
pub(crate) fn asks_for(query: &JobQuery, state: JobState) -> bool {
    query.states.contains(state)
}

/// What came of looking at some external jobs.
pub(crate) struct ExternalJobScan {
    /// How many were looked at.
    pub(crate) count: usize,
    /// Those that may be asked for.
    pub(crate) found: Vec<(ExternalJob, ExternalJobView)>,
    /// The last one that was looked at, if there are more.
    pub(crate) rest: Option<ExternalJob>,
}

impl ExternalJobScan {
    pub(crate) const NONE: Self = Self {
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

impl Engine {
    /// The external job with this id, unless a live job of ours has it. The host asks once it has found none that has ended.
    pub(crate) fn external_job(
        &self,
        now: Now,
        namespace: &Namespace,
        id: &JobId,
    ) -> Option<Box<ExternalJobView>> {
        if self.find_job(namespace, id).is_some() {
            return None;
        }
        let of_qless = self.qless.job(namespace, id);
        let view = of_qless.or_else(|| self.keys.job(now, namespace, id));
        view.map(Box::new)
    }

    /// A job of qless as a row says that it is, whatever has become of it since: for a host that has made this row
    /// durable. `None` if it has no job here.
    pub fn external_job_of_row(
        &self,
        namespace: &Namespace,
        row: &QlessJob,
    ) -> Option<ExternalJobView> {
        self.qless.job_of_row(namespace, row)
    }

    /// External jobs that may be asked for, from a place on; and from where to look on, if there may be more.
    pub(crate) fn external_jobs(
        &self,
        now: Now,
        query: &JobQuery,
    ) -> (Vec<(ExternalJob, ExternalJobView)>, Option<ExternalJob>) {
        // None is in a graph or has labels.
        if query.graph.is_some() || query.label.is_some() {
            return (Vec::new(), None);
        }
        let mut measure = Measure {
            looked_at: LOOKED_AT_MAX,
            found: query.limit.clamp(1, limits::PAGE_JOBS_MAX + 1),
        };
        let (mut found, mut after) = (Vec::new(), None);
        match &query.after_external_job {
            Some(ExternalJob::Item { queue, id }) => after = Some((queue, id)),
            Some(ExternalJob::Qless(_)) | None => {
                let looked = self.external_jobs_of_qless(query, measure);
                if looked.rest.is_some() {
                    return (looked.found, looked.rest);
                }
                measure.looked_at -= looked.count;
                measure.found -= looked.found.len();
                found = looked.found;
            }
        }
        let items = self.keys.jobs(now, query, after, measure);
        found.extend(
            items
                .found
                .into_iter()
                .filter_map(|(external_job, mut view)| {
                    let namespace = &query.namespace;
                    let is_hidden = self.find_job(namespace, &view.record.id).is_some()
                        || self.qless.has_job(namespace, &view.record.id);
                    if is_hidden {
                        view.record.id = crate::keys::full_name(&external_job)?;
                    }
                    Some((external_job, view))
                }),
        );
        (found, items.rest)
    }

    fn external_jobs_of_qless(&self, query: &JobQuery, measure: Measure) -> ExternalJobScan {
        let after = match &query.after_external_job {
            Some(ExternalJob::Qless(jid)) => Some(jid),
            _ => None,
        };
        let mut looked = self.qless.jobs(query, after, measure);
        let ours = |id: &JobId| self.find_job(&query.namespace, id).is_some();
        looked.found.retain(|(_, view)| !ours(&view.record.id));
        looked
    }

    /// Whether there is an external job with this id.
    pub(crate) fn has_external_job(&self, namespace: &Namespace, id: &JobId) -> bool {
        self.qless.has_job(namespace, id) || self.keys.state(namespace, id).is_some()
    }

    /// The refusal of a command that is for jobs of ours only, and names one that is not there.
    pub(crate) fn not_ours(&self, namespace: &Namespace, id: &JobId) -> Rejection {
        if let Some(state) = self.qless.state(namespace, id) {
            return wrong_state(id, state, "it is a job of qless: call qless to change it");
        }
        self.refuse_item(namespace, id)
            .unwrap_or_else(|| self.no_job(namespace, id))
    }

    /// The refusal of a command that would end or move an item of raw keys, if that is what the id names.
    pub(crate) fn refuse_item(&self, namespace: &Namespace, id: &JobId) -> Option<Rejection> {
        let state = self.keys.state(namespace, id)?;
        Some(wrong_state(
            id,
            state,
            "it is an item of raw keys, which only its own clients end and move: to end it, DEL its key over the Redis port",
        ))
    }

    /// The refusal of a command that is about this one job alone, if that is an item and no job of ours.
    pub(crate) fn refuse_sole_item(
        &self,
        namespace: &Namespace,
        ids: &[JobId],
        known: &FinishedIndex,
    ) -> Result<(), Rejection> {
        let [id] = ids else {
            return Ok(());
        };
        let is_other = self.find_job(namespace, id).is_some()
            || known.find(namespace, id).is_some()
            || self.qless.has_job(namespace, id);
        let refusal = self.refuse_item(namespace, id).filter(|_| !is_other);
        refusal.map_or(Ok(()), Err)
    }

    /// Why qless did not let this job go.
    pub(crate) fn kept_by_qless(&self, namespace: &Namespace, id: &JobId) -> Rejection {
        let Some(state) = self.qless.state(namespace, id) else {
            return self.no_job(namespace, id);
        };
        let needed = if state == JobState::Succeeded {
            "qless removes no job that is complete before its time (jobs-history, jobs-history-count)"
        } else {
            "jobs of qless wait for it: name them too, or delete them first"
        };
        wrong_state(id, state, needed)
    }

    /// The queue as the external jobs' parts know it, if any does.
    pub(crate) fn queue_of_external_jobs(
        &self,
        namespace: &Namespace,
        queue: &Queue,
    ) -> Option<QueueView> {
        let Some(mut view) = self.qless.queue(namespace, queue) else {
            return self.keys.queue(namespace, queue);
        };
        self.keys.add_to(namespace, &mut view);
        Some(view)
    }

    /// Adds what the external jobs' parts have in a queue of that name to the view of one of ours.
    pub(crate) fn add_external_jobs_to(&self, namespace: &Namespace, view: &mut QueueView) {
        self.qless.add_to(namespace, view);
        self.keys.add_to(namespace, view);
    }

    /// How many namespaces have jobs of qless, or work queues of raw keys: where that is none, nobody is asked for them.
    pub fn external_job_namespaces(&self) -> usize {
        self.qless.namespaces().count() + self.keys.namespaces().count()
    }
}

fn wrong_state(job: &JobId, state: JobState, needed: &'static str) -> Rejection {
    Rejection::WrongState {
        job: job.clone(),
        state,
        needed,
    }
}

//! Acts on all jobs that match a filter: page by page, with a bounded number of jobs per call.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Cancel, Delete, Retry, Selection};
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{
    Command, Graph, JobId, JobState, Namespace, OperationAction, PageCursor, Queue, Reply, ShardId,
    Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::{CallError, Handle, StoredJob};

/// Maximum number of ids in a result; further ones are only counted.
const LISTED_IDS_MAX: usize = 100;
/// Maximum number of queues that a dry run counts separately; jobs of further queues are counted together.
const QUEUES_MAX: usize = 100;

/// What to do with the jobs.
#[derive(Clone, Debug)]
pub enum BulkAction {
    /// Cancels the selected jobs.
    Cancel {
        /// Reason given by the caller, for people to read; may be empty.
        reason: String,
    },
    /// Retries the selected jobs.
    Retry {
        /// Queue to retry them in; `None` for their own.
        queue: Option<Queue>,
        /// Whether to retry also the dependents that ended because these jobs did.
        dependents: bool,
        /// Graph to retry as a whole; `None` if single jobs are selected.
        graph: Option<Graph>,
    },
    /// Removes the selected jobs with all their rows.
    Delete,
}

/// Bounds of one call of [`Handle::bulk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkBounds {
    /// Maximum number of jobs to visit; at least one is visited.
    pub visited_max: usize,
    /// Maximum number of jobs to change; the call ends when it is reached.
    pub changed_max: u64,
}

impl BulkBounds {
    /// Bounds without a limit on the number of changed jobs.
    pub fn visits(visited_max: usize) -> Self {
        Self {
            visited_max,
            changed_max: u64::MAX,
        }
    }
}

/// What a bulk action did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BulkResult {
    /// Number of jobs that were changed, or in a dry run would be.
    pub changed: u64,
    /// Number of jobs whose state does not allow the action.
    pub skipped: u64,
    /// Ids of the skipped jobs, at most 100.
    pub skipped_jobs: Vec<JobId>,
    /// Dry run only: number of jobs that would be changed, by their current state.
    pub by_state: BTreeMap<JobState, u64>,
    /// Dry run only: the same by queue, for at most 100 queues.
    #[serde(with = "crate::pairs")]
    pub by_queue: BTreeMap<Queue, u64>,
    /// Dry run only: number of jobs of all further queues.
    pub other_queues: u64,
    /// Dry run only: ids of jobs that would be changed, at most 100.
    pub sample: Vec<JobId>,
    /// Retry only: the shards that are asked to retry their jobs.
    pub passed_on: BTreeSet<ShardId>,
    /// Cursor for the next call; `None` if all jobs were visited.
    pub next: Option<PageCursor>,
}

impl BulkAction {
    fn command(&self, namespace: Namespace, jobs: Vec<JobId>) -> Command {
        match self {
            Self::Cancel { reason } => Command::Cancel(Box::new(Cancel {
                namespace,
                jobs: Selection::Jobs(jobs),
                reason: reason.clone(),
            })),
            Self::Retry {
                queue,
                dependents,
                graph,
            } => Command::Retry(Box::new(Retry {
                namespace,
                jobs,
                queue: queue.clone(),
                dependents: *dependents,
                graph: graph.clone(),
            })),
            Self::Delete => Command::Delete(Delete { namespace, jobs }),
        }
    }

    /// Whether a job in this state would be changed. Conditions on other jobs are not checked.
    fn accepts(&self, state: JobState) -> bool {
        match self {
            Self::Cancel { .. } => !state.is_terminal(),
            Self::Retry { .. } => state.is_terminal(),
            Self::Delete => true,
        }
    }

    /// Whether a dry run predicts the result exactly. For a retry or a deletion the result also depends on related
    /// jobs.
    pub fn is_foreseeable(&self) -> bool {
        matches!(self, Self::Cancel { .. })
    }
}

impl Handle {
    /// Acts on the jobs that match `query`, or only counts them, within `bounds`, and returns a cursor to continue.
    /// Each page is one commit; a call that fails in the middle has changed the earlier pages.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn bulk(
        &self,
        action: &BulkAction,
        mut query: JobQuery,
        bounds: BulkBounds,
        is_dry: bool,
        at: Option<Timestamp>,
    ) -> Result<BulkResult, CallError> {
        let mut done = BulkResult::default();
        let mut left = bounds.visited_max.max(1);
        loop {
            let room = bounds.changed_max.saturating_sub(done.changed).max(1);
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            query.limit = left.min(room).min(PAGE_JOBS_MAX);
            let page = self.list(query.clone()).await?;
            left = left.saturating_sub(page.jobs.len());
            if is_dry {
                page.jobs.iter().for_each(|job| done.count(action, job));
            } else if !page.jobs.is_empty() {
                let jobs = page.jobs.into_iter().map(|job| job.record.id).collect();
                self.act_on(action, &query.namespace, jobs, at, &mut done)
                    .await?;
            }
            match page.next {
                Some(next) if left > 0 && done.changed < bounds.changed_max => query.go_on(next),
                next => {
                    done.next = next;
                    return Ok(done);
                }
            }
        }
    }

    /// Counts the jobs that match `query` and that an operation would change, within a number of visited jobs, and
    /// returns a cursor to continue. Nothing is changed.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn try_operation(
        &self,
        action: &OperationAction,
        mut query: JobQuery,
        visited_max: usize,
    ) -> Result<BulkResult, CallError> {
        let mut done = BulkResult::default();
        let mut left = visited_max.max(1);
        loop {
            query.limit = left.min(PAGE_JOBS_MAX);
            let page = self.list(query.clone()).await?;
            left = left.saturating_sub(page.jobs.len());
            for job in &page.jobs {
                done.count_if(|state| action.accepts(state), job);
            }
            match page.next {
                Some(next) if left > 0 => query.go_on(next),
                next => {
                    done.next = next;
                    return Ok(done);
                }
            }
        }
    }

    /// Retries the failed and cancelled members of a graph on this shard, after asking the graph's other shards to do
    /// the same. Repeats until no page changes anything, since a job can be retried only after its dependencies.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn retry_graph(
        &self,
        namespace: Namespace,
        graph: Graph,
        queue: Option<Queue>,
        at: Option<Timestamp>,
    ) -> Result<BulkResult, CallError> {
        let action = BulkAction::Retry {
            queue,
            dependents: false,
            graph: Some(graph.clone()),
        };
        let mut all = BulkResult::default();
        // Without jobs the command only asks the other shards.
        self.act_on(&action, &namespace, Vec::new(), at, &mut all)
            .await?;
        let query = JobQuery {
            namespace,
            graph: Some(graph),
            states: [JobState::Failed, JobState::Cancelled]
                .into_iter()
                .collect(),
            ..JobQuery::default()
        };
        loop {
            let pass = self
                .bulk(
                    &action,
                    query.clone(),
                    BulkBounds::visits(usize::MAX),
                    false,
                    at,
                )
                .await?;
            all.changed += pass.changed;
            all.skipped = pass.skipped;
            all.skipped_jobs = pass.skipped_jobs;
            all.passed_on.extend(pass.passed_on);
            if pass.changed == 0 || pass.skipped == 0 {
                return Ok(all);
            }
        }
    }

    /// Acts on the named jobs, at most as many as one command may name.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn act_on(
        &self,
        action: &BulkAction,
        namespace: &Namespace,
        jobs: Vec<JobId>,
        at: Option<Timestamp>,
        done: &mut BulkResult,
    ) -> Result<(), CallError> {
        let sole = (jobs.len() == 1).then(|| jobs.clone());
        let command = action.command(namespace.clone(), jobs);
        let answer = match at {
            Some(at) => self.call_at(command, at).await,
            None => self.call(command).await,
        };
        let (count, skipped) = match (answer, sole) {
            (Ok(Reply::Changed { count, skipped }), _) => (count, skipped),
            (
                Ok(Reply::Retried {
                    count,
                    skipped,
                    passed_on,
                    ..
                }),
                _,
            ) => {
                done.passed_on.extend(passed_on);
                (count, skipped)
            }
            // A command with a single job is refused with the reason; here it is one of many.
            (Err(CallError::Rejected(rejection)), Some(sole))
                if rejection.code() == "wrong_state" =>
            {
                (0, sole)
            }
            (Err(error), _) => return Err(error),
            (Ok(_), _) => (0, Vec::new()),
        };
        done.changed += count;
        done.skip(skipped);
        Ok(())
    }
}

impl BulkResult {
    fn skip(&mut self, ids: Vec<JobId>) {
        self.skipped += u64::try_from(ids.len()).unwrap_or(u64::MAX);
        let room = LISTED_IDS_MAX.saturating_sub(self.skipped_jobs.len());
        self.skipped_jobs.extend(ids.into_iter().take(room));
    }

    /// Counts a job that a dry run visited.
    pub fn count(&mut self, action: &BulkAction, job: &StoredJob) {
        self.count_if(|state| action.accepts(state), job);
    }

    /// Counts a job that a dry run of an action visited, which `accepts` jobs in some states.
    fn count_if(&mut self, accepts: impl Fn(JobState) -> bool, job: &StoredJob) {
        let record = &job.record;
        let state = match job.lease {
            Some(_) => JobState::Running,
            None => record.state,
        };
        if !accepts(state) {
            self.skip(vec![record.id.clone()]);
            return;
        }
        self.changed += 1;
        *self.by_state.entry(state).or_default() += 1;
        if self.by_queue.len() < QUEUES_MAX || self.by_queue.contains_key(&record.queue) {
            *self.by_queue.entry(record.queue.clone()).or_default() += 1;
        } else {
            self.other_queues += 1;
        }
        if self.sample.len() < LISTED_IDS_MAX {
            self.sample.push(record.id.clone());
        }
    }
}

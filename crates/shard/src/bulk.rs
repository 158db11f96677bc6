//! Acting on all jobs that fulfil a filter: page by page, a bounded number of them a call.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Cancel, Delete, Retry, Selection};
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{
    Command, Graph, JobId, JobState, Namespace, PageCursor, Queue, Reply, ShardId, Timestamp,
};

use crate::{CallError, Handle, StoredJob};

/// Ids that an answer names; the rest is counted.
const LISTED_IDS_MAX: usize = 100;
/// Queues that a dry run counts by themselves; jobs of further ones are counted together.
const QUEUES_MAX: usize = 100;

/// What to do with the jobs.
#[derive(Clone, Debug)]
pub enum BulkAction {
    /// Cancels the selected jobs.
    Cancel {
        /// Reason given by the caller, for people to read; may be empty.
        reason: String,
    },
    /// Put them back on their queues.
    Retry {
        /// Into another queue than their own.
        queue: Option<Queue>,
        /// With the jobs that ended because these did.
        dependents: bool,
        /// As members of this graph, which is retried as a whole.
        graph: Option<Graph>,
    },
    /// Removes the selected jobs with all their rows.
    Delete,
}

/// What a bulk action did, or would do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BulkResult {
    /// Jobs changed, or that would be.
    pub changed: u64,
    /// Jobs not in a state for it.
    pub skipped: u64,
    /// The first 100 of those.
    pub skipped_jobs: Vec<JobId>,
    /// Of a dry run: jobs that would be changed, by their states now.
    pub by_state: BTreeMap<JobState, u64>,
    /// Of a dry run: those by their queues, the first 100 of them.
    pub by_queue: BTreeMap<Queue, u64>,
    /// Of a dry run: those of further queues.
    pub other_queues: u64,
    /// Of a dry run: the first 100 of those.
    pub sample: Vec<JobId>,
    /// Of a retry: the shards that will be asked to put back jobs of theirs.
    pub passed_on: BTreeSet<ShardId>,
    /// Where a further call goes on; `None`: all were looked at.
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

    /// Whether a job in this state would be changed. Whether other jobs stand in the way is not asked.
    fn accepts(&self, state: JobState) -> bool {
        match self {
            Self::Cancel { .. } => !state.is_terminal(),
            Self::Retry { .. } => state.is_terminal(),
            Self::Delete => true,
        }
    }

    /// Whether a dry run can foretell exactly what happens: the others also depend on the jobs around.
    pub fn is_foreseeable(&self) -> bool {
        matches!(self, Self::Cancel { .. })
    }
}

impl Handle {
    /// Acts on the jobs that fulfil `query`, or only counts them. Looks at about `visited_max` of them and says where
    /// to go on. Each page is one commit; a call that fails in the middle has changed the pages before.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn bulk(
        &self,
        action: &BulkAction,
        mut query: JobQuery,
        visited_max: usize,
        is_dry: bool,
        at: Option<Timestamp>,
    ) -> Result<BulkResult, CallError> {
        let mut done = BulkResult::default();
        let mut left = visited_max.max(1);
        loop {
            query.limit = left.min(PAGE_JOBS_MAX);
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
                Some(next) if left > 0 => query.go_on(next),
                next => {
                    done.next = next;
                    return Ok(done);
                }
            }
        }
    }

    /// Puts the members of a graph on this shard back that failed or were cancelled, after it has asked the other
    /// shards of the graph to do the same. Pages until no page changes anything more, for a job comes back only after
    /// those it waits for.
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
        // Without jobs it asks the others.
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
                .bulk(&action, query.clone(), usize::MAX, false, at)
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

    /// Acts on jobs that are named, at most as many as a command may name.
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
            // One that is named alone is refused with the reason; here it is one of many.
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

    /// Counts a job in that a dry run looked at.
    pub fn count(&mut self, action: &BulkAction, job: &StoredJob) {
        let record = &job.record;
        let state = match job.lease {
            Some(_) => JobState::Running,
            None => record.state,
        };
        if !action.accepts(state) {
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

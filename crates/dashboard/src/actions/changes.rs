//! Changes to jobs of any shards, wherever they are: what each shard is asked to do.

use std::time::Duration;

use ganger_shard::{BulkAction, BulkBounds, BulkResult, Handle};
use ganger_types::command::{Alter, Cancel, Selection, StartOperation};
use ganger_types::operation::JobFilter;
use ganger_types::query::JobQuery;
use ganger_types::{
    Command, Graph, JobId, JobState, OperationNumber, OperationRecord, OperationState, Priority,
    Queue, Reply,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::fault::Fault;
use crate::links::job_name;
use crate::question::Question;
use crate::text::plain;
use crate::view::View;
use crate::wire::Stored;

use super::apply;
use super::bulk::{JobsAction, LOOKED_MAX};

/// How long a form waits for a shard that changes something.
const CHANGE_WAIT: Duration = Duration::from_secs(30);

/// The states of some jobs; `None` for one that is gone.
#[derive(Serialize, Deserialize)]
pub(crate) struct States {
    pub(super) jobs: Vec<JobId>,
}

impl Question for States {
    const NAME: &'static str = "states_of_jobs";
    type Answer = Vec<Option<JobState>>;

    fn operation(&self) -> &'static str {
        "getJob"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let mut states = Vec::new();
        for id in &self.jobs {
            let job = shard.job(view.namespace(), id).await?;
            states.push(job.map(|job| job.record.state));
        }
        Ok(states)
    }
}

/// What was done with selected jobs.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Changed {
    pub(super) jobs: u64,
    /// The jobs that were left out, each with the reason.
    pub(super) skipped: Vec<String>,
}

/// An action on selected jobs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Act {
    pub(super) chosen: JobsAction,
    pub(super) reason: String,
    pub(super) jobs: Vec<JobId>,
}

impl Question for Act {
    const NAME: &'static str = "act_on_jobs";
    const IS_CHANGE: bool = true;
    const WAIT: Duration = CHANGE_WAIT;
    type Answer = Changed;

    fn operation(&self) -> &'static str {
        self.chosen.action()
    }

    fn target(&self) -> String {
        names_of(&self.jobs)
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Changed, Fault> {
        let (action, jobs) = (self.chosen.bulk(&self.reason), self.jobs.clone());
        let mut done = BulkResult::default();
        shard
            .act_on(&action, view.namespace(), jobs, None, &mut done)
            .await?;
        let mut changed = Changed {
            jobs: done.changed,
            skipped: Vec::new(),
        };
        for id in done.skipped_jobs {
            changed.skipped.push(reason_of(view, shard, id).await);
        }
        Ok(changed)
    }
}

/// The jobs as the audit log names them.
fn names_of(jobs: &[JobId]) -> String {
    let names = jobs.iter().map(|id| format!("job={id}"));
    names.collect::<Vec<_>>().join(" ")
}

/// Why a job was left out: the state that it is in.
async fn reason_of(view: &View, shard: &Handle, id: JobId) -> String {
    let found = shard.job(view.namespace(), &id).await.ok().flatten();
    let name = plain(&job_name(shard.id(), &id));
    match found.map(|job| job.record.state) {
        None => format!("{name} is gone"),
        Some(JobState::Running) => format!("{name} runs"),
        Some(state) => format!("{name} is {state}"),
    }
}

/// Another queue or priority for selected jobs.
#[derive(Serialize, Deserialize)]
pub(crate) struct Move {
    pub(super) queue: Option<Queue>,
    pub(super) priority: Option<Priority>,
    pub(super) jobs: Vec<JobId>,
}

impl Question for Move {
    const NAME: &'static str = "alter_jobs";
    const IS_CHANGE: bool = true;
    const WAIT: Duration = CHANGE_WAIT;
    type Answer = Changed;

    fn operation(&self) -> &'static str {
        "alterJob"
    }

    fn target(&self) -> String {
        names_of(&self.jobs)
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Changed, Fault> {
        let command = |id: &JobId| {
            Command::Alter(Box::new(Alter {
                namespace: view.namespace().clone(),
                job: Some(id.clone()),
                queue: self.queue.clone(),
                priority: self.priority,
                ..Alter::default()
            }))
        };
        let replies = shard.call_all(self.jobs.iter().map(command).collect());
        let mut changed = Changed::default();
        for (id, reply) in self.jobs.iter().zip(replies.await?) {
            match reply {
                Ok(Reply::Altered { .. }) => changed.jobs += 1,
                Ok(_) => return Err(Fault::unexpected_reply()),
                Err(error) => {
                    let name = plain(&job_name(shard.id(), id));
                    let reason = Fault::from(error).detail;
                    changed.skipped.push(format!("{name}: {reason}"));
                }
            }
        }
        Ok(changed)
    }
}

/// What an action would do to the jobs that match, which changes nothing.
#[derive(Serialize, Deserialize)]
pub(crate) struct Try {
    pub(super) chosen: JobsAction,
    pub(super) query: JobQuery,
}

impl Question for Try {
    const NAME: &'static str = "dry_run";
    const WAIT: Duration = CHANGE_WAIT;
    type Answer = BulkResult;

    fn operation(&self) -> &'static str {
        self.chosen.action()
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<BulkResult, Fault> {
        let action: BulkAction = self.chosen.bulk("");
        let query = JobQuery {
            namespace: view.namespace().clone(),
            ..self.query.clone()
        };
        let bounds = BulkBounds::visits(LOOKED_MAX);
        Ok(shard.bulk(&action, query, bounds, true, None).await?)
    }
}

/// An operation on the jobs that match.
#[derive(Serialize, Deserialize)]
pub(crate) struct Begin {
    pub(super) chosen: JobsAction,
    pub(super) filter: JobFilter,
    /// Number of jobs after which it ends; `None`: none.
    pub(super) at_most: Option<u64>,
    pub(super) spread_over: Option<Duration>,
    pub(super) reason: String,
}

impl Question for Begin {
    const NAME: &'static str = "start_operation";
    const IS_CHANGE: bool = true;
    const WAIT: Duration = CHANGE_WAIT;
    type Answer = Stored<OperationRecord>;

    fn operation(&self) -> &'static str {
        self.chosen.action()
    }

    fn target(&self) -> String {
        let Ok(Value::Object(mut filter)) = serde_json::to_value(&self.filter) else {
            return String::new();
        };
        filter.retain(|_, value| !value.is_null());
        format!("jobs that match {}", Value::Object(filter))
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let start = StartOperation {
            namespace: view.namespace().clone(),
            action: self.chosen.operation(),
            filter: self.filter.clone(),
            created_before: None,
            at_most: self.at_most,
            spread_over: self.spread_over,
            reason: self.reason.clone(),
            by: view.rights.identity().to_string(),
        };
        Ok(Stored(shard.start_operation(start).await?))
    }
}

/// The operation once it has ended; `None` if that takes longer than `patience`.
#[derive(Serialize, Deserialize)]
pub(crate) struct End {
    pub(super) number: u64,
    pub(super) patience: Duration,
}

impl Question for End {
    const NAME: &'static str = "end_of_operation";
    const WAIT: Duration = CHANGE_WAIT;
    type Answer = Option<Stored<OperationRecord>>;

    fn operation(&self) -> &'static str {
        "getOperation"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let until = Instant::now() + self.patience.min(CHANGE_WAIT);
        let mut changes = shard.operation_changes();
        loop {
            changes.borrow_and_update();
            let number = OperationNumber(self.number);
            let now = shard.operation(view.namespace(), number).await?;
            if now.state != OperationState::Running {
                return Ok(Some(Stored(now)));
            }
            if !matches!(timeout_at(until, changes.changed()).await, Ok(Ok(()))) {
                return Ok(None);
            }
        }
    }
}

/// Cancels or retries the jobs of a graph on a shard. Returns how many were changed.
#[derive(Serialize, Deserialize)]
pub(crate) struct ActOnGraph {
    pub(super) chosen: JobsAction,
    pub(super) graph: Graph,
    pub(super) reason: String,
}

impl Question for ActOnGraph {
    const NAME: &'static str = "act_on_graph";
    const IS_CHANGE: bool = true;
    const WAIT: Duration = CHANGE_WAIT;
    type Answer = u64;

    fn operation(&self) -> &'static str {
        self.chosen.action()
    }

    fn target(&self) -> String {
        format!("graph={}", self.graph)
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<u64, Fault> {
        let (namespace, graph) = (view.namespace().clone(), self.graph.clone());
        if self.chosen == JobsAction::Retry {
            let done = shard.retry_graph(namespace, graph, None, None).await?;
            return Ok(done.changed);
        }
        let command = Cancel {
            namespace,
            jobs: Selection::Graph(graph),
            reason: self.reason.clone(),
        };
        match apply(shard, Command::Cancel(Box::new(command))).await? {
            Reply::Changed { count, .. } => Ok(count),
            _ => Err(Fault::unexpected_reply()),
        }
    }
}

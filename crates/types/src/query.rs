//! Questions that the engine answers from memory, and listings that the store answers.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::audit::AuditQuery;
use crate::external::ExternalJob;
use crate::id::{JobId, JobKey, ShardId};
use crate::job::Priority;
use crate::name::{
    Graph, Group, IdempotencyKey, Kind, LabelKey, LabelValue, Namespace, Queue, ScheduleId, Tag,
    UniqueKey, Worker,
};
use crate::operation::OperationNumber;
use crate::states::JobStates;
use crate::statistics::Day;
use crate::time::Timestamp;

/// A question to the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// The known queues of a namespace with their counts, in order of names: those after a name, and at most how
    /// many.
    Queues(Namespace, Option<Queue>, usize),
    /// A queue by its name, known or not.
    Queue(Namespace, Queue),
    /// Number of jobs in each state: of one queue, or of all queues of the namespace.
    Counts(Namespace, Option<Queue>),
    /// The ready jobs of a queue in the order in which they are leased: those after a place, and at most how many.
    NextJobs(Namespace, Queue, Option<ReadyPlace>, usize),
    /// Why the jobs of a queue are not running.
    QueueWhy(Namespace, Queue),
    /// Names that begin with these bytes, in their order: at most how many.
    Names(Namespace, Named, Vec<u8>, usize),
    /// All namespaces with their settings.
    Namespaces,
    /// The workers of a namespace with the jobs that they hold, in order of names: those after a name, and at most how
    /// many.
    Workers(Namespace, Option<Worker>, usize),
    /// The failure groups of a namespace with the number of kept jobs in each.
    FailureGroups(Namespace),
    /// The most used tags of a namespace, most used first: how many to skip and to return.
    TopTags(Namespace, usize, usize),
    /// The tracked ids of a namespace.
    Tracked(Namespace),
    /// The schedules of a namespace.
    Schedules(Namespace),
    /// The next times of a schedule as if it were not paused: at most how many.
    ScheduleTimes(Namespace, ScheduleId, usize),
    /// A schedule, by its id.
    Schedule(Namespace, ScheduleId),
    /// The statistics of a queue and day.
    Statistics(Namespace, Queue, Day),
    /// Why a job is not running.
    Why(Namespace, JobId),
    /// The consequences that the cancellation of a job would have.
    CancelEffects(Namespace, JobId),
    /// A job of an external system by its id, shown as a job of the engine.
    ExternalJob(Namespace, JobId),
    /// A page of jobs of external systems, in their own order. The engine checks only some of the conditions; the
    /// caller must check the others.
    ExternalJobs(Box<JobQuery>),
    /// An operation, by its number.
    Operation(Namespace, OperationNumber),
    /// Operations of a namespace, newest first: those before a number, and at most how many.
    Operations(Namespace, Option<OperationNumber>, usize),
    /// Operations of every namespace that have not ended, in order of their numbers.
    RunningOperations,
    /// A page of the audit log.
    AuditLog(AuditQuery),
    /// What this shard knows about the others.
    Peers,
    /// Messages that wait for a shard: from which number on, and at most how many.
    Outbox(ShardId, u64, usize),
    /// Jobs that wait for jobs of this other shard; none before it is time to ask that shard about them.
    Waits(ShardId),
    /// Submissions over several shards that are not decided.
    Undecided,
    /// The submission over several shards that this shard decided under an idempotency key.
    SubmissionAnswer(Namespace, IdempotencyKey),
    /// Which of these ids have a job already whose content has the fingerprint beside it.
    ExistingIds(Namespace, Vec<(JobId, u64)>),
    /// Recomputes every index and compares it with the engine's (`rel A1`).
    Audit,
}

/// What the names of [`Query::Names`] name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Queues that were used or configured.
    Queue,
    /// Tags of kept jobs.
    Tag,
    /// Workers seen within a day.
    Worker,
    /// Schedules of the namespace.
    Schedule,
    /// Failure groups with kept jobs.
    Group,
}

/// The position of a ready job in its queue.
pub type ReadyPlace = (Priority, u64, JobKey);

/// A page of jobs. A job must meet all conditions that are set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobQuery {
    /// Namespace to search in.
    pub namespace: Namespace,
    /// Only jobs of this queue, if given.
    pub queue: Option<Queue>,
    /// Only jobs in one of these states; all by default.
    pub states: JobStates,
    /// Only jobs of this kind, if given.
    pub kind: Option<Kind>,
    /// Only jobs whose kind begins with these bytes, if given.
    pub kind_prefix: Option<Vec<u8>>,
    /// Only jobs whose id begins with these bytes, if given.
    pub id_prefix: Option<Vec<u8>>,
    /// Only jobs with all of these tags; at most [`crate::limits::CONDITION_VALUES_MAX`].
    pub tags: Vec<Tag>,
    /// Only jobs with all of these labels; at most [`crate::limits::CONDITION_VALUES_MAX`].
    pub labels: Vec<(LabelKey, LabelValue)>,
    /// Only members of this graph, if given.
    pub graph: Option<Graph>,
    /// Only jobs that this schedule made, if given.
    pub schedule: Option<ScheduleId>,
    /// Only jobs that failed in this group, if given.
    pub group: Option<Group>,
    /// Only jobs whose failure message contains this text, if given.
    pub failure_text: Option<String>,
    /// Only jobs that this worker holds, if given.
    pub worker: Option<Worker>,
    /// Only jobs enqueued at this time or later, if given.
    pub created_from: Option<Timestamp>,
    /// Only jobs enqueued before this time, if given.
    pub created_before: Option<Timestamp>,
    /// Only jobs that ended at this time or later, if given.
    pub finished_from: Option<Timestamp>,
    /// Only jobs that ended before this time, if given.
    pub finished_before: Option<Timestamp>,
    /// Only jobs that are tracked, or that are not, if given.
    pub tracked: Option<bool>,
    /// Only jobs with at least this number of attempts, if given.
    pub attempt_min: Option<u32>,
    /// Only jobs with this unique key, if given.
    pub unique_key: Option<UniqueKey>,
    /// Whether the newest jobs come first instead of the oldest.
    pub newest_first: bool,
    /// Last job of the previous page; `None`: from the start.
    pub after: Option<JobKey>,
    /// Last job of the previous page if it belongs to an external system; those come after all jobs of the store. It is
    /// sent apart from the query, as a [`crate::PageCursor`].
    #[serde(skip)]
    pub after_external_job: Option<ExternalJob>,
    /// Maximum number of jobs, 1 to [`crate::limits::PAGE_JOBS_MAX`].
    pub limit: usize,
    /// How much of the store is looked at before the page ends, full or not. By default all of it.
    pub budget: Budget,
}

/// How much a reader looks at. A page ends early, with a cursor, once either bound is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Maximum number of records; `None`: no limit.
    pub records: Option<u64>,
    /// Maximum time, checked every few hundred records; `None`: no limit.
    pub time: Option<Duration>,
}

impl Budget {
    /// A page of a list that people look at: 20,000 records or this long.
    pub fn of_page(time: Duration) -> Self {
        Self {
            records: Some(20_000),
            time: Some(time),
        }
    }
}

impl JobQuery {
    /// The states that a job that matches can have: only jobs that ended have a time of their end.
    pub fn possible_states(&self) -> JobStates {
        let is_of_ended = self.finished_from.is_some() || self.finished_before.is_some();
        if is_of_ended {
            self.states.and(JobStates::ENDED)
        } else {
            self.states
        }
    }

    /// The query with no other conditions than namespace, queue and states, which counters in memory answer.
    #[must_use]
    pub fn without_conditions(&self) -> Self {
        Self {
            namespace: self.namespace.clone(),
            queue: self.queue.clone(),
            states: self.states,
            newest_first: self.newest_first,
            after: self.after,
            after_external_job: self.after_external_job.clone(),
            limit: self.limit,
            budget: self.budget,
            ..Self::default()
        }
    }
}

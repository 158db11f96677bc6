//! Questions that the engine answers from memory, and listings that the store answers.

use crate::external::ExternalJob;
use crate::id::{JobId, JobKey, ShardId};
use crate::name::{
    Graph, Group, IdempotencyKey, Kind, LabelKey, LabelValue, Namespace, Queue, ScheduleId, Tag,
    Worker,
};
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
    /// All namespaces with their settings.
    Namespaces,
    /// The workers of a namespace with the jobs that they hold.
    Workers(Namespace),
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
    /// A job of an external system by its id, shown as a job of the engine.
    ExternalJob(Namespace, JobId),
    /// A page of jobs of external systems, in their own order. The engine checks only some of the conditions; the
    /// caller must check the others.
    ExternalJobs(Box<JobQuery>),
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

/// A page of jobs. A job must meet all conditions that are set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobQuery {
    /// Namespace to search in.
    pub namespace: Namespace,
    /// Only jobs of this queue, if given.
    pub queue: Option<Queue>,
    /// Only jobs in one of these states; all by default.
    pub states: JobStates,
    /// Only jobs of this kind, if given.
    pub kind: Option<Kind>,
    /// Only jobs with this tag, if given.
    pub tag: Option<Tag>,
    /// Only jobs with this label and value, if given.
    pub label: Option<(LabelKey, LabelValue)>,
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
    /// Whether the newest jobs come first instead of the oldest.
    pub newest_first: bool,
    /// Last job of the previous page; `None`: from the start.
    pub after: Option<JobKey>,
    /// Last job of the previous page if it belongs to an external system; those come after all jobs of the store.
    pub after_external_job: Option<ExternalJob>,
    /// Maximum number of jobs, 1 to [`crate::limits::PAGE_JOBS_MAX`].
    pub limit: usize,
}

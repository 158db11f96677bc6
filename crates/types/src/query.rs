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
    /// The known queues of a namespace behind a name, with counts, at most so many, by name.
    Queues(Namespace, Option<Queue>, usize),
    /// One queue, known or not.
    Queue(Namespace, Queue),
    /// All namespaces with their settings.
    Namespaces,
    /// All workers seen, with what they hold.
    Workers(Namespace),
    /// Failure groups with the number of kept jobs in each.
    FailureGroups(Namespace),
    /// The most used tags, most used first: skip, take.
    TopTags(Namespace, usize, usize),
    /// The tracked ids of a namespace.
    Tracked(Namespace),
    /// The schedules of a namespace.
    Schedules(Namespace),
    /// The next times of a schedule, at most so many, as if it were not paused.
    ScheduleTimes(Namespace, ScheduleId, usize),
    /// A schedule, by its id.
    Schedule(Namespace, ScheduleId),
    /// Statistics of a queue and day.
    Statistics(Namespace, Queue, Day),
    /// Why a job is not running.
    Why(Namespace, JobId),
    /// A job of qless or an item of raw keys, as if it were a job of ours.
    ExternalJob(Namespace, JobId),
    /// Those of them that may be asked for, from the place on that the query names; in no order but that of places, and
    /// not all conditions are looked at.
    ExternalJobs(Box<JobQuery>),
    /// What is known of other shards.
    Peers,
    /// Messages that wait for a shard, from this number on, at most so many.
    Outbox(ShardId, u64, usize),
    /// Jobs that wait for jobs of this shard, and about which it is time to ask it; none before that time.
    Waits(ShardId),
    /// Submissions over several shards that are not decided.
    Undecided,
    /// The submission over several shards that this shard decided under an idempotency key.
    SubmissionAnswer(Namespace, IdempotencyKey),
    /// Which of these ids have jobs already, of the content that each fingerprint stands for.
    Given(Namespace, Vec<(JobId, u64)>),
    /// Recomputes every index and compares (`rel A1`).
    Audit,
}

/// A page of jobs, from the store. All given conditions must hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobQuery {
    /// The namespace to search in.
    pub namespace: Namespace,
    /// Only jobs of this queue, if given.
    pub queue: Option<Queue>,
    /// In one of these states; all of them by default.
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
    /// Failed in this group.
    pub group: Option<Group>,
    /// Whose failure message contains this text.
    pub failure_text: Option<String>,
    /// Held by this worker.
    pub worker: Option<Worker>,
    /// Created at or after.
    pub created_from: Option<Timestamp>,
    /// Only jobs created before this time, if given.
    pub created_before: Option<Timestamp>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
    /// Goes on after this job (the last one of the page before).
    pub after: Option<JobKey>,
    /// Goes on after this job that no store has, behind all that stores have.
    pub after_external_job: Option<ExternalJob>,
    /// At most so many, 1 to 1000.
    pub limit: usize,
}

//! Commands: requests to the engine. Each has an imperative verb as its name and fields in domain units.

mod class;
mod operation;

use std::time::Duration;

use bytes::Bytes;

use crate::audit::AuditRecord;
use crate::external::ExternalCall;
use crate::external::import::Import;
use crate::id::{JobId, LeaseToken, ShardId};
use crate::job::{FailurePolicy, Outcome, Priority, Progress};
use crate::name::{
    Graph, Group, IdempotencyKey, LabelKey, LabelValue, Namespace, Queue, RequestId, ScheduleId,
    Tag, Worker,
};
use crate::peer::{CheckedWaits, OutboxRecord, Part, Wait};
use crate::query::Query;
use crate::queue::{NamespaceSettings, QueueSettings};
use crate::schedule::ScheduleRecord;
use crate::time::Timestamp;
use crate::words::words;

pub use self::operation::{OperationStep, StartOperation, StopOperation, WorkOperation};
pub use crate::job::{Dependency, NewEdge, NewInput, NewJob, Start, Unique};

/// A request to the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Enqueues one job, many, or a graph: all or none.
    Enqueue(Box<Enqueue>),
    /// Leases jobs to a worker.
    Lease(Box<Lease>),
    /// Extends a lease, and can report progress or replace the payload.
    Renew(Box<Renew>),
    /// Ends the current attempt with success.
    Complete(Box<Complete>),
    /// Ends the current attempt with a failure.
    Fail(Box<Fail>),
    /// Gives a job back, started or not.
    Release(Box<Release>),
    /// Appends to the log of the current attempt.
    AppendLog(Box<AppendLog>),
    /// Cancels live jobs; finished ones do not change.
    Cancel(Box<Cancel>),
    /// Puts finished jobs back on their queue.
    Retry(Box<Retry>),
    /// Ends a running attempt by hand, without waiting for its lease.
    TimeOut(TimeOut),
    /// Removes jobs with everything stored about them; a running job loses its lease.
    Delete(Delete),
    /// Removes finished jobs whose retention has passed. Sent by the shard's housekeeping.
    Retire(Retire),
    /// Changes a live job, or the tags, labels and tracking of any job.
    Alter(Box<Alter>),
    /// Makes a blocked job wait for more jobs.
    AddDependencies(AddDependencies),
    /// Makes a blocked job wait for fewer jobs.
    RemoveDependencies(RemoveDependencies),
    /// Changes the settings of a queue.
    ConfigureQueue(Box<ConfigureQueue>),
    /// Hides a queue from listings; the engine removes it when it has no jobs.
    ForgetQueue(ForgetQueue),
    /// Replaces the settings of a namespace.
    ConfigureNamespace(Box<ConfigureNamespace>),
    /// Creates or replaces a schedule.
    PutSchedule(Box<PutSchedule>),
    /// Removes a schedule; its jobs stay.
    RemoveSchedule(RemoveSchedule),
    /// Enqueues a job of a schedule now.
    RunSchedule(RunSchedule),
    /// Pauses or resumes a schedule.
    PauseSchedule(PauseSchedule),
    /// Deregisters a worker: its leases end as released.
    DeregisterWorker(DeregisterWorker),
    /// Starts an operation on all jobs that match a filter.
    StartOperation(Box<StartOperation>),
    /// Works through the next page of an operation. Sent by the shard's own task.
    WorkOperation(Box<WorkOperation>),
    /// Stops an operation before its next page.
    StopOperation(StopOperation),
    /// Stores records of the audit log.
    KeepAudit(KeepAudit),
    /// Reserves numbers for the jobs of a submission over several shards.
    Reserve(Reserve),
    /// Stores one shard's part of a submission until the submission is decided (`rel G8`).
    Prepare(Box<Part>),
    /// Decides a submission, on the shard that its parts name as the decider.
    Decide(Box<Decide>),
    /// Applies messages of another shard.
    Receive(Box<Receive>),
    /// Records that another shard has applied messages of this one durably.
    Confirm(Confirm),
    /// Resumes traffic with a peer after one of the two was restored to an earlier state.
    Reconcile(Reconcile),
    /// A call of a client of an external system.
    External(ExternalCall),
    /// Imports records of another server.
    Import(Box<Import>),
    /// Reads from memory, in the order of commands.
    Query(Box<Query>),
}

/// Enqueues `jobs`: all or none. They form a graph if there are edges between them or `graph` is set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enqueue {
    /// The namespace to enqueue in.
    pub namespace: Namespace,
    /// The jobs, in the order of the answer. All are stored, or none.
    pub jobs: Vec<NewJob>,
    /// Idempotency key: a repeat with the same key within a day returns the answer of the first. `None`: each
    /// submission is new.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Whether the jobs form a graph even without edges between them.
    pub graph: bool,
}

/// How a lease chooses among several queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeMode {
    /// From a queue only if those before it are empty (the default).
    #[default]
    Ordered,
    /// From each queue in turn, one job at a time.
    RoundRobin,
    /// From each queue in turn, in proportion to its weight.
    Weighted,
}
words!(TakeMode { "ordered" => Ordered, "round_robin" => RoundRobin, "weighted" => Weighted });

/// A queue of a lease command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeFrom {
    /// Queue to lease from.
    pub queue: Queue,
    /// Weight of the queue in [`TakeMode::Weighted`], at least 1.
    pub weight: u32,
}

/// Leases up to `jobs_max` jobs to a worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lease {
    /// The namespace to lease from.
    pub namespace: Namespace,
    /// The queues to lease from; at least one.
    pub queues: Vec<TakeFrom>,
    /// How jobs are taken if there are several queues.
    pub mode: TakeMode,
    /// The worker that gets the jobs; `None` and an empty name are refused.
    pub worker: Option<Worker>,
    /// Maximum number of jobs, 1 to [`crate::limits::LEASE_JOBS_MAX`].
    pub jobs_max: u32,
    /// Length of the leases; `None`: as the queue says.
    pub lease_for: Option<Duration>,
    /// Id of the request: a repeat with the same id returns the same grants while they are live. `None`: each request
    /// is new.
    pub request: Option<RequestId>,
}

/// A lease, as a report names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRef {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The id of the leased job.
    pub job: JobId,
    /// The token of the lease, as the grant gave it.
    pub token: LeaseToken,
}

/// Extends a lease. Without `progress` and `payload` it costs no flush.
#[derive(Clone, Debug, PartialEq)]
pub struct Renew {
    /// Job and token of the lease to extend.
    pub held: LeaseRef,
    /// Length from now on; `None`: the longest that was granted or requested.
    pub lease_for: Option<Duration>,
    /// Progress of the attempt; `None`: as before.
    pub progress: Option<Progress>,
    /// Payload for later attempts; `None`: as before.
    pub payload: Option<Bytes>,
}

/// Ends the attempt with success.
#[derive(Clone, Debug, PartialEq)]
pub struct Complete {
    /// Lease of the attempt that succeeded.
    pub held: LeaseRef,
    /// Result of the job, kept until retention removes the job; `None`: no result.
    pub result: Option<Bytes>,
    /// Queue in which the job continues instead of ending; `None`: the job succeeds.
    pub next: Option<Next>,
}

/// The queue in which a completed job continues.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// Queue in which the job continues.
    pub queue: Queue,
    /// Delay before the job is ready there; zero: none.
    pub delay: Duration,
    /// Jobs that must succeed first; may be empty.
    pub after: Vec<JobId>,
    /// Payload there; `None`: as before.
    pub payload: Option<Bytes>,
}

/// Ends the attempt with a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Fail {
    /// Lease of the attempt that failed.
    pub held: LeaseRef,
    /// Group of the failure: failures with one cause share it.
    pub group: Group,
    /// Message for people; may be empty.
    pub message: String,
    /// Whether to fail the job without further retries.
    pub permanent: bool,
    /// Pause before the next retry; `None`: as the retry policy says.
    pub retry_after: Option<Duration>,
    /// Whether the worker or its program died. The job then continues at once as if its lease had expired, and the
    /// other fields do not count. For jobs of external systems this is an ordinary failure.
    pub lost: bool,
}

/// Gives a leased job back to its queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// Lease of the attempt that is given up.
    pub held: LeaseRef,
    /// Delay before the job is ready again; zero: none.
    pub delay: Duration,
    /// Whether the attempt counts against the retry limit.
    pub counted: bool,
    /// Whether the server could not hand the job out. Such a release never counts, and is not one of the limited number
    /// of uncounted releases. Only the shard sets this.
    pub by_server: bool,
    /// Whether the job gets back its old position instead of going to the end of the queue.
    pub keep_place: bool,
    /// Reason for people; may be empty.
    pub reason: String,
}

/// Appends to the log of the attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendLog {
    /// Lease of the attempt that wrote the bytes.
    pub held: LeaseRef,
    /// Position of `bytes` in the log of this attempt, by which the engine recognises a repeat.
    pub offset: u64,
    /// Text or binary data to append.
    pub bytes: Bytes,
}

/// The jobs that a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The jobs with these ids.
    Jobs(Vec<JobId>),
    /// All members of a graph.
    Graph(Graph),
}

/// Cancels jobs; those that have ended do not change.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// The namespace of the jobs.
    pub namespace: Namespace,
    /// The jobs to cancel.
    pub jobs: Selection,
    /// Reason for people, shown in the history; may be empty.
    pub reason: String,
}

/// Puts finished jobs back on their queue with a new series of attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// The namespace of the jobs.
    pub namespace: Namespace,
    /// The finished jobs to retry; may be empty if a graph is given.
    pub jobs: Vec<JobId>,
    /// Queue that the jobs enter; `None`: their own.
    pub queue: Option<Queue>,
    /// Whether to retry also the jobs that ended because these did: those that failed because a dependency failed, at
    /// any distance, and those that were cancelled because no job needed them any more. They keep their queues.
    /// Shards that hold some of them are asked to do the same.
    pub dependents: bool,
    /// Graph that is retried as a whole: its members on other shards that failed because of these are retried too.
    /// Without `jobs`, the other shards of the graph are asked to retry the members that failed or were cancelled
    /// there.
    pub graph: Option<Graph>,
}

/// Ends a running attempt by hand.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeOut {
    /// The namespace of the jobs.
    pub namespace: Namespace,
    /// The running jobs whose attempts to end.
    pub jobs: Vec<JobId>,
}

/// Removes jobs with everything stored about them.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// The namespace of the jobs.
    pub namespace: Namespace,
    /// The jobs to remove; live ones are cancelled first.
    pub jobs: Vec<JobId>,
}

/// Removes finished jobs whose retention has passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Retire {
    /// Candidates that the store found; the engine keeps those that are not due or are still needed.
    pub jobs: Vec<ExpiredJob>,
}

/// A finished job that may have outlived its retention.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpiredJob {
    /// The record of the finished job.
    pub record: Box<crate::job::JobRecord>,
    /// Whether the job is beyond the number of jobs that its queue keeps of this outcome.
    pub beyond_count: bool,
}

/// Changes a job. Fields that are `None` or empty do not change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alter {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The job to change.
    pub job: Option<JobId>,
    /// New priority, for a job that has not ended.
    pub priority: Option<Priority>,
    /// New queue, for a job that does not run.
    pub queue: Option<Queue>,
    /// New start, for a job that is scheduled or ready.
    pub start: Option<Start>,
    /// New payload, for a job that does not run.
    pub payload: Option<Bytes>,
    /// Tags that the job gets, unless it has them.
    pub tags_added: Vec<Tag>,
    /// Tags to remove; those that the job does not have are ignored.
    pub tags_removed: Vec<Tag>,
    /// Labels to add or replace, by key.
    pub labels_set: Vec<(LabelKey, LabelValue)>,
    /// Labels to remove; keys that the job does not have are ignored.
    pub labels_removed: Vec<LabelKey>,
    /// Whether to track the job.
    pub tracked: Option<bool>,
    /// Note for the history: its text, and data as JSON text, which may be empty.
    pub note: Option<(String, String)>,
}

/// Makes a blocked job wait for more jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct AddDependencies {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// Blocked job to change.
    pub job: JobId,
    /// Dependencies to add; those that have succeeded count as met.
    pub on: Vec<JobId>,
    /// What happens if one of them does not succeed.
    pub policy: FailurePolicy,
}

/// Makes a blocked job wait for fewer jobs. Dependencies that carry data cannot be removed.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoveDependencies {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// Blocked job to change.
    pub job: JobId,
    /// Dependencies to remove; `None`: all.
    pub on: Option<Vec<JobId>>,
}

/// Changes the settings of a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigureQueue {
    /// The namespace of the queue.
    pub namespace: Namespace,
    /// The queue; the command creates it if it is new.
    pub queue: Queue,
    /// The settings to change, all or one.
    pub change: QueueChange,
}

/// The settings of a queue to change.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueChange {
    /// All settings; those that are `None` fall back to the namespace.
    All(QueueSettings),
    /// All settings, if those that the queue has are still of a version ([`QueueSettings::version`]).
    AllIf {
        /// The settings that replace them.
        settings: QueueSettings,
        /// Version of the settings that they replace.
        version: u64,
    },
    /// Whether the queue is paused; its other settings stay.
    Paused(bool),
}

/// Hides a queue from listings.
#[derive(Clone, Debug, PartialEq)]
pub struct ForgetQueue {
    /// The namespace of the queue.
    pub namespace: Namespace,
    /// Queue to hide; it must have no live jobs.
    pub queue: Queue,
}

/// Replaces the settings of a namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigureNamespace {
    /// The namespace; the command creates it if it is new.
    pub namespace: Namespace,
    /// All settings of the namespace.
    pub settings: NamespaceSettings,
}

/// Creates or replaces a schedule. The engine sets `created_at`, `next_at`, `runs` and `last_job`.
#[derive(Clone, Debug, PartialEq)]
pub struct PutSchedule {
    /// Schedule; it replaces an existing one with its id.
    pub schedule: ScheduleRecord,
}

/// Enqueues a job of a schedule now, regardless of its times, its pause and its overlap policy.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSchedule {
    /// The namespace of the schedule.
    pub namespace: Namespace,
    /// The id of the schedule.
    pub id: ScheduleId,
}

/// Pauses or resumes a schedule. Its other settings stay as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct PauseSchedule {
    /// The namespace of the schedule.
    pub namespace: Namespace,
    /// The id of the schedule.
    pub id: ScheduleId,
    /// Whether the schedule is paused from now on.
    pub is_paused: bool,
}

/// Removes a schedule; its jobs stay.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoveSchedule {
    /// The namespace of the schedule.
    pub namespace: Namespace,
    /// The id of the schedule.
    pub id: ScheduleId,
}

/// Deregisters a worker: its leases end as released.
#[derive(Clone, Debug, PartialEq)]
pub struct DeregisterWorker {
    /// The namespace that the worker leases from.
    pub namespace: Namespace,
    /// The name of the worker.
    pub worker: Worker,
}

/// Stores records of the audit log, in order; the engine gives them their numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct KeepAudit {
    /// The records, oldest first.
    pub records: Vec<AuditRecord>,
}

/// Reserves numbers for `jobs` jobs. They are valid until the shard starts again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// Number of jobs to reserve numbers for.
    pub jobs: u32,
}

/// Decides a submission over several shards. A decision is final (`rel G8`).
#[derive(Clone, Debug, PartialEq)]
pub struct Decide {
    /// The namespace of the submission.
    pub namespace: Namespace,
    /// Graph of the submission.
    pub graph: Graph,
    /// Whether the submission is committed: all its parts are durable. Otherwise it is aborted.
    pub is_committed: bool,
}

/// Messages of another shard, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Receive {
    /// The shard that sends the messages.
    pub from: ShardId,
    /// The epoch of the sender's stream that the numbers belong to (see [`crate::PeerRecord::stream_epoch`]).
    pub stream_epoch: u64,
    /// Number of the last message that the sender has written. A smaller number than before shows that its store was
    /// restored.
    pub last_sent: u64,
    /// Number of the last message that the sender knows to be confirmed by this shard.
    pub confirmed: u64,
    /// Messages, consecutively numbered, with their results.
    pub messages: Vec<OutboxRecord>,
    /// Jobs of the sender that wait for jobs of this shard. The answer lists those that this shard does not know.
    pub waits: Vec<Wait>,
}

/// Records that another shard has applied messages of this one durably.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirm {
    /// The shard that has received our messages.
    pub peer: ShardId,
    /// Newest epoch of our stream that the peer has seen; `up_to` belongs to it.
    pub stream_epoch: u64,
    /// Number of the last message that the peer has applied.
    pub up_to: u64,
    /// Tag of that message as the peer has it (see [`OutboxRecord::tag`]); 0 if the peer does not know it.
    pub tag: u64,
    /// Result of the check of waits that were sent along; `None` if none were.
    pub checked_waits: Option<CheckedWaits>,
}

/// Resumes traffic with a peer after one of the two was restored to an earlier state (`rel X6`).
#[derive(Clone, Debug, PartialEq)]
pub struct Reconcile {
    /// The shard to resume traffic with.
    pub peer: ShardId,
}

/// A search for finished jobs whose retention may have passed (see `Engine::retention_due`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpiredJobsQuery {
    /// Jobs that ended at or before `before` and have no retention of their own, oldest first.
    ByAge {
        /// The namespace of the queue.
        namespace: Namespace,
        /// The queue of the finished jobs.
        queue: Queue,
        /// The outcome of the finished jobs.
        outcome: Outcome,
        /// Latest time of the end.
        before: Timestamp,
    },
    /// The oldest `excess` jobs of a queue and outcome.
    ByCount {
        /// The namespace of the queue.
        namespace: Namespace,
        /// The queue of the finished jobs.
        queue: Queue,
        /// The outcome of the finished jobs.
        outcome: Outcome,
        /// Number of jobs beyond the limit.
        excess: u64,
    },
    /// Jobs of any queue whose own retention has passed.
    ByOwnTime {
        /// Latest time of the end.
        before: Timestamp,
    },
}

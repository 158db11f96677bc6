//! Commands: requests to change state, imperative verb, fields in domain units.

mod class;

use std::time::Duration;

use bytes::Bytes;

use crate::external::ExternalCall;
use crate::id::{JobId, LeaseToken, ShardId};
use crate::import::Import;
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

pub use crate::job::{Dependency, NewEdge, NewInput, NewJob, Start, Unique};

/// A request to the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Enqueues one job, many, or a graph: all or none.
    Enqueue(Box<Enqueue>),
    /// Takes jobs under leases.
    Lease(Box<Lease>),
    /// Extends a lease; tells progress; replaces the payload.
    Renew(Box<Renew>),
    /// Ends the current attempt with success.
    Complete(Box<Complete>),
    /// Ends the current attempt with a failure.
    Fail(Box<Fail>),
    /// Gives a job back unrun, or to be run again.
    Release(Box<Release>),
    /// Appends to the log of the current attempt.
    AppendLog(Box<AppendLog>),
    /// Cancels live jobs; finished ones stay as they are.
    Cancel(Box<Cancel>),
    /// Puts finished jobs back on their queue.
    Retry(Box<Retry>),
    /// Ends a running attempt by hand, without waiting for its lease.
    TimeOut(TimeOut),
    /// Removes jobs altogether; what runs loses its lease.
    Delete(Delete),
    /// Removes finished jobs whose retention has passed. Sent by the shard's housekeeping.
    Retire(Retire),
    /// Changes a job that has not ended, or tags, labels and tracking of any.
    Alter(Box<Alter>),
    /// Makes a blocked job wait for more jobs.
    AddDependencies(AddDependencies),
    /// Makes a blocked job wait for fewer jobs.
    RemoveDependencies(RemoveDependencies),
    /// Changes the settings of a queue.
    ConfigureQueue(Box<ConfigureQueue>),
    /// Drops a queue from listings; removes it when it has no jobs.
    ForgetQueue(ForgetQueue),
    /// Replaces the settings of a namespace.
    ConfigureNamespace(Box<ConfigureNamespace>),
    /// Makes or replaces a schedule.
    PutSchedule(Box<PutSchedule>),
    /// Removes a schedule; its jobs stay.
    RemoveSchedule(RemoveSchedule),
    /// Makes a job of a schedule now.
    RunSchedule(RunSchedule),
    /// A worker deregisters: its leases end as released, its name is forgotten.
    DeregisterWorker(DeregisterWorker),
    /// Numbers for the jobs of a submission over several shards.
    Reserve(Reserve),
    /// Keeps one shard's part of a submission until it is decided (`rel G8`).
    Prepare(Box<Part>),
    /// Decides a submission, on the shard that its parts name as the decider.
    Decide(Box<Decide>),
    /// Applies what another shard says.
    Receive(Box<Receive>),
    /// Another shard has our messages, durably.
    Confirm(Confirm),
    /// Takes traffic up again with a peer that went back in time.
    Reconcile(Reconcile),
    /// A call of a client of an external system: raw keys, qless.
    External(ExternalCall),
    /// Takes records of another server over.
    Import(Box<Import>),
    /// Reads from memory, in the order of commands.
    Query(Box<Query>),
}

/// Enqueues `jobs`: all or none. Two or more with edges between them, or `graph` set, are a graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enqueue {
    /// The namespace to enqueue in.
    pub namespace: Namespace,
    /// The jobs, in the order of the answer. All are stored, or none.
    pub jobs: Vec<NewJob>,
    /// A repeat under the same key within a day returns the first one's answer.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Whether to name the whole as a graph, for cancelling and showing.
    pub graph: bool,
}

/// How several queues are taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeMode {
    /// A queue only when those named before it are empty (default).
    #[default]
    Ordered,
    /// From each queue in turn, one job at a time.
    RoundRobin,
    /// In turn, by weight.
    Weighted,
}
words!(TakeMode { "ordered" => Ordered, "round_robin" => RoundRobin, "weighted" => Weighted });

/// A queue to take from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeFrom {
    /// The queue to lease from.
    pub queue: Queue,
    /// Its share under [`TakeMode::Weighted`], at least 1.
    pub weight: u32,
}

/// Takes up to `jobs_max` jobs under leases.
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
    /// At most so many.
    pub jobs_max: u32,
    /// Length of the leases; `None`: the queue's.
    pub lease_for: Option<Duration>,
    /// A repeat under the same id, while those leases live, gets the same grants.
    pub request: Option<RequestId>,
}

/// Names the attempt that a report is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
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
    /// The attempt whose lease to extend.
    pub held: Held,
    /// A new length from now on; `None`: the longest that was granted or asked for.
    pub lease_for: Option<Duration>,
    /// How far it is.
    pub progress: Option<Progress>,
    /// A new payload for this and later attempts. `None`: the payload stays.
    pub payload: Option<Bytes>,
}

/// Ends the attempt with success.
#[derive(Clone, Debug, PartialEq)]
pub struct Complete {
    /// The attempt that has succeeded.
    pub held: Held,
    /// Kept until retention removes it; `None`: no result.
    pub result: Option<Bytes>,
    /// Goes on in another queue instead of ending.
    pub next: Option<Next>,
}

/// Where a completed job goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Next {
    /// The queue in which the job goes on.
    pub queue: Queue,
    /// The pause before the job is ready there; zero: none.
    pub delay: Duration,
    /// Once these have succeeded.
    pub after: Vec<JobId>,
    /// The payload there. `None`: the payload stays.
    pub payload: Option<Bytes>,
}

/// Ends the attempt with a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Fail {
    /// The attempt that has failed.
    pub held: Held,
    /// Failures of one cause share a group.
    pub group: Group,
    /// What went wrong, for people; may be empty.
    pub message: String,
    /// Rules further retries out.
    pub permanent: bool,
    /// Overrides the pause before the next retry.
    pub retry_after: Option<Duration>,
    /// The worker or program died, which says nothing about the job: the job goes on at once as if its lease had
    /// run out, and nothing else said here counts. To jobs of qless it is a failure like others.
    pub lost: bool,
}

/// Gives a job back.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// The attempt that is given up.
    pub held: Held,
    /// Ready again after so long.
    pub delay: Duration,
    /// Whether the attempt counts against the retries.
    pub counted: bool,
    /// Whether the server could not hand the job out. Such a release never counts, and is not one of the limited number
    /// of uncounted releases. Only the shard sets this.
    pub by_server: bool,
    /// Back to its old place instead of the end of the line.
    pub keep_place: bool,
    /// Why the job is given back, for people; may be empty.
    pub reason: String,
}

/// Appends to the log of the attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct AppendLog {
    /// The attempt that has written the bytes.
    pub held: Held,
    /// Bytes of this attempt's log sent before; a repeat is recognised by it.
    pub offset: u64,
    /// The bytes to append; any text or binary data.
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

/// Cancels jobs; those that have ended stay as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Cancel {
    /// The namespace of the jobs.
    pub namespace: Namespace,
    /// The jobs to cancel.
    pub jobs: Selection,
    /// Why, for people; shown in the history. May be empty.
    pub reason: String,
}

/// Puts finished jobs back on their queue with a new series of attempts.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// The namespace of the jobs.
    pub namespace: Namespace,
    /// The finished jobs to retry; may be empty if a graph is given.
    pub jobs: Vec<JobId>,
    /// Into another queue than their own.
    pub queue: Option<Queue>,
    /// Also the finished jobs that ended because these did: those that failed because a dependency failed, at
    /// any distance, and those that were cancelled because nobody needed them any more. They keep their queues.
    /// Shards that have some of them are asked to do the same.
    pub dependents: bool,
    /// The graph that is retried as a whole; its members on other shards that failed because of these come back too.
    /// Without `jobs`, the other shards of the graph are asked to put back what failed or was cancelled there.
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

/// Removes jobs with all that is stored about them.
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
    /// Candidates, found in the store; the engine keeps those that are not due or still needed.
    pub jobs: Vec<ExpiredJob>,
}

/// A finished job that may have outlived its retention.
#[derive(Clone, Debug, PartialEq)]
pub struct ExpiredJob {
    /// The record of the finished job.
    pub record: Box<crate::job::JobRecord>,
    /// Whether it is beyond the newest so many of its queue and outcome.
    pub beyond_count: bool,
}

/// Changes a job. Absent fields stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Alter {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The job to change.
    pub job: Option<JobId>,
    /// The new priority. `None`: it stays.
    pub priority: Option<Priority>,
    /// New queue, for a job that does not run.
    pub queue: Option<Queue>,
    /// New start, for a job that is scheduled or ready.
    pub start: Option<Start>,
    /// New payload, for a job that does not run.
    pub payload: Option<Bytes>,
    /// Tags to put on.
    pub tags_added: Vec<Tag>,
    /// Tags to take off.
    pub tags_removed: Vec<Tag>,
    /// Labels to add or replace, by key.
    pub labels_set: Vec<(LabelKey, LabelValue)>,
    /// Labels to take off; those that are not there are passed over.
    pub labels_removed: Vec<LabelKey>,
    /// Whether to follow it.
    pub tracked: Option<bool>,
    /// A line for its history: headline, and JSON text or nothing.
    pub note: Option<(String, String)>,
}

/// Makes a blocked job wait for more jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct AddDependencies {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The blocked job that is to wait for more.
    pub job: JobId,
    /// On whom; those that have succeeded count as met.
    pub on: Vec<JobId>,
    /// What their failure means.
    pub policy: FailurePolicy,
}

/// Makes a blocked job wait for fewer jobs. Edges that carry data cannot be taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoveDependencies {
    /// The namespace of the job.
    pub namespace: Namespace,
    /// The blocked job that is to wait for fewer.
    pub job: JobId,
    /// On whom; `None`: on nobody any more.
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

/// What to set on a queue.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "the command that carries it is in a box already"
)]
pub enum QueueChange {
    /// All settings; absent ones fall back to the namespace.
    All(QueueSettings),
    /// Pause or resume only.
    Paused(bool),
}

/// Drops a queue from listings.
#[derive(Clone, Debug, PartialEq)]
pub struct ForgetQueue {
    /// The namespace of the queue.
    pub namespace: Namespace,
    /// The queue to drop from listings; it must have no live jobs.
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

/// Makes or replaces a schedule. `created_at`, `next_at`, `runs` and `last_job` are the engine's.
#[derive(Clone, Debug, PartialEq)]
pub struct PutSchedule {
    /// The schedule; it replaces an existing one of its id.
    pub schedule: ScheduleRecord,
}

/// Makes a job of a schedule now, whatever its times, its pause and its rule for overlapping runs say.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSchedule {
    /// The namespace of the schedule.
    pub namespace: Namespace,
    /// The id of the schedule.
    pub id: ScheduleId,
}

/// Removes a schedule; jobs that it has made stay.
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

/// Numbers for `jobs` jobs. They hold until this shard's next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// How many numbers to reserve, one per job.
    pub jobs: u32,
}

/// Decides a submission over several shards. What is decided stays so (`rel G8`).
#[derive(Clone, Debug, PartialEq)]
pub struct Decide {
    /// The namespace of the submission.
    pub namespace: Namespace,
    /// The graph that the submission makes.
    pub graph: Graph,
    /// For it: all parts are durable; or against it.
    pub is_committed: bool,
}

/// Messages of another shard, in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Receive {
    /// The shard that sends the messages.
    pub from: ShardId,
    /// The epoch of the sender's stream that the numbers belong to (see [`crate::PeerRecord::stream_epoch`]).
    pub stream_epoch: u64,
    /// The number of the last message that the sender has written: what it knows of its own past.
    pub last_sent: u64,
    /// All up to this one it knows as confirmed by us.
    pub confirmed: u64,
    /// Consecutive; results are in them.
    pub messages: Vec<OutboxRecord>,
    /// Jobs of the sender that wait for jobs of ours: do we know of them?
    pub waits: Vec<Wait>,
}

/// Another shard has our messages, durably.
#[derive(Clone, Debug, PartialEq)]
pub struct Confirm {
    /// The shard that has received our messages.
    pub peer: ShardId,
    /// The newest epoch of our stream that it has seen; `up_to` belongs to it.
    pub stream_epoch: u64,
    /// All up to this number.
    pub up_to: u64,
    /// The mark of the last of them, as it has it (see [`OutboxRecord::tag`]); 0 if it does not say.
    pub tag: u64,
    /// What it said of the waits that came with them.
    pub checked_waits: Option<CheckedWaits>,
}

/// Takes traffic with a peer up again after one of the two went back in time (`rel X6`).
#[derive(Clone, Debug, PartialEq)]
pub struct Reconcile {
    /// The shard to resume traffic with.
    pub peer: ShardId,
}

/// Which finished jobs the shard's housekeeping should look for (see `Engine::retention_due`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpiredJobsQuery {
    /// Ended at or before `before`, oldest first, without a life time of their own.
    ByAge {
        /// The namespace of the queue.
        namespace: Namespace,
        /// The queue of the finished jobs.
        queue: Queue,
        /// The outcome of the finished jobs.
        outcome: Outcome,
        /// Up to this time.
        before: Timestamp,
    },
    /// The oldest `excess` of a queue and outcome.
    ByCount {
        /// The namespace of the queue.
        namespace: Namespace,
        /// The queue of the finished jobs.
        queue: Queue,
        /// The outcome of the finished jobs.
        outcome: Outcome,
        /// How many are too many.
        excess: u64,
    },
    /// With a life time of their own that has passed, of any queue.
    ByOwnTime {
        /// Up to this time.
        before: Timestamp,
    },
}

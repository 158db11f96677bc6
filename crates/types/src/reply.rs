//! Replies: the engine's answers to accepted commands.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::audit::AuditRecord;
use crate::cancel_effects::CancelEffects;
use crate::external::ExternalJob;
use crate::external::ExternalReply;
use crate::external::import::ImportOutcome;
use crate::id::{IdTag, JobId, JobKey, LeaseToken, ShardId};
use crate::job::{JobRecord, JobState, LeaseRecord, Priority};
use crate::name::{Graph, Group, Kind, LabelKey, LabelValue, Namespace, Queue, Tag, Worker};
use crate::operation::OperationRecord;
use crate::peer::{OutboxRecord, PartRecord, PeerRecord, Wait};
use crate::query::ReadyPlace;
use crate::queue::{NamespaceRecord, QueueCounts, QueueSettings};
use crate::rejection::Rejection;
use crate::schedule::ScheduleRecord;
use crate::statistics::StatisticsRecord;
use crate::time::Timestamp;
use crate::why::{Explanation, QueueWait};

/// The answer to a command. A rejected command has changed nothing (`rel P6`).
pub type Answer = Result<Reply, Rejection>;

/// The reply to an accepted command or query.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The answer to [`crate::command::Enqueue`].
    Enqueued {
        /// One entry for each submitted job, in order.
        jobs: Vec<Enqueued>,
        /// Graph of the jobs; `None` if they form none.
        graph: Option<Graph>,
        /// Whether this is the answer to an earlier submission under the same idempotency key.
        repeat: bool,
    },
    /// The grants; none if nothing was ready.
    Leased(Vec<Grant>),
    /// The lease was extended.
    Renewed {
        /// Time until the lease expires, from now.
        lease_for: Duration,
    },
    /// A report was accepted.
    Reported {
        /// State of the job now.
        state: JobState,
        /// Time of the next attempt; `None` if there is none or it can start now.
        retry_at: Option<Timestamp>,
        /// Whether the same report had been accepted before.
        repeat: bool,
    },
    /// Bytes were appended to the log of an attempt.
    LogAppended {
        /// Size of the attempt's log in bytes.
        bytes: u64,
        /// Bytes that were dropped because the log is full.
        dropped: u64,
    },
    /// The command changed jobs.
    Changed {
        /// Number of jobs that the command changed.
        count: u64,
        /// Jobs that do not exist or are not in a suitable state.
        skipped: Vec<JobId>,
    },
    /// The answer to [`crate::command::Retry`] with dependents or of a graph.
    Retried {
        /// Number of retried jobs, dependents included.
        count: u64,
        /// Jobs that do not exist or are not in a suitable state.
        skipped: Vec<JobId>,
        /// Retried jobs that the command did not name.
        dependents: Vec<JobId>,
        /// Shards that are asked to retry jobs of theirs, sorted; one that cannot be reached is asked later.
        passed_on: Vec<ShardId>,
    },
    /// The job as altered.
    Altered {
        /// The tags of the job now.
        tags: Vec<Tag>,
        /// The state of the job now.
        state: JobState,
    },
    /// The answer to [`crate::command::Command::External`], of the same system.
    External(ExternalReply),
    /// The answer to [`crate::external::import::Import`], one entry per record, in order.
    Imported(Vec<ImportOutcome>),
    /// The command succeeded and returns nothing.
    Done,
    /// The answer to [`crate::query::Query::Queues`].
    Queues(Vec<QueueView>),
    /// The answer to [`crate::query::Query::Queue`].
    Queue(Box<QueueView>),
    /// The answer to [`crate::query::Query::Counts`].
    Counts(QueueCounts),
    /// The answer to [`crate::query::Query::NextJobs`].
    NextJobs(Vec<ReadyPlace>),
    /// The answer to [`crate::query::Query::QueueWhy`], most important first; empty if no job waits.
    QueueWhy(Vec<QueueWait>),
    /// The answer to [`crate::query::Query::Names`].
    Names(Vec<Vec<u8>>),
    /// The answer to [`crate::query::Query::Namespaces`].
    Namespaces(Vec<NamespaceRecord>),
    /// The answer to [`crate::query::Query::Workers`].
    Workers(Vec<WorkerView>),
    /// The answer to [`crate::query::Query::FailureGroups`].
    FailureGroups(Vec<(Group, u64)>),
    /// The answer to [`crate::query::Query::TopTags`].
    Tags(Vec<(Tag, u64)>),
    /// The answer to [`crate::query::Query::Tracked`].
    Tracked(Vec<(JobId, Timestamp)>),
    /// The answer to [`crate::query::Query::Schedules`].
    Schedules(Vec<ScheduleRecord>),
    /// The answer to [`crate::query::Query::ScheduleTimes`].
    Times(Vec<Timestamp>),
    /// The answer to [`crate::query::Query::Schedule`].
    Schedule(Box<ScheduleRecord>),
    /// The answer to [`crate::query::Query::Statistics`].
    Statistics(Box<StatisticsRecord>),
    /// The answer to [`crate::query::Query::Why`].
    Why(Box<Explanation>),
    /// The answer to [`crate::query::Query::CancelEffects`].
    CancelEffects(Box<CancelEffects>),
    /// The answer to [`crate::query::Query::ExternalJob`]; `None` if there is no such job, or a job of the engine has
    /// that id.
    ExternalJob(Option<Box<ExternalJobView>>),
    /// The answer to [`crate::query::Query::ExternalJobs`]: the jobs with their ids, and the last one that was looked
    /// at if there may be more.
    ExternalJobs(Vec<(ExternalJob, ExternalJobView)>, Option<ExternalJob>),
    /// An operation: as it was started or stopped, or the answer to [`crate::query::Query::Operation`].
    Operation(Box<OperationRecord>),
    /// The answer to [`crate::query::Query::Operations`].
    Operations(Vec<OperationRecord>),
    /// A page of an operation was worked through.
    OperationWorked {
        /// The operation as it is now.
        operation: Box<OperationRecord>,
        /// What was done with each job of the page, in order; empty if the page was not the next one.
        jobs: Vec<(JobId, JobWork)>,
    },
    /// The answer to [`crate::query::Query::AuditLog`]: the records, newest first, and the number of the last one if
    /// there may be more.
    AuditLog(Vec<AuditRecord>, Option<u64>),
    /// Numbers were reserved for a submission over several shards.
    Reserved {
        /// First number; the others follow it.
        first: JobKey,
        /// Tag in the ids that are made of these numbers.
        id_tag: IdTag,
    },
    /// Messages of another shard were applied.
    Received {
        /// Newest epoch of the sender's stream that was seen; a batch of an older epoch is not applied.
        stream_epoch: u64,
        /// Number of the last message of that epoch that is applied.
        up_to: u64,
        /// Tag of that message (see [`OutboxRecord::tag`]); 0 if it is not known.
        tag: u64,
        /// Reason why traffic with the sender is stopped; `None`: it is not.
        stopped: Option<String>,
        /// Waits in the batch that this shard does not know.
        unknown: Vec<Wait>,
    },
    /// The answer to [`crate::query::Query::Peers`].
    Peers(Vec<PeerView>),
    /// The answer to [`crate::query::Query::Outbox`].
    Outbox(Vec<OutboxRecord>),
    /// The answer to [`crate::query::Query::Waits`].
    Waits(Vec<Wait>),
    /// The answer to [`crate::query::Query::Undecided`].
    Undecided(Vec<PartRecord>),
    /// The answer to [`crate::query::Query::SubmissionAnswer`].
    SubmissionAnswer(Option<Box<PartRecord>>),
    /// The answer to [`crate::query::Query::ExistingIds`]: for each id, in order, whether the job exists.
    ExistingIds(Vec<bool>),
    /// The answer to [`crate::query::Query::Audit`]: the violations that were found; empty if there are none.
    Audit(Vec<String>),
}

/// What an operation did with a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobWork {
    /// The job was changed.
    Done,
    /// The job is not one to change; the reason for people.
    Skipped(String),
    /// The change was refused; the reason for people.
    Failed(String),
}

/// Another shard, as shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The record of the shard, as stored.
    pub record: PeerRecord,
    /// Number of messages that wait for the peer.
    pub waiting: u64,
    /// Time at which the oldest of them was written; `None` if there are none.
    pub oldest_at: Option<Timestamp>,
    /// Whether it is time to ask the peer about jobs here that wait for jobs there.
    pub is_to_ask: bool,
}

/// A job of a submission: new, or one that existed already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The number of the job.
    pub key: JobKey,
    /// The id of the job.
    pub id: JobId,
    /// Whether the job existed already, under its id or its unique key.
    pub existed: bool,
}

/// A job that was leased to a worker, without its payload and inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The number of the job.
    pub key: JobKey,
    /// The id of the job.
    pub job: JobId,
    /// The namespace of the job.
    pub namespace: Namespace,
    /// Queue of the job.
    pub queue: Queue,
    /// The kind, which names the job's program.
    pub kind: Kind,
    /// Number of the attempt, from 1; also the fencing number.
    pub attempt: u32,
    /// Number of retries left after this attempt.
    pub retries_left: u32,
    /// The token that reports must show.
    pub token: LeaseToken,
    /// Length of the lease, from the grant.
    pub lease_for: Duration,
    /// Maximum time of the attempt, from the grant; `None`: no limit.
    pub timeout: Option<Duration>,
    /// Time after which no attempt starts; `None`: none.
    pub deadline: Option<Timestamp>,
    /// Time at which the job was enqueued.
    pub created_at: Timestamp,
    /// The priority of the job.
    pub priority: Priority,
    /// Size of the payload in bytes; 0: it is empty, and nothing needs to be read.
    pub payload_bytes: u32,
    /// Number of positional inputs; 0: the payload alone is the input.
    pub inputs: u32,
    /// Graph of the job; `None` if it belongs to none.
    pub graph: Option<Graph>,
    /// The tags of the job.
    pub tags: Vec<Tag>,
    /// The labels of the job.
    pub labels: Vec<(LabelKey, LabelValue)>,
}

/// A job of an external system, shown as a job of the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalJobView {
    /// The record, with a placeholder as its number ([`JobKey::is_of_external_job`]).
    pub record: JobRecord,
    /// Lease, while the job runs.
    pub lease: Option<LeaseRecord>,
    /// The payload of the job.
    pub payload: Bytes,
    /// Result of the job; `None` if there is none.
    pub result: Option<Bytes>,
}

/// A queue as shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueView {
    /// The name of the queue.
    pub queue: Queue,
    /// Settings of the queue.
    pub settings: QueueSettings,
    /// Number of jobs in each state.
    pub counts: QueueCounts,
    /// Number of schedules that enqueue in it.
    pub schedules: u64,
    /// Time since the oldest ready job became ready; `None` if none is ready.
    pub oldest_ready_for: Option<Duration>,
    /// Time since a worker last asked for jobs of the queue; `None` if none has since the shard was loaded.
    pub asked_ago: Option<Duration>,
    /// Time of the first use.
    pub created_at: Timestamp,
    /// Number of jobs ever enqueued.
    pub enqueued_total: u64,
    /// Number of jobs that ever ended.
    pub finished_total: u64,
}

/// A worker as shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// The name of the worker.
    pub worker: Worker,
    /// Time of the last request, on the wall clock.
    pub seen_at: Timestamp,
    /// Length of its leases: the longest of those that it holds and of those that its last request asked for.
    pub lease_for: Duration,
    /// Jobs that the worker holds: id, queue, kind, and time of the grant.
    pub holds: Vec<(JobId, Queue, Kind, Timestamp)>,
}

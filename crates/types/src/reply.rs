//! What the engine says to a command it accepted.

use std::time::Duration;

use bytes::Bytes;

use crate::external::ExternalJob;
use crate::external::ExternalReply;
use crate::id::{IdTag, JobId, JobKey, LeaseToken, ShardId};
use crate::import::Imported;
use crate::job::{JobRecord, JobState, LeaseRecord, Priority};
use crate::name::{Graph, Group, Kind, LabelKey, LabelValue, Namespace, Queue, Tag, Worker};
use crate::peer::{OutboxRecord, PartRecord, PeerRecord, Wait};
use crate::queue::{NamespaceRecord, QueueCounts, QueueSettings};
use crate::rejection::Rejection;
use crate::schedule::ScheduleRecord;
use crate::statistics::StatisticsRecord;
use crate::time::Timestamp;
use crate::why::Explanation;

/// Accepted or refused. A refusal has changed nothing (`rel P6`).
pub type Answer = Result<Reply, Rejection>;

/// One variant per command or query.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The jobs, in the order of the submission.
    Enqueued {
        /// The jobs, one for each that was submitted, in order.
        jobs: Vec<Enqueued>,
        /// The graph, if it is one.
        graph: Option<Graph>,
        /// Whether this is the answer of an earlier submission under the same key.
        repeat: bool,
    },
    /// The grants; none if nothing was ready.
    Leased(Vec<Grant>),
    /// The lease goes on.
    Renewed {
        /// So long from now.
        lease_for: Duration,
    },
    /// A report was accepted.
    Reported {
        /// Where the job stands now.
        state: JobState,
        /// When it is tried again, if it is.
        retry_at: Option<Timestamp>,
        /// Whether the same report had been accepted before.
        repeat: bool,
    },
    /// The log has so many bytes of this attempt now; `dropped` were beyond its limit.
    LogAppended {
        /// The length of the log now, in bytes.
        bytes: u64,
        /// Bytes that were dropped because the log is full.
        dropped: u64,
    },
    /// How many were changed, and the ids that were not there or not in a state for it.
    Changed {
        /// How many jobs the command changed.
        count: u64,
        /// The jobs that it left unchanged.
        skipped: Vec<JobId>,
    },
    /// To [`crate::command::Retry`] with dependents or of a graph.
    Retried {
        /// How many were put back, dependents included.
        count: u64,
        /// Which were not there or not in a state for it.
        skipped: Vec<JobId>,
        /// Those put back that the command did not name.
        dependents: Vec<JobId>,
        /// The shards that will be asked to put back jobs of theirs, in order; one that cannot be reached is asked
        /// once it can.
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
    /// To [`crate::import::Import`]: what became of each record, in order.
    Imported(Vec<Imported>),
    /// The command was carried out; there is nothing more to say.
    Done,
    /// The answer to [`crate::query::Query::Queues`].
    Queues(Vec<QueueView>),
    /// The answer to [`crate::query::Query::Queue`].
    Queue(Box<QueueView>),
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
    /// The next times of a schedule.
    Times(Vec<Timestamp>),
    /// The answer to [`crate::query::Query::Schedule`].
    Schedule(Box<ScheduleRecord>),
    /// The answer to [`crate::query::Query::Statistics`].
    Statistics(Box<StatisticsRecord>),
    /// The answer to [`crate::query::Query::Why`].
    Why(Box<Explanation>),
    /// To [`crate::query::Query::ExternalJob`]; `None` if there is none, or one of ours has that id.
    ExternalJob(Option<Box<ExternalJobView>>),
    /// To [`crate::query::Query::ExternalJobs`]: each with its place, and from where to ask on, if there is more to look at.
    ExternalJobs(Vec<(ExternalJob, ExternalJobView)>, Option<ExternalJob>),
    /// Numbers for a submission over several shards.
    Reserved {
        /// The first of them; the others follow.
        first: JobKey,
        /// Part of the ids made of them.
        id_tag: IdTag,
    },
    /// What was taken in of another shard's messages.
    Received {
        /// The newest epoch of its stream that was seen; a batch of an older one is not applied.
        stream_epoch: u64,
        /// All messages of that epoch up to this one are applied.
        up_to: u64,
        /// The mark of that last one (see [`OutboxRecord::tag`]); 0 if it is not known.
        tag: u64,
        /// Why nothing more is taken, if so.
        stopped: Option<String>,
        /// Of the waits that came with them, those that nothing is known of here.
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
    /// To [`crate::query::Query::Given`]: for each id, in order, whether its job is there.
    Given(Vec<bool>),
    /// To [`crate::query::Query::Audit`]: what disagrees; empty is good.
    Audit(Vec<String>),
}

/// What is known of another shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// The record of the shard, as stored.
    pub record: PeerRecord,
    /// Messages that wait for it.
    pub waiting: u64,
    /// When the oldest of them was written.
    pub oldest_at: Option<Timestamp>,
    /// Whether it is time to ask whether it knows of jobs here that wait for jobs there.
    pub is_to_ask: bool,
}

/// A job that a submission made or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The number of the job.
    pub key: JobKey,
    /// The id of the job.
    pub id: JobId,
    /// Whether it was there already, by id or unique key.
    pub existed: bool,
}

/// A job handed out. Payload and inputs are read beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The number of the job.
    pub key: JobKey,
    /// The id of the job.
    pub job: JobId,
    /// The namespace of the job.
    pub namespace: Namespace,
    /// Where it lined up.
    pub queue: Queue,
    /// The kind, which names the job's program.
    pub kind: Kind,
    /// Fencing number, from 1.
    pub attempt: u32,
    /// Counted attempts left after this one.
    pub retries_left: u32,
    /// The token that reports must show.
    pub token: LeaseToken,
    /// So long from the grant.
    pub lease_for: Duration,
    /// How long the attempt may run, from the grant.
    pub timeout: Option<Duration>,
    /// Never tried again after this.
    pub deadline: Option<Timestamp>,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// The priority of the job.
    pub priority: Priority,
    /// Number of positional inputs; 0: the payload alone.
    pub inputs: u32,
    /// The graph it was submitted with.
    pub graph: Option<Graph>,
    /// The tags of the job.
    pub tags: Vec<Tag>,
    /// The labels of the job.
    pub labels: Vec<(LabelKey, LabelValue)>,
}

/// A job of qless or an item of raw keys as shown: what a record and its lease would say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExternalJobView {
    /// The record, under [`JobKey::OF_QLESS`] or [`JobKey::OF_KEYS`].
    pub record: JobRecord,
    /// Who holds it, while it runs.
    pub lease: Option<LeaseRecord>,
    /// The payload of the job.
    pub payload: Bytes,
    /// What it gave, if it has ended with a result.
    pub result: Option<Bytes>,
}

/// A queue as shown.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    /// The name of the queue.
    pub queue: Queue,
    /// What an operator set.
    pub settings: QueueSettings,
    /// How many jobs it has in each state.
    pub counts: QueueCounts,
    /// Schedules that feed it.
    pub schedules: u64,
    /// When the oldest ready job became ready.
    pub oldest_ready_for: Option<Duration>,
    /// When it was first used.
    pub created_at: Timestamp,
    /// How many jobs were ever enqueued in it.
    pub enqueued_total: u64,
    /// Jobs that ever ended.
    pub finished_total: u64,
}

/// A worker as shown.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerView {
    /// The name of the worker.
    pub worker: Worker,
    /// Last sign of life, on the wall clock.
    pub seen_at: Timestamp,
    /// What it holds: job, queue, kind, leased at.
    pub holds: Vec<(JobId, Queue, Kind, Timestamp)>,
}

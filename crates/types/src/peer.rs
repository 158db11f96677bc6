//! Messages between shards, and what each shard stores about its peers.
//!
//! A shard writes each message in the commit of the transition that causes it and numbers it per receiver. It sends
//! the message until the receiver has confirmed it as durable. The receiver applies messages once and in order
//! (`rel X1` to `X3`).

use bytes::Bytes;

use crate::command::NewJob;
use crate::id::{IdTag, JobId, JobKey, ShardId};
use crate::job::{FailurePolicy, Outcome};
use crate::name::{Graph, IdempotencyKey, Namespace, Queue};
use crate::time::Timestamp;

/// A job of another shard that waits for a job of this shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependent {
    /// The shard of the waiting job.
    pub shard: ShardId,
    /// The number of the waiting job on its shard.
    pub key: JobKey,
    /// Slot of the waiting job that this edge fills.
    pub slot: u32,
    /// Id of the job, for people.
    pub id: JobId,
    /// What happens if the dependency does not succeed.
    pub policy: FailurePolicy,
    /// Whether both jobs were submitted together; they are then cancelled together.
    pub is_member: bool,
}

/// One shard's part of a submission over several shards, before it is decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Record of the part.
    pub record: PartRecord,
    /// The jobs, numbered from [`PartRecord::first`] on.
    pub jobs: Vec<NewJob>,
    /// Fingerprint of each job as the client submitted it, in the order of `jobs`, to recognise a repeat under its
    /// id. Empty in parts that older programs wrote.
    pub prints: Vec<u64>,
    /// Jobs of other shards that wait for a job of this part, each with the index of that job in `jobs`.
    pub dependents: Vec<(u32, Dependent)>,
}

/// A submission over several shards, as each shard that holds a part stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRecord {
    /// The namespace of the submission.
    pub namespace: Namespace,
    /// Graph of the submission: the decider and an id there, such as `2/00000k3v-x7qz`.
    pub graph: Graph,
    /// Shard that decides the submission.
    pub decider: ShardId,
    /// Shards that hold a part, sorted.
    pub shards: Vec<ShardId>,
    /// Number of the first job on this shard.
    pub first: JobKey,
    /// Number of jobs on this shard; they are numbered consecutively.
    pub count: u32,
    /// Tag in the ids that are made of these numbers.
    pub id_tag: IdTag,
    /// Ids that the client gave; they are taken from now on.
    pub client_ids: Vec<(JobKey, JobId)>,
    /// Jobs of this shard outside the submission that the part waits for.
    pub outside: Vec<(JobKey, JobId)>,
    /// Time at which the part was prepared.
    pub prepared_at: Timestamp,
    /// Whether the submission is committed. A part of an aborted one is removed.
    pub is_committed: bool,
    /// Reason of a cancellation before the decision; `None` if there was none.
    pub cancelled: Option<String>,
    /// On the decider, the answer for a repeat under the idempotency key; `None` without a key.
    pub answer: Option<PartAnswer>,
}

/// The answer to a submission over several shards, kept for a repeat. The repeat contains the jobs, so the numbers
/// are enough to find their ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartAnswer {
    /// The idempotency key of the submission.
    pub key: IdempotencyKey,
    /// Hash of the submission.
    pub fingerprint: u64,
    /// First number on each shard, with the tag of the ids there.
    pub numbers: Vec<(ShardId, JobKey, IdTag)>,
    /// Indexes of jobs that existed already under the ids that the client gave.
    pub existed: Vec<u32>,
}

/// A message, which the sender stores until the receiver confirms it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRecord {
    /// Shard that receives the message.
    pub to: ShardId,
    /// Number of the message, consecutive per receiver, from 1.
    pub number: u64,
    /// Random bits that each start draws. If a restored store gives a number twice, the two messages have different
    /// tags (`rel X6`).
    pub tag: u64,
    /// Time at which the message was written.
    pub at: Timestamp,
    /// Content of the message.
    pub message: Message,
}

/// The content of a message from one shard, the sender, to another, the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A job of the sender has ended, and a job of the receiver waits for it.
    Ended {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The id of the dependency.
        dependency: JobId,
        /// The number of the job that waits.
        dependent: JobKey,
        /// Slot of the dependent that the edge fills.
        slot: u32,
        /// The outcome of the dependency.
        outcome: Outcome,
        /// Result of the dependency.
        result: MessageResult,
    },
    /// A job of the receiver waits for a job that the sender does not have.
    NoSuchJob {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The id of the dependency.
        dependency: JobId,
        /// The number of the job that waits.
        dependent: JobKey,
        /// Slot of the dependent that the edge fills.
        slot: u32,
    },
    /// A job of the sender waits for a job of the receiver, which sends [`Message::Ended`] once that job has ended.
    Follow {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The id of the dependency.
        dependency: JobId,
        /// The number of the job that waits.
        dependent: Dependent,
        /// Whether the waiting job was retried. The receiver then also retries the dependency if it was cancelled
        /// because no job needed it any more.
        retries: bool,
    },
    /// A job of the sender no longer waits for a job of the receiver.
    LetGo {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The id of the dependency.
        dependency: JobId,
        /// The job that waited.
        dependent: JobKey,
        /// Slot of the dependent that the edge fills.
        slot: u32,
        /// Graph in which the dependency is cancelled if no other job needs it (`rel G5`); `None`: it is not
        /// cancelled.
        unneeded_in: Option<Graph>,
    },
    /// A submission was decided.
    Decided {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// Name of the graph.
        graph: Graph,
        /// Whether the submission is committed; otherwise it is aborted.
        is_committed: bool,
    },
    /// The sender holds a part of a submission and asks whether it is committed.
    Inquire {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// Name of the graph.
        graph: Graph,
    },
    /// A job of the sender was retried: the receiver retries the job that failed because of it.
    RetryDependent {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// Job of the sender that was retried.
        dependency: JobId,
        /// Job that failed because of it.
        dependent: JobKey,
        /// Slot of the dependent that the edge fills.
        slot: u32,
        /// Graph that is retried as a whole, to which the dependent must belong; `None`: any.
        within: Option<RetriedGraph>,
    },
    /// A graph is retried: the receiver retries its members that failed or were cancelled.
    RetryGraph {
        /// The namespace of the graph.
        namespace: Namespace,
        /// Graph and state of the retry.
        retry: GraphRetry,
    },
    /// The sender has retried some members of a graph: the receiver sends [`Message::RetryGraph`] again for the next
    /// ones.
    GoOn {
        /// The namespace of the graph.
        namespace: Namespace,
        /// Graph and state of the retry.
        retry: GraphRetry,
    },
    /// A graph is cancelled.
    CancelGraph {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// Name of the graph.
        graph: Graph,
        /// Why, for people; shown in the history.
        reason: String,
    },
}

impl Message {
    /// The word for this message in listings.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ended { .. } => "ended",
            Self::NoSuchJob { .. } => "no_such_job",
            Self::Follow { .. } => "follow",
            Self::LetGo { .. } => "let_go",
            Self::Decided { .. } => "decided",
            Self::Inquire { .. } => "inquire",
            Self::RetryDependent { .. } => "retry_dependent",
            Self::RetryGraph { .. } => "retry_graph",
            Self::GoOn { .. } => "go_on",
            Self::CancelGraph { .. } => "cancel_graph",
        }
    }
}

/// A graph that is retried as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetriedGraph {
    /// The graph that is retried.
    pub graph: Graph,
    /// Into another queue than their own.
    pub queue: Option<Queue>,
}

/// The state of the retry of a graph on one of its shards. The shards pass it back and forth, some members at a time,
/// so none has to store it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphRetry {
    /// Graph, and the queue that its jobs enter.
    pub within: RetriedGraph,
    /// Last member that was looked at; `None`: none yet.
    pub after: Option<JobKey>,
    /// Position in the shard's order of endings before which members are retried; `None`: not set yet.
    pub before: Option<u64>,
    /// Whether a member was retried in this round.
    pub has_changed: bool,
    /// Whether a member could not be retried in this round because one of its dependencies was not back yet.
    pub has_skipped: bool,
}

/// The result of a job in a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageResult {
    /// There is no result: the input is `null`.
    None,
    /// The result of this job of the sender, which is still to be read from its store before the message is sent.
    Stored(JobKey),
    /// The result itself, read from the store.
    Bytes(Bytes),
}

/// A job of one shard that waits for a job of another. The first shard asks whether the second knows about it.
///
/// The question is not stored and changes nothing on the other shard, so it may be lost, late or repeated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    /// The namespace of both jobs.
    pub namespace: Namespace,
    /// Job that is waited for.
    pub dependency: JobId,
    /// The number of the job that waits.
    pub dependent: JobKey,
    /// Slot of the waiting job that this edge fills.
    pub slot: u32,
    /// Whether both jobs were submitted together; the peer then knows about the wait only once both parts are
    /// decided.
    pub is_member: bool,
}

/// The result of a check of waits by a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedWaits {
    /// Job and slot of the last wait that was checked.
    pub up_to: (JobKey, u32),
    /// Waits that the peer does not know and to which it has sent no answer.
    pub unknown: Vec<Wait>,
}

/// What a shard stores about another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRecord {
    /// The id of the other shard.
    pub shard: ShardId,
    /// Epoch of our stream of messages to the peer: 1 at first, and larger after each reconciliation. Each epoch
    /// numbers its messages from 1.
    pub stream_epoch: u64,
    /// Number of the last message that we wrote for the peer; 0 before the first.
    pub last_sent: u64,
    /// Number of the last of our messages that is durable on the peer.
    pub confirmed: u64,
    /// Number of the last message of the peer that was applied here.
    pub received: u64,
    /// Tag of that message.
    pub received_tag: u64,
    /// Epoch of the peer's stream that `received` belongs to; 0 before its first message.
    pub received_epoch: u64,
    /// Whether the next batch sets the position of the peer's stream, after a reconciliation.
    pub adopts: bool,
    /// Reason why traffic is stopped: the peer or this shard was restored to an earlier state (`rel X6`). `None`:
    /// traffic flows.
    pub stopped: Option<String>,
}

impl PeerRecord {
    /// The epoch of a stream before its first reconciliation.
    pub const STREAM_EPOCH_FIRST: u64 = 1;

    /// A peer with which no message was exchanged yet.
    pub fn new(shard: ShardId) -> Self {
        Self {
            shard,
            stream_epoch: Self::STREAM_EPOCH_FIRST,
            last_sent: 0,
            confirmed: 0,
            received: 0,
            received_tag: 0,
            received_epoch: 0,
            adopts: false,
            stopped: None,
        }
    }
}

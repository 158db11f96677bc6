//! What shards say to each other, and what each remembers of it.
//!
//! Every message is written in the commit of the transition that causes it, numbered per pair of shards, sent
//! until the receiver has confirmed it as durable, and applied once, in order (`rel X1` to `X3`).

use bytes::Bytes;

use crate::command::NewJob;
use crate::id::{IdTag, JobId, JobKey, ShardId};
use crate::job::{FailurePolicy, Outcome};
use crate::name::{Graph, IdempotencyKey, Namespace, Queue};
use crate::time::Timestamp;

/// A job of another shard that waits for one of this shard.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependent {
    /// The shard of the waiting job.
    pub shard: ShardId,
    /// The number of the waiting job on its shard.
    pub key: JobKey,
    /// The slot that waits.
    pub slot: u32,
    /// Its id, for people.
    pub id: JobId,
    /// What the failure of the dependency means to it.
    pub policy: FailurePolicy,
    /// Whether both were submitted together: then both are cancelled together.
    pub is_member: bool,
}

/// One shard's part of a submission over several shards, before it is decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// What is kept of it.
    pub record: PartRecord,
    /// The jobs, numbered from [`PartRecord::first`] on.
    pub jobs: Vec<NewJob>,
    /// Fingerprint of each job as the client submitted it, in their order: what tells a repeat under its id. Empty in
    /// parts of older programs.
    pub prints: Vec<u64>,
    /// Members by their place among `jobs`, and who waits for them on other shards.
    pub dependents: Vec<(u32, Dependent)>,
}

/// What a shard knows of a submission of which it holds a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRecord {
    /// The namespace of the submission.
    pub namespace: Namespace,
    /// The submission's name: the decider and a number there, as `2/00000k3v-x7qz`.
    pub graph: Graph,
    /// The shard that decides.
    pub decider: ShardId,
    /// All shards that hold a part, in order.
    pub shards: Vec<ShardId>,
    /// The first job's number here.
    pub first: JobKey,
    /// How many jobs there are here, consecutively numbered.
    pub count: u32,
    /// Part of the ids that are made of those numbers.
    pub id_tag: IdTag,
    /// Ids that the client gave, taken from now on.
    pub client_ids: Vec<(JobKey, JobId)>,
    /// Jobs of this shard, outside the submission, that the part waits for.
    pub outside: Vec<(JobKey, JobId)>,
    /// When it was prepared.
    pub prepared_at: Timestamp,
    /// Whether it was decided for; one that was decided against is not kept.
    pub is_committed: bool,
    /// Why it was cancelled before it was decided.
    pub cancelled: Option<String>,
    /// On the decider, the idempotency key that it was submitted under.
    pub answer: Option<PartAnswer>,
}

/// The answer to a submission over several shards, kept for its repeat. The repeat brings the jobs, so their
/// ids follow from the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartAnswer {
    /// The idempotency key of the submission.
    pub key: IdempotencyKey,
    /// Hash of what was submitted.
    pub fingerprint: u64,
    /// The first number on each shard, and what ids are made with there.
    pub numbers: Vec<(ShardId, JobKey, IdTag)>,
    /// Places in the submission of jobs that were there before, under the ids that the client gave.
    pub existed: Vec<u32>,
}

/// A message as the sender keeps it until it is confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxRecord {
    /// The shard that the message is for.
    pub to: ShardId,
    /// Consecutive per receiver, from 1.
    pub number: u64,
    /// Random bits of the start in which it was written: a number that was given twice, because a store was
    /// restored, bears two of them (`rel X6`).
    pub tag: u64,
    /// When it was written.
    pub at: Timestamp,
    /// The message, as it is sent.
    pub message: Message,
}

/// What one shard tells another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A job that one of yours waits for has ended.
    Ended {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The id of the dependency.
        dependency: JobId,
        /// The one that waits.
        dependent: JobKey,
        /// The slot of the dependent that the edge fills.
        slot: u32,
        /// The outcome of the dependency.
        outcome: Outcome,
        /// The result of the dependency, or why there is none.
        result: Carried,
    },
    /// The job that one of yours asked about does not exist.
    NoSuchJob {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The id of the dependency.
        dependency: JobId,
        /// The one that waits.
        dependent: JobKey,
        /// The slot of the dependent that the edge fills.
        slot: u32,
    },
    /// One of mine waits for one of yours: say when it has ended.
    Follow {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The id of the dependency.
        dependency: JobId,
        /// The one that waits.
        dependent: Dependent,
        /// It is back with what ended with it: if yours was cancelled because nobody needed it any more, put it back.
        retries: bool,
    },
    /// One of mine waits for one of yours no more.
    LetGo {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The id of the dependency.
        dependency: JobId,
        /// The one that waited.
        dependent: JobKey,
        /// The slot of the dependent that the edge fills.
        slot: u32,
        /// If this is its graph and nobody else needs it, it is cancelled (`rel G5`).
        unneeded_in: Option<Graph>,
    },
    /// A submission was decided.
    Decided {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The graph by its name.
        graph: Graph,
        /// For it or against it.
        is_committed: bool,
    },
    /// What became of this submission?
    Inquire {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The graph by its name.
        graph: Graph,
    },
    /// A job that ended without success is back, and what ended because of it is to come back with it.
    RetryDependent {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The job of the sender that is back.
        dependency: JobId,
        /// The one that failed because of it.
        dependent: JobKey,
        /// Its input that takes the result of that job, from 0 on.
        slot: u32,
        /// Only if it is a member of this graph, which is retried as a whole.
        within: Option<Within>,
    },
    /// A graph is retried: put the members of it that failed or were cancelled back.
    RetryGraph {
        /// The namespace of the graph.
        namespace: Namespace,
        /// Which, and how far it has come.
        retry: GraphRetry,
    },
    /// Some members of a graph that is retried are back: say it once more, for the next ones.
    GoOn {
        /// The namespace of the graph.
        namespace: Namespace,
        /// Which, and how far it has come.
        retry: GraphRetry,
    },
    /// A graph is cancelled.
    CancelGraph {
        /// The namespace of the jobs.
        namespace: Namespace,
        /// The graph by its name.
        graph: Graph,
        /// Why, for people; shown in the history.
        reason: String,
    },
}

impl Message {
    /// A word for it, for listings.
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
pub struct Within {
    /// The graph that is retried.
    pub graph: Graph,
    /// Into another queue than their own.
    pub queue: Option<Queue>,
}

/// How far the retry of a graph has come on one of its shards. The shards hand this back and forth, some members at a
/// time, so none has to remember it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphRetry {
    /// Which, and where its jobs go.
    pub within: Within,
    /// Goes on after this member; `None`: from the first.
    pub after: Option<JobKey>,
    /// Those that ended before this place in the shard's order of endings; `None`: it is not drawn yet.
    pub before: Option<u64>,
    /// Whether a member has come back since the first.
    pub has_changed: bool,
    /// Whether a member could not come back since the first: one that it waits for was not back yet.
    pub has_skipped: bool,
}

/// A result on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// There is none: the input reads `null`.
    None,
    /// It is stored with this job of the sender; the sender of the message puts the bytes in its place.
    Stored(JobKey),
    /// The result itself, read from the store.
    Bytes(Bytes),
}

/// A job of one shard that waits for one of another, as the first asks whether the second knows of it.
///
/// Such a question is not durable and changes nothing where it is asked: lost, late or repeated, it is only
/// asked again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait {
    /// The namespace of both jobs.
    pub namespace: Namespace,
    /// The job that is waited for.
    pub dependency: JobId,
    /// The one that waits.
    pub dependent: JobKey,
    /// The slot of the dependent that waits.
    pub slot: u32,
    /// Whether both were submitted together: then nobody says that it waits before both parts are decided.
    pub is_member: bool,
}

/// What a peer said of the waits that it was asked about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedWaits {
    /// The last of them in order: its job and slot.
    pub up_to: (JobKey, u32),
    /// Those that it does not know of, and to which no answer is on its way.
    pub unknown: Vec<Wait>,
}

/// What a shard knows of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerRecord {
    /// The shard that this is about.
    pub shard: ShardId,
    /// Epoch of our stream of messages to it: 1, and a larger number after each reconciliation. Messages of an epoch
    /// are numbered from 1.
    pub stream_epoch: u64,
    /// Number of the last message that we have written for it; 0 before the first.
    pub last_sent: u64,
    /// All up to this one are durable there.
    pub confirmed: u64,
    /// All of its messages up to this one were applied here.
    pub received: u64,
    /// The tag that the last of those bore.
    pub received_tag: u64,
    /// Epoch of its stream to us that `received` belongs to; 0 before its first message.
    pub received_epoch: u64,
    /// Reconciled: the next thing it says tells where its stream goes on.
    pub adopts: bool,
    /// Why nothing is exchanged any more: it, or this shard, went back in time (`rel X6`).
    pub stopped: Option<String>,
}

impl PeerRecord {
    /// The epoch of a stream before its first reconciliation.
    pub const STREAM_EPOCH_FIRST: u64 = 1;

    /// A peer of which nothing is known yet.
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

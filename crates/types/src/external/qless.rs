//! qless: the jobs, queues and other state of clients of the qless script, on the clocks of the callers.
//!
//! Names, ids and texts are any bytes. Times are seconds since the epoch as clients send them, at full precision and
//! in any order: no timer uses them, and every call handles what is due at its own time.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use crate::id::LeaseToken;
use crate::job::ReportKind;
use crate::name::{Namespace, RequestId};
use crate::time::Elapsed;

/// Seconds since the epoch on a caller's clock. Always finite.
#[derive(Clone, Copy, Debug, Default)]
pub struct QlessTime(f64);

impl QlessTime {
    /// The time at this number of seconds; a number that is not finite counts as 0.
    pub fn new(seconds: f64) -> Self {
        // Adding 0 makes the negative zero an ordinary one.
        Self(if seconds.is_finite() {
            seconds + 0.0
        } else {
            0.0
        })
    }

    /// Returns the time in seconds.
    pub fn seconds(self) -> f64 {
        self.0
    }
}

impl PartialEq for QlessTime {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for QlessTime {}

impl PartialOrd for QlessTime {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QlessTime {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// The version of the script that a client uses, which follows from the script's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// The version of 2013, which the Python client in the package index uses.
    One,
    /// The current version of the script.
    Two,
    /// The version of the script with throttles.
    Three,
}

/// A request about the qless state of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QlessCall {
    /// The namespace whose qless state the request is about.
    pub namespace: Namespace,
    /// The request to carry out.
    pub request: QlessRequest,
}

/// The content of a [`QlessCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QlessRequest {
    /// A call of the script.
    Script {
        /// Version of the script.
        generation: Generation,
        /// The command, the caller's time, and the arguments, as the client sent them.
        words: Vec<Bytes>,
    },
    /// The size of a set of a queue: [`QlessReply::Number`].
    Count {
        /// The name of the queue.
        queue: Bytes,
        /// Set of the queue.
        set: QlessSet,
    },
    /// The next run of a recurring job: [`QlessReply::Score`] or [`QlessReply::Nil`].
    NextRun {
        /// Queue of the recurring job; it must be in this one.
        queue: Bytes,
        /// The id of the recurring job.
        jid: Bytes,
    },
    /// Removes the whole qless state of the namespace: [`QlessReply::Nil`].
    Clear,
}

impl QlessRequest {
    /// Whether the request adds data, which a full device refuses (`rel D9`). Requests that move or end jobs are
    /// exempt, even if they carry some.
    pub fn is_new(&self) -> bool {
        let Self::Script { words, .. } = self else {
            return false;
        };
        let word = |place: usize| words.get(place).map(|word| &word[..]);
        match word(0) {
            Some(
                b"put"
                | b"requeue"
                | b"recur"
                | b"recur.update"
                | b"recur.tag"
                | b"log"
                | b"config.set"
                | b"throttle.set"
                | b"queue.throttle.set",
            ) => true,
            // The caller's time is between them.
            Some(b"tag") => word(2) == Some(b"add"),
            Some(b"track") => word(2) == Some(b"track"),
            _ => false,
        }
    }

    /// Size of the request's arguments in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Script { words, .. } => words.iter().map(Bytes::len).sum(),
            Self::Count { .. } | Self::NextRun { .. } | Self::Clear => 0,
        }
    }
}

/// A set of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QlessSet {
    /// Jobs that are ready: highest rank first, then earliest, then the jid that is last by bytes.
    Work = 1,
    /// Jobs that a worker holds, by the expiry of the lock.
    Locks = 2,
    /// Jobs that wait for their start time.
    Scheduled = 3,
    /// Jobs that wait for other jobs, by the time at which they began to.
    Depends = 4,
    /// Recurring jobs, by their next run.
    Recur = 5,
    /// Jobs that wait for room under a throttle, by the time at which they began to.
    Throttled = 6,
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub enum QlessReply {
    /// The reply has no value.
    Nil,
    /// A whole number; true is 1.
    Number(i64),
    /// A string, or JSON.
    Text(Bytes),
    /// A list of strings.
    List(Vec<Bytes>),
    /// A number with a fraction.
    Score(f64),
}

/// Why a call was refused: the error message of the script. A refused call has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QlessRefusal(pub Bytes);

/// The answer to a request.
pub type QlessAnswer = Result<QlessReply, QlessRefusal>;

/// A message to all subscribers of a channel, in any namespace. It is sent before the answer to its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QlessMessage {
    /// The channel that the message is published on.
    pub channel: Bytes,
    /// The content of the message.
    pub payload: Bytes,
}

/// A tag, which keeps the type that JSON gave it.
#[derive(Clone, Debug, PartialEq)]
pub enum QlessTag {
    /// A tag that is a JSON string.
    Text(Bytes),
    /// A tag that is a JSON number.
    Number(f64),
}

/// The state of a job of qless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QlessState {
    /// The job can run now.
    Waiting = 1,
    /// The job waits for its start time.
    Scheduled = 2,
    /// The job waits for other jobs.
    Depends = 3,
    /// The job is handed out to a worker.
    Running = 4,
    /// The command `timeout` took the job from its worker.
    Stalled = 5,
    /// The job has failed for good.
    Failed = 6,
    /// The job has completed.
    Complete = 7,
    /// The job waits for room under a throttle.
    Throttled = 8,
}

impl QlessState {
    /// All states, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Scheduled,
        Self::Depends,
        Self::Running,
        Self::Stalled,
        Self::Failed,
        Self::Complete,
        Self::Throttled,
    ];

    /// Whether the state is final: only another put leaves it.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Failed | Self::Complete)
    }

    /// The word for the state, as clients see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Scheduled => "scheduled",
            Self::Depends => "depends",
            Self::Running => "running",
            Self::Stalled => "stalled",
            Self::Failed => "failed",
            Self::Complete => "complete",
            Self::Throttled => "throttled",
        }
    }
}

/// The place of a job in a set of a queue. A job is in at most one set.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessPlace {
    /// The name of the queue.
    pub queue: Bytes,
    /// [`QlessSet::Work`], `Locks`, `Scheduled` or `Depends`.
    pub set: QlessSet,
    /// Rank in the set: in `Work` the priority, or infinity for a job that was timed out; elsewhere 0.
    pub rank: f64,
    /// Time by which the set is ordered.
    pub at: QlessTime,
}

/// Why a job failed, as its worker reported it.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessFailure {
    /// The failure group: the cause in a word.
    pub group: Bytes,
    /// The failure message, for people to read.
    pub message: Bytes,
    /// Time of the failure in seconds.
    pub when: f64,
    /// Worker that held the job; empty if none.
    pub worker: Bytes,
}

/// An entry of a job's history.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessHistoryEntry {
    /// The name of the event.
    pub what: Bytes,
    /// Time in whole seconds.
    pub when: f64,
    /// Further keys with their values as JSON text, in order.
    pub extra: Vec<(Bytes, Bytes)>,
}

/// A job of qless, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessJob {
    /// Number of the job's row: no other job of the namespace has it, or had it since the last start.
    pub number: u64,
    /// The id (jid) of the job.
    pub jid: Bytes,
    /// Class of the job, which names the code that runs it.
    pub klass: Bytes,
    /// Data of the job: JSON text as the client sent it.
    pub data: Bytes,
    /// The current state of the job.
    pub state: QlessState,
    /// Queue of the job; empty once it is complete.
    pub queue: Bytes,
    /// Worker that holds or last held the job; empty if none.
    pub worker: Bytes,
    /// Priority of the job: larger runs first, unlike in the rest of ganger.
    pub priority: f64,
    /// Time at which the lock expires; 0 if there is none.
    pub expires: f64,
    /// Maximum number of retries.
    pub retries: f64,
    /// Number of retries left; -1 once they are used up.
    pub remaining: f64,
    /// Tags, in order, repetitions included.
    pub tags: Vec<QlessTag>,
    /// Tags under which the job is found, and since when; sorted by tag.
    pub tagged: Vec<(Bytes, QlessTime)>,
    /// The job's last failure; `None` if none is recorded.
    pub failure: Option<QlessFailure>,
    /// Id of the recurring job that made this one; `None` if none did.
    pub spawned_from: Option<Bytes>,
    /// History of the job, oldest entry first.
    pub history: Vec<QlessHistoryEntry>,
    /// Jobs that it waits for, by jid.
    pub dependencies: Vec<Bytes>,
    /// Jobs that wait for it, by jid.
    pub dependents: Vec<Bytes>,
    /// Time of the last put, pop or completion, for statistics.
    pub time: f64,
    /// Whether the worker was warned that its lock has expired.
    pub is_warned: bool,
    /// Start time, once the dependencies are met; `None`: at once.
    pub scheduled: Option<QlessTime>,
    /// Place of the job in a set of its queue; `None` if it is in none.
    pub place: Option<QlessPlace>,
    /// Workers that have the job in their list, and until when they hold it; sorted by worker.
    pub listed: Vec<(Bytes, QlessTime)>,
    /// Time of completion, while the job is in the list of completed jobs.
    pub completed_at: Option<QlessTime>,
    /// Position in the list of its failure group, while the job is in it; the newest has the largest.
    pub failed_order: Option<u64>,
    /// Throttles that the job needs.
    pub throttles: Vec<Bytes>,
    /// Throttles that the job holds, and since when; sorted by throttle.
    pub holds: Vec<(Bytes, QlessTime)>,
    /// Throttles for which the job waits, and since when; sorted by throttle.
    pub pending: Vec<(Bytes, QlessTime)>,
    /// Queue that lists the job as throttled, and since when; `None` if none does.
    pub throttled: Option<(Bytes, QlessTime)>,
    /// Number of times that the job was handed out, since rows have this field.
    pub handed_out: u64,
    /// Lease of the last hand-out, if that was to a worker of ganger's own.
    pub lease: Option<QlessLease>,
    /// Result that a worker of ganger's own reported, while the job is complete. Clients of qless do not see it.
    pub result: Option<Bytes>,
}

/// A hand-out to a worker of ganger's own, which proves its lease by a token; workers of qless only send their name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QlessLease {
    /// Token of the lease.
    pub token: LeaseToken,
    /// Id of the lease request; `None` if it had none.
    pub request: Option<RequestId>,
    /// Report that ended the attempt, for a repeat of it; `None` if none did.
    pub report: Option<ReportKind>,
}

/// A recurring job, which makes other jobs, its children, at an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessRecurring {
    /// Id (jid) of the recurring job; ids of jobs are separate.
    pub jid: Bytes,
    /// The class of its children.
    pub klass: Bytes,
    /// The data of its children.
    pub data: Bytes,
    /// Queue of the recurring job and of its children.
    pub queue: Bytes,
    /// Priority of its children: larger runs first.
    pub priority: f64,
    /// Number of retries that each child is allowed.
    pub retries: f64,
    /// Interval between runs in seconds.
    pub interval: f64,
    /// Maximum number of missed runs for which children are made; 0: all.
    pub backlog: f64,
    /// Number of children made so far.
    pub count: u64,
    /// The tags of its children.
    pub tags: Vec<QlessTag>,
    /// Time of the next run.
    pub next_at: QlessTime,
    /// Throttles that its children need.
    pub throttles: Vec<Bytes>,
}

/// A queue as stored, without its jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessQueue {
    /// The name of the queue.
    pub name: Bytes,
    /// Time of the first use; `None` if the queue is not listed.
    pub seen_at: Option<QlessTime>,
    /// Whether the queue is paused.
    pub is_paused: bool,
}

/// A sample in streaming form (Welford).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QlessSample {
    /// Number of values in the sample.
    pub total: u64,
    /// Mean of the values; 0 without any.
    pub mean: f64,
    /// Sum of squared differences from the mean.
    pub vk: f64,
    /// Number and count of each bin that is not empty, in order: 60 bins of seconds, 60 of minutes, 24 of hours, 7 of
    /// days. Later days and negative values are in none.
    pub bins: Vec<(u16, u64)>,
}

/// The statistics of a queue on one day.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessStatistics {
    /// The name of the queue.
    pub queue: Bytes,
    /// The beginning of the day.
    pub day: QlessTime,
    /// Number of jobs that are failed; may be negative.
    pub failed: i64,
    /// Number of failures counted on this day.
    pub failures: i64,
    /// Number of locks that expired.
    pub retries: i64,
    /// Times from entering the queue to the hand-out.
    pub wait: QlessSample,
    /// Times from the hand-out to completion.
    pub run: QlessSample,
}

/// A throttle: a limit on jobs that run at the same time.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessThrottle {
    /// The id of the throttle.
    pub id: Bytes,
    /// Number of jobs that may hold the throttle; 0: any number.
    pub maximum: f64,
    /// Time at which the maximum expires, on the server's clock; `None`: never.
    pub ends_at: Option<Elapsed>,
}

/// A row as stored.
#[derive(Clone, Debug, PartialEq)]
pub enum QlessRow {
    /// A job, shared with the state, which copies it before the next change.
    Job(Arc<QlessJob>),
    /// A recurring job, as stored.
    Recurring(Box<QlessRecurring>),
    /// A queue that is known or paused.
    Queue(QlessQueue),
    /// A worker, and its last sign of life.
    Worker(Bytes, QlessTime),
    /// An option that was set, and its value.
    Setting(Bytes, Bytes),
    /// A tag and its counter.
    TagCount(Bytes, i64),
    /// A jid that is tracked, and since when.
    Tracked(Bytes, QlessTime),
    /// The statistics of a queue and day.
    Statistics(Box<QlessStatistics>),
    /// A throttle with a maximum.
    Throttle(QlessThrottle),
}

/// The key of a row within its namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant names the row of the same name")]
pub enum QlessKey {
    Job { number: u64, jid: Bytes },
    Recurring(Bytes),
    Queue(Bytes),
    Worker(Bytes),
    Setting(Bytes),
    TagCount(Bytes),
    Tracked(Bytes),
    Statistics(Bytes, QlessTime),
    Throttle(Bytes),
}

impl QlessRow {
    /// The key of the row within its namespace.
    pub fn key(&self) -> QlessKey {
        match self {
            Self::Job(job) => QlessKey::Job {
                number: job.number,
                jid: job.jid.clone(),
            },
            Self::Recurring(job) => QlessKey::Recurring(job.jid.clone()),
            Self::Queue(queue) => QlessKey::Queue(queue.name.clone()),
            Self::Worker(name, _) => QlessKey::Worker(name.clone()),
            Self::Setting(option, _) => QlessKey::Setting(option.clone()),
            Self::TagCount(tag, _) => QlessKey::TagCount(tag.clone()),
            Self::Tracked(jid, _) => QlessKey::Tracked(jid.clone()),
            Self::Statistics(it) => QlessKey::Statistics(it.queue.clone(), it.day),
            Self::Throttle(it) => QlessKey::Throttle(it.id.clone()),
        }
    }
}

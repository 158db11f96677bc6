//! qless: jobs, queues and all else that clients of the qless script know, on the clocks of the callers.
//!
//! Names, ids and texts are any bytes. Times are seconds since the epoch as a client said them, at full precision and
//! in any order: no timer acts on them, and every call settles what is due by its own time.

use std::cmp::Ordering;
use std::sync::Arc;

use bytes::Bytes;

use crate::id::LeaseToken;
use crate::job::ReportKind;
use crate::name::{Namespace, RequestId};
use crate::time::Elapsed;

/// Seconds since the epoch on a caller's clock. Never infinite and never not a number.
#[derive(Clone, Copy, Debug, Default)]
pub struct QlessTime(f64);

impl QlessTime {
    /// Of so many seconds; what is not finite counts as 0.
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

/// Which form of the script a client speaks; told by the script's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// Of 2013, and of the Python client in the package index.
    One,
    /// The current form of the script.
    Two,
    /// The form of the script that has throttles.
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

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QlessRequest {
    /// A call of the script.
    Script {
        /// Which form of it.
        generation: Generation,
        /// The command, the caller's time, and what follows, as they came.
        words: Vec<Bytes>,
    },
    /// How many there are in a set of a queue: [`QlessReply::Number`].
    Count {
        /// The name of the queue.
        queue: Bytes,
        /// Which of its sets.
        set: QlessSet,
    },
    /// When a recurring job runs next: [`QlessReply::Score`] or [`QlessReply::Nil`].
    NextRun {
        /// The queue in which it must be.
        queue: Bytes,
        /// The id of the recurring job.
        jid: Bytes,
    },
    /// Removes the whole qless state of the namespace: [`QlessReply::Nil`].
    Clear,
}

impl QlessRequest {
    /// Whether it brings new bytes to keep, which a full device refuses (`rel D9`). What moves jobs on, or ends them,
    /// does not, even if it may bring a few.
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

    /// Bytes that it brings.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Script { words, .. } => words.iter().map(Bytes::len).sum(),
            Self::Count { .. } | Self::NextRun { .. } | Self::Clear => 0,
        }
    }
}

/// The sets of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QlessSet {
    /// Jobs that are ready: highest rank first, then earliest, then the jid that is last by bytes.
    Work = 1,
    /// Jobs that somebody holds, by when the lock runs out.
    Locks = 2,
    /// Jobs that wait for their time.
    Scheduled = 3,
    /// Jobs that wait for others, by when they began to.
    Depends = 4,
    /// Recurring jobs, by their next run.
    Recur = 5,
    /// Jobs that wait for room under a throttle, by when they began to.
    Throttled = 6,
}

/// What a request gives.
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

/// Why a call was refused: the script's words for it. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QlessRefusal(pub Bytes);

/// What comes of a request.
pub type QlessAnswer = Result<QlessReply, QlessRefusal>;

/// A message to all who listen to a channel, whatever their namespace. It goes out before the answer to its call.
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

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum QlessState {
    /// The job can run now.
    Waiting = 1,
    /// Waits for its time.
    Scheduled = 2,
    /// Waits for other jobs.
    Depends = 3,
    /// The job is handed out to a worker.
    Running = 4,
    /// Taken from its holder by the command `timeout`.
    Stalled = 5,
    /// The job has failed for good.
    Failed = 6,
    /// The job has completed.
    Complete = 7,
    /// Waits for room under a throttle.
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

    /// Whether a job stays there until somebody puts it again.
    pub fn is_end(self) -> bool {
        matches!(self, Self::Failed | Self::Complete)
    }

    /// The word that clients know.
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

/// A job's place in a set of a queue. It is in one at most.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessPlace {
    /// The name of the queue.
    pub queue: Bytes,
    /// [`QlessSet::Work`], `Locks`, `Scheduled` or `Depends`.
    pub set: QlessSet,
    /// In `Work` the priority, or infinity for a job that was timed out; elsewhere 0.
    pub rank: f64,
    /// The time that orders the set.
    pub at: QlessTime,
}

/// Why a job failed, as it says itself.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessFailure {
    /// The failure group: the cause in a word.
    pub group: Bytes,
    /// The failure message, for people to read.
    pub message: Bytes,
    /// Time of the failure in seconds.
    pub when: f64,
    /// Who held it; empty if nobody.
    pub worker: Bytes,
}

/// An entry of a job's history.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessHappening {
    /// The name of the event.
    pub what: Bytes,
    /// When, in whole seconds.
    pub when: f64,
    /// Further keys with their values as JSON text, in order.
    pub extra: Vec<(Bytes, Bytes)>,
}

/// A job of qless, as stored.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessJob {
    /// Its place among the stored jobs: no other job of the namespace has it, or had it since the last start.
    pub number: u64,
    /// The id (jid) of the job.
    pub jid: Bytes,
    /// The class that runs it.
    pub klass: Bytes,
    /// JSON text as it came.
    pub data: Bytes,
    /// The current state of the job.
    pub state: QlessState,
    /// Its queue; empty once complete.
    pub queue: Bytes,
    /// Who holds or last held it; empty if nobody.
    pub worker: Bytes,
    /// Priority of the job: larger runs first, unlike in the rest of ganger.
    pub priority: f64,
    /// When its lock runs out; 0 if there is none.
    pub expires: f64,
    /// Retries that it is allowed.
    pub retries: f64,
    /// Retries that are left; -1 once they are used up.
    pub remaining: f64,
    /// Its tags, in order, repeats included.
    pub tags: Vec<QlessTag>,
    /// Under which tags it is found, and since when. By tag.
    pub tagged: Vec<(Bytes, QlessTime)>,
    /// The job's last failure; `None` if none is recorded.
    pub failure: Option<QlessFailure>,
    /// The recurring job that made it.
    pub spawned_from: Option<Bytes>,
    /// What happened, oldest first.
    pub history: Vec<QlessHappening>,
    /// Jobs that it waits for, by jid.
    pub dependencies: Vec<Bytes>,
    /// Jobs that wait for it, by jid.
    pub dependents: Vec<Bytes>,
    /// When it last was put, popped or completed, for statistics.
    pub time: f64,
    /// Whether its holder was told that the lock ran out.
    pub is_warned: bool,
    /// When to schedule it once its dependencies are met.
    pub scheduled: Option<QlessTime>,
    /// Where it is in line.
    pub place: Option<QlessPlace>,
    /// Workers that list it among their jobs, and until when they hold it. By worker.
    pub listed: Vec<(Bytes, QlessTime)>,
    /// When it completed, while it is in the list of completed jobs.
    pub completed_at: Option<QlessTime>,
    /// Its place in its failure's group, the newest is the largest, while it is in it.
    pub failed_order: Option<u64>,
    /// Throttles that it needs.
    pub throttles: Vec<Bytes>,
    /// Throttles that it holds, and since when. By throttle.
    pub holds: Vec<(Bytes, QlessTime)>,
    /// Throttles for which it waits, and since when. By throttle.
    pub pending: Vec<(Bytes, QlessTime)>,
    /// The queue in whose throttled jobs it is, and since when.
    pub throttled: Option<(Bytes, QlessTime)>,
    /// How often it was handed out, since rows count that.
    pub handed_out: u64,
    /// The lease under which it was last handed out, if that was to a worker of ours.
    pub lease: Option<QlessLease>,
    /// What a worker of ours gave as its result, while the job is complete. Clients of qless do not see it.
    pub result: Option<Bytes>,
}

/// A hand-out to a worker of ours, which shows a token where those of qless name themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QlessLease {
    /// The lease token that the worker must show.
    pub token: LeaseToken,
    /// The lease request that asked for it, if it named itself.
    pub request: Option<RequestId>,
    /// The report that ended it, so that its repeat gets the same answer.
    pub report: Option<ReportKind>,
}

/// A recurring job, which makes other jobs ("children") at an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessRecurring {
    /// Its id, of a name space of its own.
    pub jid: Bytes,
    /// The class of its children.
    pub klass: Bytes,
    /// The data of its children.
    pub data: Bytes,
    /// Their queue, and its own.
    pub queue: Bytes,
    /// Priority of its children: larger runs first.
    pub priority: f64,
    /// Number of retries that each child is allowed.
    pub retries: f64,
    /// Interval between runs in seconds.
    pub interval: f64,
    /// Runs in the past that are made up for; 0: all.
    pub backlog: f64,
    /// Number of children made so far.
    pub count: u64,
    /// The tags of its children.
    pub tags: Vec<QlessTag>,
    /// When it runs next.
    pub next_at: QlessTime,
    /// The throttles that its children need.
    pub throttles: Vec<Bytes>,
}

/// What is known of a queue besides its jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessQueue {
    /// The name of the queue.
    pub name: Bytes,
    /// When it was first seen, while it is known.
    pub seen_at: Option<QlessTime>,
    /// Whether it gives nothing out.
    pub is_paused: bool,
}

/// A sample in streaming form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QlessSample {
    /// Number of values in the sample.
    pub total: u64,
    /// Mean of the values; 0 without any.
    pub mean: f64,
    /// Sum of squared distances from it.
    pub vk: f64,
    /// Values in each bin that has any, by bin: 60 of seconds, 60 of minutes, 24 of hours, 7 of days; later days and
    /// negative values are in none.
    pub bins: Vec<(u16, u64)>,
}

/// A queue's statistics of a day.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessStatistics {
    /// The name of the queue.
    pub queue: Bytes,
    /// The beginning of the day.
    pub day: QlessTime,
    /// Jobs that are failed; may be negative.
    pub failed: i64,
    /// Number of failures counted on this day.
    pub failures: i64,
    /// Locks that ran out.
    pub retries: i64,
    /// From entering to being handed out.
    pub wait: QlessSample,
    /// From being handed out to completion.
    pub run: QlessSample,
}

/// A limit of jobs that run at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct QlessThrottle {
    /// The id of the throttle.
    pub id: Bytes,
    /// How many may hold it; 0: any number.
    pub maximum: f64,
    /// When the maximum is forgotten, on the server's clock.
    pub ends_at: Option<Elapsed>,
}

/// A row as stored.
#[derive(Clone, Debug, PartialEq)]
pub enum QlessRow {
    /// A job, shared with the state that goes on changing it, which copies it first if it must.
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

/// Names a row within its namespace.
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
    /// Returns the name of the row within its namespace.
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

//! Records of another server that this one takes over: each once, however often they are sent.

use std::time::Duration;

use bytes::Bytes;

use crate::command::NewJob;
use crate::name::Namespace;
use crate::qless::{QlessSet, QlessTime};

/// Takes records over. Each is taken, skipped or refused by itself; all that are taken are one commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// The namespace that gets them.
    pub namespace: Namespace,
    /// The records, up to [`crate::limits::IMPORT_RECORDS_MAX`].
    pub records: Vec<ImportRecord>,
}

/// A record of another server.
#[derive(Clone, Debug, PartialEq)]
pub enum ImportRecord {
    /// A record of qless, as its script keeps it in Redis.
    Qless(Box<QlessSource>),
    /// An item of a work queue of raw keys.
    Item(Box<WorkItem>),
    /// A job of ours.
    Job(Box<JobSource>),
}

/// An item of a work queue of raw keys, with all that is taken over with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkItem {
    /// The key of its data.
    pub key: Bytes,
    /// The item's data, stored under `key`.
    pub data: Bytes,
    /// The list that it is put into, at its left end; `None`: none.
    pub list: Option<Bytes>,
    /// Its id, as the list has it.
    pub id: Bytes,
    /// Its leases: key, value and time left.
    pub leases: Vec<(Bytes, Bytes, Duration)>,
}

/// A job that is enqueued, or has failed for good already.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSource {
    /// The job, with an id of its own.
    pub job: NewJob,
    /// Why it has failed for good; `None`: it has not.
    pub failed: Option<String>,
}

/// A record of qless as its script keeps it in Redis: texts are not checked yet.
#[derive(Clone, Debug, PartialEq)]
pub enum QlessSource {
    /// A job with its history, places and throttles.
    Job(QlessJobSource),
    /// A recurring job, which makes other jobs.
    Recurring {
        /// The id (jid) of the recurring job.
        jid: Bytes,
        /// The fields of its hash.
        fields: Vec<(Bytes, Bytes)>,
        /// When it runs next.
        next_at: QlessTime,
    },
    /// A queue that is known or paused.
    Queue {
        /// The name of the queue.
        name: Bytes,
        /// When it was first seen; `None` if it is only paused.
        seen_at: Option<QlessTime>,
        /// Whether it gives nothing out.
        is_paused: bool,
    },
    /// A worker and its last sign of life.
    Worker {
        /// The name of the worker.
        name: Bytes,
        /// When it was last seen.
        seen_at: QlessTime,
    },
    /// An option that was set.
    Setting {
        /// The name of the option.
        option: Bytes,
        /// The value of the option.
        value: Bytes,
    },
    /// The counter of a tag.
    TagCount {
        /// The tag that is counted.
        tag: Bytes,
        /// Jobs that ever got it, less those that lost it.
        count: i64,
    },
    /// A jid that is tracked.
    Tracked {
        /// The id of the tracked job.
        jid: Bytes,
        /// The time at which tracking began.
        at: QlessTime,
    },
    /// The statistics of a queue and day.
    Statistics(QlessStatisticsSource),
    /// A limit of jobs that run at a time.
    Throttle {
        /// The id of the throttle.
        id: Bytes,
        /// Number of jobs that may hold it; 0: any number.
        maximum: f64,
        /// Milliseconds until the maximum is forgotten; `None`: never.
        ends_after_ms: Option<u64>,
    },
    /// Lets a job go on that waits for jobs of which none is left: sent after all jobs.
    Release {
        /// The id of the job that may go on.
        jid: Bytes,
    },
}

/// A job of qless as its script keeps it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QlessJobSource {
    /// The id (jid) of the job.
    pub jid: Bytes,
    /// The fields of its hash.
    pub fields: Vec<(Bytes, Bytes)>,
    /// Its history, oldest entry first, each as JSON or `MessagePack`.
    pub history: Vec<Bytes>,
    /// Jobs that it waits for.
    pub dependencies: Vec<Bytes>,
    /// Jobs that wait for it.
    pub dependents: Vec<Bytes>,
    /// The sets of its queue that it is in, with its score there. A score may be infinite.
    pub places: Vec<(QlessSet, f64)>,
    /// Tags under which it is found, and since when.
    pub tagged: Vec<(Bytes, QlessTime)>,
    /// Until when its worker's list of jobs has it; `None` if it is not listed.
    pub listed_until: Option<QlessTime>,
    /// When it completed; `None` if it is not in the list of completed jobs.
    pub completed_at: Option<QlessTime>,
    /// Throttles that it holds, and since when.
    pub holds: Vec<(Bytes, QlessTime)>,
    /// Throttles for which it waits, and since when.
    pub pending: Vec<(Bytes, QlessTime)>,
}

/// The statistics of a queue and day as the script keeps them: the fields of three hashes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QlessStatisticsSource {
    /// The name of the queue.
    pub queue: Bytes,
    /// The beginning of the day.
    pub day: QlessTime,
    /// Counters by field name, both as the script stores them.
    pub counters: Vec<(Bytes, Bytes)>,
    /// The sample of waits.
    pub wait: Vec<(Bytes, Bytes)>,
    /// The sample of runs.
    pub run: Vec<(Bytes, Bytes)>,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    /// It was taken over.
    Taken,
    /// It was taken over before, or there is something of that name: nothing was done.
    AlreadyThere,
    /// It cannot be taken over; for people, why.
    Refused(String),
}

impl ImportRecord {
    /// Bytes that it brings.
    pub fn bytes(&self) -> usize {
        let pairs = |list: &[(Bytes, Bytes)]| -> usize {
            list.iter()
                .map(|(key, value)| key.len() + value.len())
                .sum()
        };
        let names = |list: &[Bytes]| -> usize { list.iter().map(Bytes::len).sum() };
        match self {
            Self::Item(item) => {
                let leases = item.leases.iter();
                let leases = leases.map(|(key, value, _)| key.len() + value.len());
                item.key.len() + item.data.len() + item.id.len() + leases.sum::<usize>()
            }
            Self::Job(source) => source.job.payload.len(),
            Self::Qless(source) => match &**source {
                QlessSource::Job(job) => {
                    job.jid.len()
                        + pairs(&job.fields)
                        + names(&job.history)
                        + names(&job.dependencies)
                        + names(&job.dependents)
                }
                QlessSource::Recurring { jid, fields, .. } => jid.len() + pairs(fields),
                QlessSource::Statistics(it) => {
                    it.queue.len() + pairs(&it.counters) + pairs(&it.wait) + pairs(&it.run)
                }
                QlessSource::Setting { option, value } => option.len() + value.len(),
                QlessSource::Queue { name, .. }
                | QlessSource::Worker { name, .. }
                | QlessSource::TagCount { tag: name, .. }
                | QlessSource::Tracked { jid: name, .. }
                | QlessSource::Throttle { id: name, .. }
                | QlessSource::Release { jid: name } => name.len(),
            },
        }
    }
}

//! Imports: records of another server, each taken over once, however often it is sent.

use std::time::Duration;

use bytes::Bytes;

use super::qless::{QlessSet, QlessTime};
use crate::command::NewJob;
use crate::name::Namespace;

/// Imports records. Each is taken, skipped or refused by itself; those that are taken are one commit.
#[derive(Clone, Debug, PartialEq)]
pub struct Import {
    /// Namespace that gets the records.
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
    /// A job for the engine.
    Job(Box<JobSource>),
}

/// An item of a work queue of raw keys, with its data and leases.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkItem {
    /// Key of the item's data.
    pub key: Bytes,
    /// The item's data, stored under `key`.
    pub data: Bytes,
    /// List to which the item is added at the left end; `None`: none.
    pub list: Option<Bytes>,
    /// Id of the item, as in the list.
    pub id: Bytes,
    /// Leases of the item: key, value and time left.
    pub leases: Vec<(Bytes, Bytes, Duration)>,
}

/// A job to enqueue, or to store as failed.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSource {
    /// Job, which must have an id.
    pub job: NewJob,
    /// Message of the failure; `None`: the job is enqueued.
    pub failed: Option<String>,
}

/// A record of qless as its script stores it in Redis, with unchecked texts.
#[derive(Clone, Debug, PartialEq)]
pub enum QlessSource {
    /// A job with its history, places and throttles.
    Job(QlessJobSource),
    /// A recurring job, which makes other jobs.
    Recurring {
        /// The id (jid) of the recurring job.
        jid: Bytes,
        /// Fields of its hash in Redis.
        fields: Vec<(Bytes, Bytes)>,
        /// Time of the next run.
        next_at: QlessTime,
    },
    /// A queue that is known or paused.
    Queue {
        /// The name of the queue.
        name: Bytes,
        /// Time of the first use; `None` if the queue is only paused.
        seen_at: Option<QlessTime>,
        /// Whether the queue is paused.
        is_paused: bool,
    },
    /// A worker and its last sign of life.
    Worker {
        /// The name of the worker.
        name: Bytes,
        /// Time of the last call.
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
        /// Number of jobs that have got the tag, minus those that have lost it.
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
    /// A limit on jobs that run at the same time.
    Throttle {
        /// The id of the throttle.
        id: Bytes,
        /// Number of jobs that may hold it; 0: any number.
        maximum: f64,
        /// Milliseconds until the maximum is forgotten; `None`: never.
        ends_after_ms: Option<u64>,
    },
    /// Releases a blocked job whose dependencies are all gone. Sent after all jobs.
    Release {
        /// The id of the job that may go on.
        jid: Bytes,
    },
}

/// A job of qless as its script stores it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QlessJobSource {
    /// The id (jid) of the job.
    pub jid: Bytes,
    /// Fields of its hash in Redis.
    pub fields: Vec<(Bytes, Bytes)>,
    /// Its history, oldest entry first, each as JSON or `MessagePack`.
    pub history: Vec<Bytes>,
    /// Jobs that it waits for.
    pub dependencies: Vec<Bytes>,
    /// Jobs that wait for it.
    pub dependents: Vec<Bytes>,
    /// Sets of the queue that contain the job, with its score there, which may be infinite.
    pub places: Vec<(QlessSet, f64)>,
    /// Tags under which the job is found, and since when.
    pub tagged: Vec<(Bytes, QlessTime)>,
    /// Score in the job list of its worker: when the lock expires. `None` if the job is not in one.
    pub listed_until: Option<QlessTime>,
    /// Time of completion; `None` if the job is not in the list of completed jobs.
    pub completed_at: Option<QlessTime>,
    /// Throttles that it holds, and since when.
    pub holds: Vec<(Bytes, QlessTime)>,
    /// Throttles for which it waits, and since when.
    pub pending: Vec<(Bytes, QlessTime)>,
}

/// The statistics of a queue and day as the script stores them: the fields of three hashes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QlessStatisticsSource {
    /// The name of the queue.
    pub queue: Bytes,
    /// The beginning of the day.
    pub day: QlessTime,
    /// Counters by field name, both as the script stores them.
    pub counters: Vec<(Bytes, Bytes)>,
    /// Sample of waiting times.
    pub wait: Vec<(Bytes, Bytes)>,
    /// Sample of run times.
    pub run: Vec<(Bytes, Bytes)>,
}

/// The outcome of the import of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// The record was taken over.
    Taken,
    /// The record, or another one of its name, exists already; nothing was done.
    AlreadyThere,
    /// The record cannot be taken over; contains the reason for people.
    Refused(String),
}

impl ImportRecord {
    /// Size of the record's texts in bytes.
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

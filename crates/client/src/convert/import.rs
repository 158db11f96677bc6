//! Conversion of imported records.

use ganger_proto::v1;
use ganger_proto::v1::import_record::Record;
use ganger_types::import::{ImportOutcome, QlessJobSource, QlessSource};
use ganger_types::qless::{QlessSet, QlessTime};
use ganger_types::{Bytes, WorkItem};

use super::ms;
use crate::model::ImportRecord;

impl From<ImportRecord> for v1::ImportRecord {
    fn from(record: ImportRecord) -> Self {
        let record = match record {
            ImportRecord::Qless(source) => qless(*source),
            ImportRecord::Item(item) => Record::WorkItem(work_item(*item)),
            ImportRecord::Job { job, failed } => Record::Job(v1::JobToImport {
                job: Some((*job).into()),
                failed,
            }),
        };
        Self {
            record: Some(record),
        }
    }
}

fn qless(source: QlessSource) -> Record {
    match source {
        QlessSource::Job(job) => Record::QlessJob(qless_job(job)),
        QlessSource::Recurring {
            jid,
            fields: list,
            next_at,
        } => Record::QlessRecurring(v1::QlessRecurring {
            jid,
            fields: fields(list),
            next_at: next_at.seconds(),
        }),
        QlessSource::Queue {
            name,
            seen_at,
            is_paused,
        } => Record::QlessQueue(v1::QlessQueue {
            name,
            seen_at: seen_at.map(QlessTime::seconds),
            is_paused,
        }),
        QlessSource::Worker { name, seen_at } => Record::QlessWorker(name_at(name, seen_at)),
        QlessSource::Setting { option, value } => Record::QlessSetting(v1::Field {
            name: option,
            value,
        }),
        QlessSource::TagCount { tag, count } => {
            Record::QlessTagCount(v1::QlessTagCount { tag, count })
        }
        QlessSource::Tracked { jid, at } => Record::QlessTracked(name_at(jid, at)),
        QlessSource::Statistics(it) => Record::QlessStatistics(v1::QlessStatistics {
            queue: it.queue,
            day: it.day.seconds(),
            counters: fields(it.counters),
            wait: fields(it.wait),
            run: fields(it.run),
        }),
        QlessSource::Throttle {
            id,
            maximum,
            ends_after_ms,
        } => Record::QlessThrottle(v1::QlessThrottle {
            id,
            maximum,
            ends_after_ms,
        }),
        QlessSource::Release { jid } => Record::QlessRelease(jid),
    }
}

fn qless_job(job: QlessJobSource) -> v1::QlessJob {
    let places = job.places.into_iter();
    let places = places.map(|(set, at)| v1::NameAt {
        name: Bytes::from_static(name_of(set).as_bytes()),
        at,
    });
    v1::QlessJob {
        jid: job.jid,
        fields: fields(job.fields),
        history: job.history,
        dependencies: job.dependencies,
        dependents: job.dependents,
        places: places.collect(),
        tagged: names(job.tagged),
        listed_until: job.listed_until.map(QlessTime::seconds),
        completed_at: job.completed_at.map(QlessTime::seconds),
        holds: names(job.holds),
        pending: names(job.pending),
    }
}

fn name_of(set: QlessSet) -> &'static str {
    match set {
        QlessSet::Work => "work",
        QlessSet::Locks => "locks",
        QlessSet::Scheduled => "scheduled",
        QlessSet::Depends => "depends",
        QlessSet::Recur => "recur",
        QlessSet::Throttled => "throttled",
    }
}

fn fields(list: Vec<(Bytes, Bytes)>) -> Vec<v1::Field> {
    let field = |(name, value)| v1::Field { name, value };
    list.into_iter().map(field).collect()
}

fn names(list: Vec<(Bytes, QlessTime)>) -> Vec<v1::NameAt> {
    let each = list.into_iter();
    each.map(|(name, at)| name_at(name, at)).collect()
}

fn name_at(name: Bytes, at: QlessTime) -> v1::NameAt {
    v1::NameAt {
        name,
        at: at.seconds(),
    }
}

fn work_item(item: WorkItem) -> v1::WorkItem {
    let leases = item.leases.into_iter();
    v1::WorkItem {
        key: item.key,
        data: item.data,
        list: item.list.unwrap_or_default(),
        id: item.id,
        leases: leases
            .map(|(key, value, left)| v1::WorkLease {
                key,
                value,
                left_ms: ms(left),
            })
            .collect(),
    }
}

/// Converts the outcome of an imported record.
pub(crate) fn imported(wire: v1::Imported) -> ImportOutcome {
    match wire.outcome() {
        v1::ImportOutcome::Taken => ImportOutcome::Taken,
        v1::ImportOutcome::AlreadyThere => ImportOutcome::AlreadyThere,
        v1::ImportOutcome::Refused | v1::ImportOutcome::Unspecified => {
            ImportOutcome::Refused(wire.reason)
        }
    }
}

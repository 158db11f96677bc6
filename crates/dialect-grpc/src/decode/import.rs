//! Records of another server.

use ganger_proto::v1;
use ganger_proto::v1::import_record::Record;
use ganger_types::import::{QlessJobSource, QlessSource, QlessStatisticsSource};
use ganger_types::qless::{QlessSet, QlessTime};
use ganger_types::{Bytes, Import, ImportRecord, JobSource, ShardId, WorkItem, limits};

use super::place::Shards;
use super::{At, at_most, members, ms, namespace};
use crate::problem::Problem;

/// A command to take records over.
pub(crate) fn import(here: &ShardId, request: v1::ImportRequest) -> Result<Import, Problem> {
    let namespace = namespace(&request.namespace)?;
    let at = At::top("records");
    at_most(at, request.records.len(), limits::IMPORT_RECORDS_MAX)?;
    let records = request.records.into_iter().enumerate();
    let records = records.map(|(index, wire)| record(here, at.entry(index), wire));
    Ok(Import {
        namespace,
        records: records.collect::<Result<_, _>>()?,
    })
}

fn record(here: &ShardId, at: At<'_>, wire: v1::ImportRecord) -> Result<ImportRecord, Problem> {
    let Some(record) = wire.record else {
        return Err(Problem::missing(at.field("record"), "give one record"));
    };
    let source = match record {
        Record::QlessJob(job) => QlessSource::Job(qless_job(at.field("qless_job"), job)?),
        Record::QlessRecurring(job) => QlessSource::Recurring {
            jid: job.jid,
            fields: fields(job.fields),
            next_at: time(at.field("next_at"), job.next_at)?,
        },
        Record::QlessQueue(queue) => QlessSource::Queue {
            name: queue.name,
            seen_at: maybe_time(at.field("seen_at"), queue.seen_at)?,
            is_paused: queue.is_paused,
        },
        Record::QlessWorker(worker) => QlessSource::Worker {
            seen_at: time(at.field("at"), worker.at)?,
            name: worker.name,
        },
        Record::QlessSetting(field) => QlessSource::Setting {
            option: field.name,
            value: field.value,
        },
        Record::QlessTagCount(it) => QlessSource::TagCount {
            tag: it.tag,
            count: it.count,
        },
        Record::QlessTracked(it) => QlessSource::Tracked {
            at: time(at.field("at"), it.at)?,
            jid: it.name,
        },
        Record::QlessStatistics(it) => QlessSource::Statistics(QlessStatisticsSource {
            queue: it.queue,
            day: time(at.field("day"), it.day)?,
            counters: fields(it.counters),
            wait: fields(it.wait),
            run: fields(it.run),
        }),
        Record::QlessThrottle(it) => QlessSource::Throttle {
            id: it.id,
            maximum: time(at.field("maximum"), it.maximum)?.seconds(),
            ends_after_ms: it.ends_after_ms,
        },
        Record::QlessRelease(jid) => QlessSource::Release { jid },
        Record::WorkItem(item) => return Ok(ImportRecord::Item(Box::new(work_item(item)))),
        Record::Job(job) => return job_to_import(here, at.field("job"), job),
    };
    Ok(ImportRecord::Qless(Box::new(source)))
}

fn qless_job(at: At<'_>, job: v1::QlessJob) -> Result<QlessJobSource, Problem> {
    let places = job.places.into_iter();
    let places = places.map(|place| {
        let at = at.field("places");
        if place.at.is_nan() {
            return Err(Problem::invalid(at, "a score must be a number"));
        }
        Ok((set(at, &place.name)?, place.at))
    });
    Ok(QlessJobSource {
        jid: job.jid,
        fields: fields(job.fields),
        history: job.history,
        dependencies: job.dependencies,
        dependents: job.dependents,
        places: places.collect::<Result<_, Problem>>()?,
        tagged: names(at.field("tagged"), job.tagged)?,
        listed_until: maybe_time(at.field("listed_until"), job.listed_until)?,
        completed_at: maybe_time(at.field("completed_at"), job.completed_at)?,
        holds: names(at.field("holds"), job.holds)?,
        pending: names(at.field("pending"), job.pending)?,
    })
}

fn set(at: At<'_>, name: &[u8]) -> Result<QlessSet, Problem> {
    Ok(match name {
        b"work" => QlessSet::Work,
        b"locks" => QlessSet::Locks,
        b"scheduled" => QlessSet::Scheduled,
        b"depends" => QlessSet::Depends,
        b"throttled" => QlessSet::Throttled,
        other => {
            let reason = format_args!(
                "\"{}\" is none of work, locks, scheduled, depends, throttled",
                other.escape_ascii()
            );
            return Err(Problem::invalid(at, reason));
        }
    })
}

fn fields(wire: Vec<v1::Field>) -> Vec<(Bytes, Bytes)> {
    wire.into_iter().map(|it| (it.name, it.value)).collect()
}

fn names(at: At<'_>, wire: Vec<v1::NameAt>) -> Result<Vec<(Bytes, QlessTime)>, Problem> {
    let each = wire.into_iter();
    each.map(|it| Ok((it.name, time(at, it.at)?))).collect()
}

fn time(at: At<'_>, seconds: f64) -> Result<QlessTime, Problem> {
    if seconds.is_finite() {
        Ok(QlessTime::new(seconds))
    } else {
        Err(Problem::invalid(at, "must be a finite number"))
    }
}

fn maybe_time(at: At<'_>, seconds: Option<f64>) -> Result<Option<QlessTime>, Problem> {
    seconds.map(|seconds| time(at, seconds)).transpose()
}

fn work_item(item: v1::WorkItem) -> WorkItem {
    let leases = item.leases.into_iter();
    WorkItem {
        key: item.key,
        data: item.data,
        list: (!item.list.is_empty()).then_some(item.list),
        id: item.id,
        leases: leases
            .map(|lease| (lease.key, lease.value, ms(lease.left_ms)))
            .collect(),
    }
}

fn job_to_import(
    here: &ShardId,
    at: At<'_>,
    wire: v1::JobToImport,
) -> Result<ImportRecord, Problem> {
    let Some(job) = wire.job.filter(|job| job.id.is_some()) else {
        return Err(Problem::missing(at, "give a job with an id"));
    };
    let shards = Shards { here, router: None };
    let (mut jobs, _) = members(shards, vec![job])?;
    let Some((_, job)) = jobs.pop() else {
        return Err(Problem::missing(at, "give a job with an id"));
    };
    Ok(ImportRecord::Job(Box::new(JobSource {
        job,
        failed: wire.failed,
    })))
}

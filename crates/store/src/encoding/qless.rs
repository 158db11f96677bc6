//! Rows of qless. All numbers that its clients brought are kept bit by bit.

use ganger_types::qless::{
    QlessFailure, QlessHappening, QlessJob, QlessLease, QlessPlace, QlessQueue, QlessRecurring,
    QlessRow, QlessSample, QlessSet, QlessState, QlessStatistics, QlessTag, QlessThrottle,
    QlessTime,
};
use ganger_types::{Bytes, Elapsed, RequestId};
use std::sync::Arc;

use super::failure::{read_kind, read_token, write_kind, write_token};
use super::{Cursor, DecodeError, Record, Writer};

// A row's kind, in its own bytes and in those of its name.
pub(super) const JOB: u8 = 1;
pub(super) const RECURRING: u8 = 2;
pub(super) const QUEUE: u8 = 3;
pub(super) const WORKER: u8 = 4;
pub(super) const SETTING: u8 = 5;
pub(super) const TAG_COUNT: u8 = 6;
pub(super) const TRACKED: u8 = 7;
pub(super) const STATISTICS: u8 = 8;
pub(super) const THROTTLE: u8 = 9;

impl Record for QlessRow {
    const WHAT: &'static str = "qless";
    /// Since 2 a job counts how often it was handed out, and may have a lease of ours; since 3 it has a number and may
    /// have a result.
    const VERSION: u8 = 3;

    fn write(&self, out: &mut Writer<'_>) {
        match self {
            Self::Job(job) => {
                out.byte(JOB);
                write_job(out, job);
            }
            Self::Recurring(job) => {
                out.byte(RECURRING);
                write_recurring(out, job);
            }
            Self::Queue(queue) => {
                out.byte(QUEUE);
                out.bytes(&queue.name);
                out.option(queue.seen_at, write_time);
                out.flag(queue.is_paused);
            }
            Self::Worker(name, seen_at) => {
                out.byte(WORKER);
                out.bytes(name);
                write_time(out, *seen_at);
            }
            Self::Setting(option, value) => {
                out.byte(SETTING);
                out.bytes(option);
                out.bytes(value);
            }
            Self::TagCount(tag, count) => {
                out.byte(TAG_COUNT);
                out.bytes(tag);
                out.signed(*count);
            }
            Self::Tracked(jid, since) => {
                out.byte(TRACKED);
                out.bytes(jid);
                write_time(out, *since);
            }
            Self::Statistics(statistics) => {
                out.byte(STATISTICS);
                write_statistics(out, statistics);
            }
            Self::Throttle(throttle) => {
                out.byte(THROTTLE);
                out.bytes(&throttle.id);
                out.float(throttle.maximum);
                out.option(throttle.ends_at, |out, at| out.number(at.0));
            }
        }
    }

    fn read(version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(match from.byte()? {
            JOB => Self::Job(Arc::new(read_job(version, from)?)),
            RECURRING => Self::Recurring(Box::new(read_recurring(from)?)),
            QUEUE => Self::Queue(QlessQueue {
                name: text(from)?,
                seen_at: from.option(time)?,
                is_paused: from.flag()?,
            }),
            WORKER => {
                let (name, seen_at) = since(from)?;
                Self::Worker(name, seen_at)
            }
            SETTING => Self::Setting(text(from)?, text(from)?),
            TAG_COUNT => Self::TagCount(text(from)?, from.signed()?),
            TRACKED => {
                let (jid, since) = since(from)?;
                Self::Tracked(jid, since)
            }
            STATISTICS => Self::Statistics(Box::new(read_statistics(from)?)),
            THROTTLE => Self::Throttle(QlessThrottle {
                id: text(from)?,
                maximum: from.float()?,
                ends_at: from.option(Cursor::number)?.map(Elapsed),
            }),
            _ => return Err(from.error("is of a kind that this program does not know")),
        })
    }
}

fn write_job(out: &mut Writer<'_>, job: &QlessJob) {
    out.bytes(&job.jid);
    out.bytes(&job.klass);
    out.bytes(&job.data);
    out.byte(number_of_state(job.state));
    out.bytes(&job.queue);
    out.bytes(&job.worker);
    out.float(job.priority);
    out.float(job.expires);
    out.float(job.retries);
    out.float(job.remaining);
    write_list(out, &job.tags, write_tag);
    write_list(out, &job.tagged, write_since);
    out.option(job.failure.as_ref(), write_failure);
    out.option(job.spawned_from.as_ref(), write_text);
    write_list(out, &job.history, write_happening);
    write_list(out, &job.dependencies, write_text);
    write_list(out, &job.dependents, write_text);
    out.float(job.time);
    out.flag(job.is_warned);
    out.option(job.scheduled, write_time);
    out.option(job.place.as_ref(), write_place);
    write_list(out, &job.listed, write_since);
    out.option(job.completed_at, write_time);
    out.option(job.failed_order, Writer::number);
    write_list(out, &job.throttles, write_text);
    write_list(out, &job.holds, write_since);
    write_list(out, &job.pending, write_since);
    out.option(job.throttled.as_ref(), write_since);
    out.number(job.handed_out);
    out.option(job.lease.as_ref(), write_lease);
    out.option(job.result.as_ref(), write_text);
    out.number(job.number);
}

fn write_lease(out: &mut Writer<'_>, lease: &QlessLease) {
    write_token(out, lease.token);
    out.option(lease.request.as_ref(), |out, request| {
        out.bytes(request.as_bytes());
    });
    out.option(lease.report, write_kind);
}

fn lease(from: &mut Cursor<'_>) -> Result<QlessLease, DecodeError> {
    Ok(QlessLease {
        token: read_token(from)?,
        request: from.option(|from| from.name(RequestId::new))?,
        report: from.option(read_kind)?,
    })
}

fn read_job(version: u8, from: &mut Cursor<'_>) -> Result<QlessJob, DecodeError> {
    Ok(QlessJob {
        jid: text(from)?,
        klass: text(from)?,
        data: text(from)?,
        state: state(from)?,
        queue: text(from)?,
        worker: text(from)?,
        priority: from.float()?,
        expires: from.float()?,
        retries: from.float()?,
        remaining: from.float()?,
        tags: from.list(tag)?,
        tagged: from.list(since)?,
        failure: from.option(failure)?,
        spawned_from: from.option(text)?,
        history: from.list(happening)?,
        dependencies: from.list(text)?,
        dependents: from.list(text)?,
        time: from.float()?,
        is_warned: from.flag()?,
        scheduled: from.option(time)?,
        place: from.option(place)?,
        listed: from.list(since)?,
        completed_at: from.option(time)?,
        failed_order: from.option(Cursor::number)?,
        throttles: from.list(text)?,
        holds: from.list(since)?,
        pending: from.list(since)?,
        throttled: from.option(since)?,
        handed_out: if version < 2 { 0 } else { from.number()? },
        lease: if version < 2 {
            None
        } else {
            from.option(lease)?
        },
        result: if version < 3 {
            None
        } else {
            from.option(text)?
        },
        // The store gives one to those that have none.
        number: if version < 3 { 0 } else { from.number()? },
    })
}

fn write_recurring(out: &mut Writer<'_>, job: &QlessRecurring) {
    out.bytes(&job.jid);
    out.bytes(&job.klass);
    out.bytes(&job.data);
    out.bytes(&job.queue);
    out.float(job.priority);
    out.float(job.retries);
    out.float(job.interval);
    out.float(job.backlog);
    out.number(job.count);
    write_list(out, &job.tags, write_tag);
    write_time(out, job.next_at);
    write_list(out, &job.throttles, write_text);
}

fn read_recurring(from: &mut Cursor<'_>) -> Result<QlessRecurring, DecodeError> {
    Ok(QlessRecurring {
        jid: text(from)?,
        klass: text(from)?,
        data: text(from)?,
        queue: text(from)?,
        priority: from.float()?,
        retries: from.float()?,
        interval: from.float()?,
        backlog: from.float()?,
        count: from.number()?,
        tags: from.list(tag)?,
        next_at: time(from)?,
        throttles: from.list(text)?,
    })
}

fn write_statistics(out: &mut Writer<'_>, statistics: &QlessStatistics) {
    out.bytes(&statistics.queue);
    write_time(out, statistics.day);
    out.signed(statistics.failed);
    out.signed(statistics.failures);
    out.signed(statistics.retries);
    write_sample(out, &statistics.wait);
    write_sample(out, &statistics.run);
}

fn read_statistics(from: &mut Cursor<'_>) -> Result<QlessStatistics, DecodeError> {
    Ok(QlessStatistics {
        queue: text(from)?,
        day: time(from)?,
        failed: from.signed()?,
        failures: from.signed()?,
        retries: from.signed()?,
        wait: sample(from)?,
        run: sample(from)?,
    })
}

fn write_sample(out: &mut Writer<'_>, sample: &QlessSample) {
    out.number(sample.total);
    out.float(sample.mean);
    out.float(sample.vk);
    write_list(out, &sample.bins, |out, (bin, count)| {
        out.number(u64::from(*bin));
        out.number(*count);
    });
}

fn sample(from: &mut Cursor<'_>) -> Result<QlessSample, DecodeError> {
    Ok(QlessSample {
        total: from.number()?,
        mean: from.float()?,
        vk: from.float()?,
        bins: from.list(|from| Ok((from.small()?, from.number()?)))?,
    })
}

fn write_place(out: &mut Writer<'_>, place: &QlessPlace) {
    out.bytes(&place.queue);
    out.byte(number_of_set(place.set));
    out.float(place.rank);
    write_time(out, place.at);
}

fn place(from: &mut Cursor<'_>) -> Result<QlessPlace, DecodeError> {
    Ok(QlessPlace {
        queue: text(from)?,
        set: set(from)?,
        rank: from.float()?,
        at: time(from)?,
    })
}

fn write_failure(out: &mut Writer<'_>, failure: &QlessFailure) {
    out.bytes(&failure.group);
    out.bytes(&failure.message);
    out.float(failure.when);
    out.bytes(&failure.worker);
}

fn failure(from: &mut Cursor<'_>) -> Result<QlessFailure, DecodeError> {
    Ok(QlessFailure {
        group: text(from)?,
        message: text(from)?,
        when: from.float()?,
        worker: text(from)?,
    })
}

fn write_happening(out: &mut Writer<'_>, happening: &QlessHappening) {
    out.bytes(&happening.what);
    out.float(happening.when);
    write_list(out, &happening.extra, |out, (key, value)| {
        out.bytes(key);
        out.bytes(value);
    });
}

fn happening(from: &mut Cursor<'_>) -> Result<QlessHappening, DecodeError> {
    Ok(QlessHappening {
        what: text(from)?,
        when: from.float()?,
        extra: from.list(|from| Ok((text(from)?, text(from)?)))?,
    })
}

/// A string is 0 and its bytes, a number 1 and its bits.
fn write_tag(out: &mut Writer<'_>, tag: &QlessTag) {
    match tag {
        QlessTag::Text(text) => {
            out.byte(0);
            out.bytes(text);
        }
        QlessTag::Number(number) => {
            out.byte(1);
            out.float(*number);
        }
    }
}

fn tag(from: &mut Cursor<'_>) -> Result<QlessTag, DecodeError> {
    Ok(if from.flag()? {
        QlessTag::Number(from.float()?)
    } else {
        QlessTag::Text(text(from)?)
    })
}

fn write_since(out: &mut Writer<'_>, since: &(Bytes, QlessTime)) {
    out.bytes(&since.0);
    write_time(out, since.1);
}

/// A name and a time.
fn since(from: &mut Cursor<'_>) -> Result<(Bytes, QlessTime), DecodeError> {
    Ok((text(from)?, time(from)?))
}

pub(super) fn write_time(out: &mut Writer<'_>, time: QlessTime) {
    out.float(time.seconds());
}

pub(super) fn time(from: &mut Cursor<'_>) -> Result<QlessTime, DecodeError> {
    from.float().map(QlessTime::new)
}

fn write_text(out: &mut Writer<'_>, text: &Bytes) {
    out.bytes(text);
}

pub(super) fn text(from: &mut Cursor<'_>) -> Result<Bytes, DecodeError> {
    from.bytes().map(Bytes::copy_from_slice)
}

fn write_list<T>(out: &mut Writer<'_>, list: &[T], write: impl Fn(&mut Writer<'_>, &T)) {
    out.length(list.len());
    for entry in list {
        write(out, entry);
    }
}

fn number_of_state(state: QlessState) -> u8 {
    match state {
        QlessState::Waiting => 1,
        QlessState::Scheduled => 2,
        QlessState::Depends => 3,
        QlessState::Running => 4,
        QlessState::Stalled => 5,
        QlessState::Failed => 6,
        QlessState::Complete => 7,
        QlessState::Throttled => 8,
    }
}

fn state(from: &mut Cursor<'_>) -> Result<QlessState, DecodeError> {
    let number = from.byte()?;
    QlessState::ALL
        .into_iter()
        .find(|state| number_of_state(*state) == number)
        .ok_or_else(|| from.error("has a state that this program does not know"))
}

fn number_of_set(set: QlessSet) -> u8 {
    match set {
        QlessSet::Work => 1,
        QlessSet::Locks => 2,
        QlessSet::Scheduled => 3,
        QlessSet::Depends => 4,
        QlessSet::Recur => 5,
        QlessSet::Throttled => 6,
    }
}

/// A set in which a job has its one place.
fn set(from: &mut Cursor<'_>) -> Result<QlessSet, DecodeError> {
    Ok(match from.byte()? {
        1 => QlessSet::Work,
        2 => QlessSet::Locks,
        3 => QlessSet::Scheduled,
        4 => QlessSet::Depends,
        _ => return Err(from.error("has a place where no job lines up")),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{decode, encode};
    use super::*;

    /// A job as version 1 wrote it: `a` of class `k`, data `{}`, waiting in `q`, and 58 bytes that say nothing more.
    fn old() -> Vec<u8> {
        let mut row = vec![1, JOB, 1, b'a', 1, b'k', 2, b'{', b'}', 1, 1, b'q'];
        row.resize(70, 0);
        row
    }

    /// Reads a job of an old version, and looks whether what is new comes last.
    fn read_old(row: &[u8]) -> QlessJob {
        let read: QlessRow = decode(row).expect("it reads");
        let mut new = encode(&read);
        new.truncate(row.len());
        new[0] = row[0];
        assert_eq!(new, row, "what is new comes last");
        let QlessRow::Job(job) = read else {
            panic!("not a job: {read:?}");
        };
        assert_eq!((&job.jid[..], &job.queue[..]), (&b"a"[..], &b"q"[..]));
        QlessJob::clone(&job)
    }

    #[test]
    fn a_job_of_version_1_was_handed_out_to_nobody_of_ours() {
        let job = read_old(&old());
        assert_eq!((job.handed_out, job.lease), (0, None));
    }

    #[test]
    fn a_job_of_version_2_has_no_result_and_no_number() {
        let mut row = old();
        row[0] = 2;
        // Handed out three times, and to nobody of ours.
        row.extend([3, 0]);
        let job = read_old(&row);
        assert_eq!((job.handed_out, job.lease, job.result), (3, None, None));
        assert_eq!(job.number, 0);
    }
}

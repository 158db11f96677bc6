//! A job of qless, shown as a job of the engine: record, lease and payload.
//!
//! Times become microseconds, priorities change their sign because smaller ones run first here, and texts that are
//! too long for a name are cut. A job whose jid or queue name is too long is not shown.

use std::time::Duration;

use ganger_qless::{Qless, live_lease, tag_text, text_of};
use ganger_types::history::AttemptEnd;
use ganger_types::qless::{QlessFailure, QlessHistoryEntry, QlessJob, QlessSet, QlessState};
use ganger_types::reply::ExternalJobView;
use ganger_types::{
    Backoff, Bytes, Due, Elapsed, Failure, Finished, Group, HistoryEntry, JobId, JobKey, JobRecord,
    JobState, Kind, LeaseRecord, Namespace, Outcome, Priority, Queue, RetryPolicy, ScheduleId, Tag,
    Timestamp, What, Worker, limits,
};

use crate::external::{NO_TOKEN, short};

/// The job with this id; `None` if there is none or it cannot be shown.
pub(super) fn view(qless: &Qless, namespace: &Namespace, id: &JobId) -> Option<ExternalJobView> {
    view_of(qless, namespace, id, qless.job_by_id(id.as_bytes())?)
}

/// The view of a job.
pub(super) fn view_of(
    qless: &Qless,
    namespace: &Namespace,
    id: &JobId,
    job: &QlessJob,
) -> Option<ExternalJobView> {
    let mut record = record(namespace, id, job)?;
    record.tracked = qless.is_tracked_jid(id.as_bytes());
    let lease = (record.state == JobState::Running).then(|| lease(&record, job));
    Some(ExternalJobView {
        record,
        lease,
        payload: job.data.clone(),
        result: job.result.clone(),
    })
}

/// The state of a job of qless in terms of the engine. The job's place takes precedence over its qless state, which
/// for some waiting jobs is that of their last attempt.
pub(crate) fn state(job: &QlessJob) -> JobState {
    let place = job.place.as_ref();
    state_of(
        place.is_some_and(|place| place.set == QlessSet::Scheduled),
        job.state,
    )
}

/// The state of a job that is, or is not, in the set of scheduled jobs.
pub(super) fn state_of(is_scheduled: bool, state: QlessState) -> JobState {
    match (is_scheduled, state) {
        (true, _) | (_, QlessState::Scheduled) => JobState::Scheduled,
        (_, QlessState::Waiting | QlessState::Stalled | QlessState::Throttled) => JobState::Ready,
        (_, QlessState::Depends) => JobState::Blocked,
        (_, QlessState::Running) => JobState::Running,
        (_, QlessState::Failed) => JobState::Failed,
        (_, QlessState::Complete) => JobState::Succeeded,
    }
}

fn record(namespace: &Namespace, id: &JobId, job: &QlessJob) -> Option<JobRecord> {
    let state = state(job);
    let attempt = attempts(job);
    let is_waiting = !state.is_terminal() && state != JobState::Running;
    // qless counts a retry when it begins, so the running or last attempt is one more.
    let counted = count(job.retries - job.remaining).saturating_add(u32::from(!is_waiting));
    let queue = Queue::new(queue(job)).ok()?;
    let kind = short(&job.klass, Kind::new)?;
    Some(JobRecord {
        id_is_given: true,
        state,
        priority: priority(job.priority),
        created_at: job.history.first().map_or(moment(job.time), happened_at),
        is_ahead: job.place.as_ref().is_some_and(|it| it.rank.is_infinite()),
        due: due(job),
        retry: RetryPolicy {
            retries_max: count(job.retries),
            backoff: Backoff::Fixed(Duration::ZERO),
            ..RetryPolicy::default()
        },
        attempt,
        attempts_counted: counted.min(attempt),
        payload_bytes: u64::try_from(job.data.len()).unwrap_or(u64::MAX),
        failure: job.failure.as_ref().and_then(failure),
        tags: tags(job),
        schedule: job
            .spawned_from
            .as_ref()
            .and_then(|it| short(it, ScheduleId::new)),
        history: history(job),
        finished: finished(job),
        ..JobRecord::new(JobKey::OF_QLESS, id.clone(), namespace.clone(), queue, kind)
    })
}

fn lease(record: &JobRecord, job: &QlessJob) -> LeaseRecord {
    LeaseRecord {
        key: record.key,
        attempt: record.attempt,
        attempts_counted: record.attempts_counted,
        worker: worker(&job.worker),
        token: live_lease(job).map_or(NO_TOKEN, |lease| lease.token),
        granted_at: moment(job.time),
        lease_for: span(job.expires - job.time),
        expires_at: Elapsed::default(),
        timeout_at: None,
        ready_at: Elapsed::default(),
        granted_elapsed: Elapsed::default(),
        request: None,
        is_warned: job.is_warned,
    }
}

/// The number of times that the job was handed out, as far as its row or its history shows.
pub(super) fn attempts(job: &QlessJob) -> u32 {
    let popped = job.history.iter().filter(|entry| entry.what == "popped");
    let popped = u64::try_from(popped.count()).unwrap_or(u64::MAX);
    u32::try_from(popped.max(job.handed_out)).unwrap_or(u32::MAX)
}

/// The queue of the job; the last one if it is complete.
pub(super) fn queue(job: &QlessJob) -> Bytes {
    if !job.queue.is_empty() {
        return job.queue.clone();
    }
    let mut puts = job.history.iter().rev().filter(|entry| entry.what == "put");
    puts.find_map(|entry| text_of(entry, "q"))
        .unwrap_or_default()
}

fn due(job: &QlessJob) -> Option<Due> {
    let scheduled = job
        .place
        .as_ref()
        .filter(|it| it.set == QlessSet::Scheduled);
    let at = scheduled.map(|place| place.at).or(job.scheduled)?;
    Some(Due::Wall(moment(at.seconds())))
}

fn tags(job: &QlessJob) -> Vec<Tag> {
    let tags = job
        .tags
        .iter()
        .filter_map(|tag| short(&tag_text(tag), Tag::new));
    tags.collect()
}

fn failure(failure: &QlessFailure) -> Option<Failure> {
    let mut message = String::from_utf8_lossy(&failure.message).into_owned();
    crate::check::cut(&mut message, limits::MESSAGE_BYTES_MAX);
    Some(Failure {
        group: short(&failure.group, Group::new)?,
        message,
        at: moment(failure.when),
        worker: (!failure.worker.is_empty()).then(|| worker(&failure.worker)),
    })
}

fn finished(job: &QlessJob) -> Option<Finished> {
    let (outcome, at) = match job.state {
        QlessState::Complete => (Outcome::Succeeded, job.time),
        QlessState::Failed => {
            let failed_at = job.failure.as_ref().map(|failure| failure.when);
            (Outcome::Failed, failed_at.unwrap_or(job.time))
        }
        _ => return None,
    };
    Some(Finished {
        outcome,
        at: moment(at),
        order: 0,
        result_bytes: (job.result.as_ref())
            .map(|result| u64::try_from(result.len()).unwrap_or(u64::MAX)),
        keep_until: None,
    })
}

/// The history: puts, attempts, and everything else as notes. The entry after a pop shows how the attempt ended.
fn history(job: &QlessJob) -> Vec<HistoryEntry> {
    let mut entries = Vec::with_capacity(job.history.len());
    // Worker and start of an attempt whose end has not been seen yet.
    let mut running: Option<(Worker, Timestamp)> = None;
    let mut number = 0;
    for entry in &job.history {
        let at = happened_at(entry);
        let word = |key| text_of(entry, key).unwrap_or_default();
        let end = match &entry.what[..] {
            b"done" => Some(AttemptEnd::Succeeded),
            b"timed-out" => Some(AttemptEnd::Expired),
            b"failed" => short(&word("group"), Group::new).map(failed),
            // The job was given back before; the history has no entry for that.
            b"popped" => Some(released(true)),
            // The job was put again while it ran.
            b"put" => Some(released(false)),
            _ => None,
        };
        if let Some((attempt_end, (worker, leased_at))) = end.zip(running.take_if(|_| ends(entry)))
        {
            let what = What::Attempt {
                number,
                worker,
                leased_at,
                end: attempt_end,
            };
            entries.push(HistoryEntry { at, what });
            if entry.what != "popped" && entry.what != "put" {
                continue;
            }
        }
        let what = match &entry.what[..] {
            b"popped" => {
                number += 1;
                running = Some((worker(&word("worker")), at));
                continue;
            }
            b"put" => Queue::new(word("q"))
                .ok()
                .map(|queue| What::Enqueued { queue }),
            b"failed" => short(&word("group"), Group::new).map(|group| What::Failed { group }),
            _ => None,
        };
        let what = what.unwrap_or_else(|| note(entry));
        entries.push(HistoryEntry { at, what });
    }
    entries
}

/// Whether the entry ends an attempt.
fn ends(entry: &QlessHistoryEntry) -> bool {
    matches!(
        &entry.what[..],
        b"done" | b"timed-out" | b"failed" | b"popped" | b"put"
    )
}

fn released(counted: bool) -> AttemptEnd {
    AttemptEnd::Released {
        counted,
        reason: String::new(),
    }
}

fn failed(group: Group) -> AttemptEnd {
    AttemptEnd::Failed {
        group,
        message: String::new(),
        permanent: true,
    }
}

/// A note with the text of an entry, and its further keys as a JSON object.
fn note(entry: &QlessHistoryEntry) -> What {
    let lossy = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let members = entry.extra.iter().map(|(key, value)| {
        let key = lossy(key).replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{key}\":{}", lossy(value))
    });
    let members: Vec<String> = members.collect();
    What::Note {
        text: lossy(&entry.what),
        data: if members.is_empty() {
            String::new()
        } else {
            format!("{{{}}}", members.join(","))
        },
    }
}

fn happened_at(entry: &QlessHistoryEntry) -> Timestamp {
    moment(entry.when)
}

/// The name of a worker, cut to the maximum length.
pub(super) fn worker(name: &Bytes) -> Worker {
    short(name, Worker::new).unwrap_or_else(|| Worker::from_static(""))
}

/// A time of qless; times before the epoch count as the epoch.
pub(super) fn moment(seconds: f64) -> Timestamp {
    Timestamp(micros(seconds))
}

fn span(seconds: f64) -> Duration {
    Duration::from_micros(micros(seconds))
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "such a cast keeps within the type's range, and what is negative was cut before"
)]
fn micros(seconds: f64) -> u64 {
    (seconds.max(0.0) * 1e6).round() as u64
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    reason = "such a cast keeps within the type's range"
)]
fn priority(higher_first: f64) -> Priority {
    Priority::from_millionths((-higher_first * 1e6).round() as i64)
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "such a cast keeps within the type's range"
)]
pub(super) fn count(number: f64) -> u32 {
    number.max(0.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_to_the_microsecond_and_priorities_turn_their_sign() {
        assert_eq!(
            moment(1_700_000_000.123_456),
            Timestamp(1_700_000_000_123_456)
        );
        assert_eq!(moment(-1.0), Timestamp(0));
        assert_eq!(moment(1e300), Timestamp(u64::MAX));
        assert_eq!(priority(2.5), Priority::from_millionths(-2_500_000));
    }
}

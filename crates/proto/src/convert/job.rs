//! Jobs: to messages from stored jobs, and to the documents of HTTP and the SDK.

use std::time::Duration;

use ganger_document::raw_json;
use ganger_document::view::history::HistoryEntry;
use ganger_document::view::job::{Failure, Job, Lease, SUMMARY_MESSAGE_BYTES};
use ganger_types::history::AttemptEnd;
use ganger_types::{Due, JobState, ShardId, StoredJob, What};

use super::{
    At, FieldError, calendar, known_state, label_messages, ms, non_empty, pairs, priority,
    priority_millionths, retry_if_any, state_number, tag_texts, text_or_empty,
};
use crate::v1;

/// The message of a stored job; a `brief` one has no history.
pub fn job_message(shard: &ShardId, stored: StoredJob, brief: bool) -> v1::Job {
    let StoredJob { record, lease } = stored;
    let history = if brief { &[][..] } else { &record.history[..] };
    v1::Job {
        id: record.id.to_text().into_owned(),
        shard: shard.to_string(),
        number: record.key.0,
        namespace: record.namespace.to_text().into_owned(),
        queue: record.queue.to_text().into_owned(),
        kind: record.kind.to_text().into_owned(),
        state: state_number(record.state),
        priority: record.priority.to_whole(),
        priority_millionths: priority_millionths(record.priority),
        created_at_us: record.created_at.0,
        run_at_us: record.due.and_then(|due| match due {
            Due::Wall(at) if record.state == JobState::Scheduled => Some(at.0),
            _ => None,
        }),
        deadline_at_us: record.deadline.map(|at| at.0),
        timeout_ms: record.timeout.map(ms),
        retry: Some((&record.retry).into()),
        attempt: record.attempt,
        attempts_counted: record.attempts_counted,
        releases: record.releases,
        lease_expirations: record.lease_expirations,
        payload_bytes: record.payload_bytes,
        inputs: record.inputs,
        failure: record.failure.as_ref().map(|failure| v1::Failure {
            group: failure.group.to_text().into_owned(),
            message: failure.message.clone(),
            at_us: failure.at.0,
            worker: text_or_empty(failure.worker.as_ref()),
        }),
        graph: text_or_empty(record.graph.as_ref()),
        tags: tag_texts(&record.tags),
        labels: label_messages(&record.labels),
        tracked: record.tracked,
        unique: text_or_empty(record.unique.as_ref()),
        schedule: text_or_empty(record.schedule.as_ref()),
        progress: record.progress.clone().map(Into::into),
        lease: lease.map(|lease| v1::LeaseView {
            worker: lease.worker.to_text().into_owned(),
            attempt: lease.attempt,
            granted_at_us: lease.granted_at.0,
            lease_ms: ms(lease.lease_for),
        }),
        finished: record.finished.as_ref().map(|finished| v1::Finished {
            outcome: state_number(finished.outcome.state()),
            at_us: finished.at.0,
            result_bytes: finished.result_bytes,
        }),
        history: history.iter().map(history_message).collect(),
        history_dropped: record.history_dropped,
        name: text_or_empty(record.name.as_ref()),
        kept_by: record.key.kept_by().unwrap_or_default().to_owned(),
    }
}

/// Leaves out what summaries do not have, and cuts the failure message.
pub fn shorten_job(job: &mut v1::Job) {
    job.history.clear();
    job.history_dropped = 0;
    job.retry = None;
    if let Some(failure) = &mut job.failure {
        let end = failure.message.floor_char_boundary(SUMMARY_MESSAGE_BYTES);
        failure.message.truncate(end);
    }
}

fn history_message(entry: &ganger_types::HistoryEntry) -> v1::HistoryEntry {
    let detail = match &entry.what {
        What::Enqueued { queue } => queue.to_text().into_owned(),
        What::Failed { group } => group.to_text().into_owned(),
        What::Cancelled { reason } => reason.clone(),
        What::Note { text, .. } => text.clone(),
        What::Attempt { .. } | What::Retried | What::TimedOutByHand => String::new(),
    };
    let data = match &entry.what {
        What::Note { data, .. } => data.clone(),
        _ => String::new(),
    };
    v1::HistoryEntry {
        at_us: entry.at.0,
        what: entry.what.as_str().to_owned(),
        detail,
        attempt: attempt(&entry.what),
        data,
    }
}

fn attempt(what: &What) -> Option<v1::AttemptView> {
    let What::Attempt {
        number,
        worker,
        leased_at,
        end,
    } = what
    else {
        return None;
    };
    let mut view = v1::AttemptView {
        number: *number,
        worker: worker.to_text().into_owned(),
        leased_at_us: leased_at.0,
        ..v1::AttemptView::default()
    };
    match end {
        AttemptEnd::Failed {
            group,
            message,
            permanent,
        } => {
            view.group = group.to_text().into_owned();
            view.message.clone_from(message);
            view.permanent = *permanent;
        }
        AttemptEnd::Released { counted, reason } => {
            view.message.clone_from(reason);
            view.counted = *counted;
        }
        AttemptEnd::Succeeded
        | AttemptEnd::Expired
        | AttemptEnd::TimedOut
        | AttemptEnd::Cancelled => {}
    }
    end.as_str().clone_into(&mut view.end);
    Some(view)
}

/// The document of a job.
///
/// # Errors
/// If its state is missing, or a field has a value that this version does not know.
pub fn job(job: v1::Job) -> Result<Job, FieldError> {
    let finished = job.finished.as_ref();
    let history = job.history.into_iter().map(history_document);
    Ok(Job {
        r#ref: format!("{}/{}", job.shard, job.id),
        id: job.id,
        number: job.number,
        name: non_empty(job.name),
        shard: job.shard,
        namespace: job.namespace,
        queue: job.queue,
        kind: job.kind,
        state: known_state(At::top("state"), job.state)?,
        priority: priority(At::top("priority"), job.priority, job.priority_millionths)?,
        created_at: calendar(job.created_at_us),
        run_at: job.run_at_us.map(calendar),
        deadline: job.deadline_at_us.map(calendar),
        timeout: job.timeout_ms.map(Duration::from_millis),
        retry: retry_if_any(At::top("retry"), job.retry.as_ref())?.unwrap_or_default(),
        attempt: job.attempt,
        attempts_counted: job.attempts_counted,
        releases: job.releases,
        lease_expirations: job.lease_expirations,
        payload_bytes: job.payload_bytes,
        inputs: job.inputs,
        tags: job.tags,
        labels: pairs(job.labels).into_iter().collect(),
        tracked: job.tracked,
        graph: non_empty(job.graph),
        schedule: non_empty(job.schedule),
        unique_key: non_empty(job.unique),
        progress: job.progress.map(Into::into),
        lease: job.lease.map(lease),
        failure: job.failure.map(failure),
        finished_at: finished.map(|finished| calendar(finished.at_us)),
        result_bytes: finished.and_then(|finished| finished.result_bytes),
        history: history.collect(),
        history_dropped: job.history_dropped,
        kept_by: non_empty(job.kept_by),
    })
}

fn failure(failure: v1::Failure) -> Failure {
    Failure {
        group: failure.group,
        message: failure.message,
        at: calendar(failure.at_us),
        worker: non_empty(failure.worker),
    }
}

fn lease(lease: v1::LeaseView) -> Lease {
    Lease {
        worker: lease.worker,
        attempt: lease.attempt,
        granted_at: calendar(lease.granted_at_us),
        lease_for: Duration::from_millis(lease.lease_ms),
    }
}

fn history_document(entry: v1::HistoryEntry) -> HistoryEntry {
    let plain = HistoryEntry::new(calendar(entry.at_us), entry.what);
    let detail = entry.detail;
    match (&*plain.what, entry.attempt) {
        ("attempt", Some(attempt)) => ended(plain, attempt),
        ("enqueued", _) => HistoryEntry {
            queue: Some(detail),
            ..plain
        },
        ("failed", _) => HistoryEntry {
            group: Some(detail),
            ..plain
        },
        ("cancelled", _) => HistoryEntry {
            message: Some(detail),
            ..plain
        },
        ("note", _) => HistoryEntry {
            message: Some(detail),
            data: raw_json::parse(&entry.data),
            ..plain
        },
        _ => plain,
    }
}

/// An attempt that has ended.
fn ended(entry: HistoryEntry, attempt: v1::AttemptView) -> HistoryEntry {
    let is_failed = attempt.end == "failed";
    let is_released = attempt.end == "released";
    HistoryEntry {
        attempt: Some(attempt.number),
        worker: Some(attempt.worker),
        leased_at: Some(calendar(attempt.leased_at_us)),
        end: Some(attempt.end.into()),
        group: is_failed.then_some(attempt.group),
        message: (is_failed || is_released).then_some(attempt.message),
        permanent: is_failed.then_some(attempt.permanent),
        counted: is_released.then_some(attempt.counted),
        ..entry
    }
}

//! Jobs as shown.

use ganger_proto::{convert, v1};
use ganger_shard::{BulkResult, LogChunk, StoredJob};
use ganger_types::job::AttemptEnd;
use ganger_types::{Due, HistoryEntry, InputRow, InputState, JobId, JobState, ShardId, What};

use super::{global, labels, ms, state, tags, text};

/// A job as it stands.
pub(crate) fn job(shard: &ShardId, stored: StoredJob, brief: bool) -> v1::Job {
    let StoredJob { record, lease } = stored;
    let history = if brief { &[][..] } else { &record.history[..] };
    let shown = if lease.is_some() {
        JobState::Running
    } else {
        record.state
    };
    v1::Job {
        id: record.id.to_text().into_owned(),
        shard: shard.to_string(),
        number: record.key.0,
        namespace: record.namespace.to_text().into_owned(),
        queue: record.queue.to_text().into_owned(),
        kind: record.kind.to_text().into_owned(),
        state: state(shown),
        priority: record.priority.to_whole(),
        priority_millionths: convert::priority_millionths(record.priority),
        created_at_us: record.created_at.0,
        run_at_us: record.due.and_then(|due| match due {
            Due::Wall(at) if shown == JobState::Scheduled => Some(at.0),
            _ => None,
        }),
        deadline_at_us: record.deadline.map(|at| at.0),
        timeout_ms: record.timeout.map(ms),
        retry: Some((&record.retry).into()),
        attempt: lease.as_ref().map_or(record.attempt, |lease| lease.attempt),
        attempts_counted: lease
            .as_ref()
            .map_or(record.attempts_counted, |lease| lease.attempts_counted),
        releases: record.releases,
        lease_expirations: record.lease_expirations,
        payload_bytes: record.payload_bytes,
        inputs: record.inputs,
        failure: record.failure.as_ref().map(|failure| v1::Failure {
            group: failure.group.to_text().into_owned(),
            message: failure.message.clone(),
            at_us: failure.at.0,
            worker: text!(failure.worker),
        }),
        graph: text!(record.graph),
        tags: tags(&record.tags),
        labels: labels(&record.labels),
        tracked: record.tracked,
        unique: text!(record.unique),
        schedule: text!(record.schedule),
        progress: record.progress.clone().map(Into::into),
        lease: lease.map(|lease| v1::LeaseView {
            worker: lease.worker.to_text().into_owned(),
            attempt: lease.attempt,
            granted_at_us: lease.granted_at.0,
            lease_ms: ms(lease.lease_for),
        }),
        finished: record.finished.as_ref().map(|finished| v1::Finished {
            outcome: state(finished.outcome.state()),
            at_us: finished.at.0,
            result_bytes: finished.result_bytes,
        }),
        history: history.iter().map(entry).collect(),
        history_dropped: record.history_dropped,
        name: text!(record.name),
        kept_by: record.key.kept_by().unwrap_or_default().to_owned(),
    }
}

fn entry(entry: &HistoryEntry) -> v1::HistoryEntry {
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

/// One enqueued job, beside its name in the submission.
pub(crate) fn enqueued(shard: &ShardId, id: &JobId, existed: bool, name: String) -> v1::Enqueued {
    v1::Enqueued {
        id: id.to_text().into_owned(),
        name,
        shard: shard.to_string(),
        existed,
    }
}

pub(crate) fn changed(shard: &ShardId, count: u64, skipped: &[ganger_types::JobId]) -> v1::Changed {
    v1::Changed {
        count,
        skipped: skipped.iter().map(|id| global(shard, id)).collect(),
        dependents: Vec::new(),
        passed_on: Vec::new(),
    }
}

/// The shards that something was passed on to.
pub(crate) fn shards<'a>(shards: impl IntoIterator<Item = &'a ShardId>) -> Vec<String> {
    shards.into_iter().map(ShardId::to_string).collect()
}

/// What was done to the jobs that fulfil a filter, or would be.
pub(crate) fn matched(shard: &ShardId, done: BulkResult) -> v1::Matched {
    let names = |ids: &[JobId]| ids.iter().map(|id| global(shard, id)).collect();
    let by_state = done.by_state.into_iter();
    let by_queue = done.by_queue.into_iter();
    v1::Matched {
        changed: done.changed,
        skipped: done.skipped,
        skipped_jobs: names(&done.skipped_jobs),
        passed_on: shards(&done.passed_on),
        by_state: by_state
            .map(|(state, count)| (state.as_str().to_owned(), count))
            .collect(),
        by_queue: by_queue
            .map(|(queue, count)| (queue.to_text().into_owned(), count))
            .collect(),
        sample: names(&done.sample),
        next: done.next.map(|place| place.to_string()).unwrap_or_default(),
    }
}

/// An input, without the results of delivered ones.
pub(crate) fn input(row: &InputRow) -> v1::InputView {
    let mut view = v1::InputView {
        slot: row.slot,
        ..v1::InputView::default()
    };
    let elsewhere;
    let (word, dependency) = match &row.state {
        InputState::Remote {
            dependency,
            policy: edge,
            ..
        } => {
            view.policy = i32::from(v1::FailurePolicy::from(*edge));
            elsewhere = dependency.to_name();
            ("missing", Some(&elsewhere))
        }
        InputState::Received {
            dependency,
            policy: edge,
            value,
        } => {
            view.policy = i32::from(v1::FailurePolicy::from(*edge));
            view.value = Some(value.clone());
            elsewhere = dependency.to_name();
            ("delivered", Some(&elsewhere))
        }
        InputState::Value(value) => {
            view.value = Some(value.clone());
            ("value", None)
        }
        InputState::Missing {
            id, policy: edge, ..
        } => {
            view.policy = i32::from(v1::FailurePolicy::from(*edge));
            ("missing", Some(id))
        }
        InputState::Delivered {
            id, policy: edge, ..
        } => {
            view.policy = i32::from(v1::FailurePolicy::from(*edge));
            ("delivered", Some(id))
        }
        InputState::Ignored { id } => {
            view.policy = i32::from(v1::FailurePolicy::Ignore);
            ("ignored", Some(id))
        }
    };
    word.clone_into(&mut view.state);
    view.dependency = text!(dependency);
    view
}

/// A piece of a log, and where the next one begins.
pub(crate) fn log_page(chunks: Vec<LogChunk>, from: (u32, u64), end: bool) -> v1::LogReply {
    let next = chunks.last().map_or(from, |last| {
        (last.attempt, last.offset + super::count(last.bytes.len()))
    });
    let chunk = |chunk: LogChunk| v1::LogChunk {
        attempt: chunk.attempt,
        offset: chunk.offset,
        at_us: chunk.at.0,
        bytes: chunk.bytes,
    };
    v1::LogReply {
        chunks: chunks.into_iter().map(chunk).collect(),
        attempt: next.0,
        offset: next.1,
        end,
    }
}

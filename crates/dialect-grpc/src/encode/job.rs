//! Jobs as shown.

use ganger_proto::v1;
use ganger_router::Submitted;
use ganger_shard::{BulkResult, Handle, LogChunk};
use ganger_types::{AffectedJobs, CancelEffects, InputRow, InputState, JobId, ShardId};

use super::{global, text_or_empty};

/// The answer to a submission, with the names that the client gave its jobs.
pub(crate) fn enqueue_reply(submitted: &Submitted, names: Vec<String>) -> v1::EnqueueReply {
    let jobs = submitted.jobs.iter().zip(names);
    let jobs = jobs.map(|((job, existed), name)| enqueued(&job.shard, &job.id, *existed, name));
    v1::EnqueueReply {
        jobs: jobs.collect(),
        graph: text_or_empty(submitted.graph.as_ref()),
        repeat: submitted.repeat,
    }
}

/// One enqueued job, beside its name in the submission.
fn enqueued(shard: &ShardId, id: &JobId, existed: bool, name: String) -> v1::Enqueued {
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

/// What was done to the jobs that match a filter.
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
        ..v1::Matched::default()
    }
}

/// What would be done to the jobs that match a filter.
pub(crate) fn would_match(handle: &Handle, exact: bool, done: BulkResult) -> v1::Matched {
    v1::Matched {
        exact,
        other_queues: done.other_queues,
        as_of_us: Some(handle.wall_time().0),
        ..matched(handle.id(), done)
    }
}

/// The consequences that the cancellation of a job would have.
pub(crate) fn cancel_effects(shard: &ShardId, effects: &CancelEffects) -> v1::CancelEffectsReply {
    let affected = |affected: &AffectedJobs| {
        let names = affected.jobs.iter().map(|id| global(shard, id));
        Some(v1::AffectedJobs {
            count: affected.count,
            jobs: names.collect(),
        })
    };
    v1::CancelEffectsReply {
        state: super::state(effects.state),
        cancelled: affected(&effects.cancelled),
        failed: affected(&effects.failed),
        waiting: affected(&effects.waiting),
        continuing: affected(&effects.continuing),
        elsewhere: effects.elsewhere,
        complete: effects.is_complete,
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
    view.dependency = text_or_empty(dependency);
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

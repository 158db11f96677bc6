//! Operations: to messages from stored operations, and to the documents of HTTP and the SDK.

use ganger_document::view::operation::{Filter, LeftOut, Operation};
use ganger_types::operation::{JobFilter, OperationRecord};
use ganger_types::{JobState, OperationAction, OperationState, ShardId};

use super::{
    At, FieldError, calendar, global_name, known_state, label_messages, ms, non_empty, pairs,
    state_number, tag_texts,
};
use crate::v1;

/// The message about an operation of this shard.
pub fn operation_message(shard: &ShardId, record: OperationRecord) -> v1::Operation {
    let left_out = record.left_out.into_iter();
    v1::Operation {
        operation: record.number.to_string(),
        shard: shard.to_string(),
        action: i32::from(v1::OperationAction::from(&record.action)),
        filter: Some(filter_message(record.filter)),
        state: i32::from(v1::OperationState::from(record.state)),
        message: record.message,
        matching: record.matching,
        done: record.done,
        skipped: record.skipped,
        failed: record.failed,
        left_out: left_out
            .map(|left_out| v1::LeftOutJob {
                job: global_name(shard, &left_out.job),
                reason: left_out.reason,
            })
            .collect(),
        at_most: record.at_most.unwrap_or(0),
        spread_over_ms: record.spread_over.map(ms),
        reason: record.reason,
        by: record.by,
        began_at_us: record.began_at.0,
        ended_at_us: record.ended_at.map(|at| at.0),
    }
}

/// The document of an operation.
///
/// # Errors
/// If a field has a value that this version does not know.
pub fn operation(wire: v1::Operation) -> Result<Operation, FieldError> {
    let action = match wire.action() {
        v1::OperationAction::Retry => "retry",
        v1::OperationAction::Cancel => "cancel",
        v1::OperationAction::Delete => "delete",
        v1::OperationAction::Alter => "alter",
        v1::OperationAction::Unspecified => return Err(unknown("action")),
    };
    let state = match wire.state() {
        v1::OperationState::Running => OperationState::Running,
        v1::OperationState::Done => OperationState::Done,
        v1::OperationState::Stopped => OperationState::Stopped,
        v1::OperationState::Failed => OperationState::Failed,
        v1::OperationState::Unspecified => return Err(unknown("state")),
    };
    let left_out = wire.left_out.into_iter();
    Ok(Operation {
        operation: wire.operation,
        shard: wire.shard,
        action: action.to_owned(),
        filter: filter(wire.filter.unwrap_or_default())?,
        state,
        message: non_empty(wire.message),
        matching: wire.matching,
        done: wire.done,
        skipped: wire.skipped,
        failed: wire.failed,
        left_out: left_out
            .map(|left_out| LeftOut {
                job: left_out.job,
                reason: left_out.reason,
            })
            .collect(),
        at_most: Some(wire.at_most).filter(|most| *most > 0),
        spread_over: wire.spread_over_ms.map(std::time::Duration::from_millis),
        reason: non_empty(wire.reason),
        by: wire.by,
        began_at: calendar(wire.began_at_us),
        ended_at: wire.ended_at_us.map(calendar),
    })
}

fn unknown(field: &'static str) -> FieldError {
    FieldError::invalid(At::top(field), "this version does not know the value")
}

fn filter_message(filter: JobFilter) -> v1::ListRequest {
    let states = Some(filter.states).filter(|states| !states.is_all());
    let prefix = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    v1::ListRequest {
        queue: filter.queue.map(|name| name.to_text().into_owned()),
        state: states
            .into_iter()
            .flat_map(|states| states.iter().collect::<Vec<_>>())
            .map(state_number)
            .collect(),
        kind: filter.kind.map(|name| name.to_text().into_owned()),
        kind_prefix: filter.kind_prefix.map(prefix),
        id_prefix: filter.id_prefix.map(prefix),
        tag: tag_texts(&filter.tags),
        label: label_messages(&filter.labels),
        graph: filter.graph.map(|name| name.to_text().into_owned()),
        schedule: filter.schedule.map(|name| name.to_text().into_owned()),
        group: filter.group.map(|name| name.to_text().into_owned()),
        failure_text: filter.failure_text,
        worker: filter.worker.map(|name| name.to_text().into_owned()),
        unique_key: filter.unique_key.map(|name| name.to_text().into_owned()),
        tracked: filter.tracked,
        attempt_min: filter.attempt_min,
        created_from_us: filter.created_from.map(|at| at.0),
        created_before_us: filter.created_before.map(|at| at.0),
        finished_from_us: filter.finished_from.map(|at| at.0),
        finished_before_us: filter.finished_before.map(|at| at.0),
        ..v1::ListRequest::default()
    }
}

fn filter(wire: v1::ListRequest) -> Result<Filter, FieldError> {
    let states = wire.state.into_iter();
    let states = states.map(|state| known_state(At::top("state"), state));
    let states: Vec<JobState> = states.collect::<Result<_, _>>()?;
    Ok(Filter {
        queue: wire.queue,
        state: states
            .into_iter()
            .map(|state| state.as_str().to_owned())
            .collect(),
        kind: wire.kind,
        kind_prefix: wire.kind_prefix,
        id_prefix: wire.id_prefix,
        tag: wire.tag,
        label: pairs(wire.label).into_iter().collect(),
        graph: wire.graph,
        schedule: wire.schedule,
        group: wire.group,
        failure_text: wire.failure_text,
        worker: wire.worker,
        unique_key: wire.unique_key,
        tracked: wire.tracked,
        attempt_min: wire.attempt_min,
        created_from: wire.created_from_us.map(calendar),
        created_before: wire.created_before_us.map(calendar),
        finished_from: wire.finished_from_us.map(calendar),
        finished_before: wire.finished_before_us.map(calendar),
    })
}

impl From<&OperationAction> for v1::OperationAction {
    fn from(action: &OperationAction) -> Self {
        match action {
            OperationAction::Retry { .. } => Self::Retry,
            OperationAction::Cancel => Self::Cancel,
            OperationAction::Delete => Self::Delete,
            OperationAction::Alter(_) => Self::Alter,
        }
    }
}

impl From<OperationState> for v1::OperationState {
    fn from(state: OperationState) -> Self {
        match state {
            OperationState::Running => Self::Running,
            OperationState::Done => Self::Done,
            OperationState::Stopped => Self::Stopped,
            OperationState::Failed => Self::Failed,
        }
    }
}

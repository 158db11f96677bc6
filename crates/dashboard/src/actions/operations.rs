//! Starts and stops operations.

use std::time::Duration;

use ganger_types::command::StopOperation;
use ganger_types::operation::JobFilter;
use ganger_types::{OperationAction, OperationRecord, OperationState};
use tokio::time::Instant;

use crate::data::operations::parse;
use crate::fault::Fault;
use crate::format::plural;
use crate::notice::Notice;
use crate::pages::{operation_address, operation_name};
use crate::question::Shard;
use crate::view::View;
use crate::wire::Stored;

use super::bulk::{JobsAction, notice};
use super::changes;
use super::{Done, Form};

/// How long the answer to a form waits for an operation on few jobs to end, so that it can tell the numbers.
const PATIENCE: Duration = Duration::from_secs(2);
/// With more jobs the answer is the page of the operation.
pub(super) const FEW_JOBS_MAX: u64 = 1_000;

/// An operation that a form asks for.
pub(super) struct Wanted {
    pub(super) filter: JobFilter,
    /// Time over which to spread the changes; `None`: at once.
    pub(super) spread_over: Option<Duration>,
    pub(super) reason: String,
    /// Whether the numbers of the dry run are of all jobs that match.
    pub(super) is_all: bool,
}

/// Starts an operation on each shard on which some jobs match; beside each the number of jobs that the dry run found.
pub(super) async fn start(
    view: &View,
    chosen: JobsAction,
    wanted: Wanted,
    shards: Vec<(Shard, u64)>,
) -> Result<Done, Fault> {
    let jobs: u64 = shards.iter().map(|(_, would)| would).sum();
    let may_end_soon = wanted.is_all && wanted.spread_over.is_none() && jobs <= FEW_JOBS_MAX;
    let (mut begun, mut failed) = (Vec::new(), Vec::new());
    for (shard, would) in shards {
        if would == 0 && wanted.is_all {
            continue;
        }
        let question = changes::Begin {
            chosen,
            filter: wanted.filter.clone(),
            // No more than the question has named.
            at_most: wanted.is_all.then_some(would),
            spread_over: wanted.spread_over,
            reason: wanted.reason.clone(),
        };
        match shard.ask(view, &question).await {
            Ok(Stored(record)) => begun.push((shard, record)),
            Err(fault) if begun.is_empty() => return Err(fault),
            // Others have begun, which must be said too.
            Err(fault) => failed.push(format!(" {}: {}.", fault.heading, fault.detail)),
        }
    }
    if may_end_soon
        && failed.is_empty()
        && let Ok(Some(ended)) = ends_of(view, &begun).await
    {
        let done = ended.iter().map(|record| record.done).sum();
        let skipped = ended.iter().map(|record| record.skipped + record.failed);
        return Ok(notice(chosen.done(), done, skipped.sum(), &[]));
    }
    let to = match begun.as_slice() {
        [(shard, record)] => operation_address(view, shard.id(), record.number),
        _ => view.links.to("/operations"),
    };
    let names: Vec<String> = begun
        .iter()
        .map(|(shard, record)| operation_name(shard.id(), record.number))
        .collect();
    let names = names.join(", ");
    let text = format!("Started {names}: it goes on by itself.{}", failed.concat());
    Ok(Done::Notice {
        notice: Notice::done(text),
        to: Some(to.as_str().to_owned()),
    })
}

/// The operations once they have ended; `None` if one takes too long.
async fn ends_of(
    view: &View,
    begun: &[(Shard, OperationRecord)],
) -> Result<Option<Vec<OperationRecord>>, Fault> {
    let until = Instant::now() + PATIENCE;
    let mut ended = Vec::new();
    for (shard, record) in begun {
        let end = changes::End {
            number: record.number.0,
            patience: until.saturating_duration_since(Instant::now()),
        };
        match shard.ask(view, &end).await? {
            Some(Stored(record)) => ended.push(record),
            None => return Ok(None),
        }
    }
    Ok(Some(ended))
}

pub(super) async fn stop(view: &View, form: &Form) -> Result<Done, Fault> {
    let id = form
        .text("id")?
        .ok_or_else(|| Fault::value("id", "is missing: it names an operation, such as 1/op-7"))?;
    let (shard, number) = parse(view, id)?;
    let record = shard.operation(view.namespace(), number).await?;
    if record.action != OperationAction::Cancel {
        // What only operators may start, only they may stop.
        view.rights.check("retryJobs")?;
    }
    let name = operation_name(shard.id(), number);
    let ended = |state: OperationState| Done::Notice {
        notice: Notice::refused(format!(
            "Not stopped: {name} is {} already.",
            state.as_str()
        )),
        to: None,
    };
    if record.state != OperationState::Running {
        return Ok(ended(record.state));
    }
    let stop = StopOperation {
        namespace: view.namespace().clone(),
        number,
        by: view.rights.identity().to_string(),
    };
    let record = shard.stop_operation(stop).await?;
    if record.state != OperationState::Stopped {
        return Ok(ended(record.state));
    }
    let done = plural(record.done, "job");
    Ok(Done::Notice {
        notice: Notice::done(format!("Stopped {name}; it had changed {done}.")),
        to: None,
    })
}

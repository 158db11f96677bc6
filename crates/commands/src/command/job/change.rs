//! `ganger job cancel`, `retry`, `delete`, `time-out`, `set`.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use clap::Args;
use ganger_client::{
    Alteration, BulkAction, BulkResult, CancelEffects, ChangeResult, JobFilter, NewOperation,
    OperationAction, Start,
};
use serde_json::json;

use crate::command::job::list::{Filters, read_label};
use crate::command::operation::{exit_of, remark_left_out, start_and_wait};
use crate::command::run::{argument, read_priority};
use crate::context::{Context, remark};
use crate::document::span::{read_moment, read_span};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::{counted, escape, json as views};

/// Maximum number of ids kept from several calls.
const LISTED_IDS_MAX: usize = 100;
/// Maximum number of skipped jobs that are printed.
const SKIPPED_LINES_MAX: usize = 10;
/// Maximum number of queues that a dry run prints.
const QUEUE_LINES_MAX: usize = 20;

/// Bounds of an action on all jobs that match conditions.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    /// With conditions: change at most this many jobs.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) at_most: Option<u64>,

    /// With conditions: spread the changes over this time, at most 7 days.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    pub(super) spread_over: Option<Duration>,
}

/// Cancels jobs that have not ended: those named, or all that match the conditions.
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Ids of the jobs.
    pub(super) jobs: Vec<String>,

    #[command(flatten)]
    filters: Filters,

    /// Change nothing; print how many jobs would change, or what the cancellation of the named jobs would lead to.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    bounds: Bounds,

    /// Reason, recorded in the history.
    #[arg(long, default_value = "")]
    reason: String,
}

/// Retries finished jobs with a new series of attempts: those named, or all that match the conditions.
#[derive(Args, Debug)]
pub(crate) struct RetryArgs {
    /// Ids of the jobs.
    pub(super) jobs: Vec<String>,

    #[command(flatten)]
    filters: Filters,

    /// Change nothing; print how many jobs would change.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    bounds: Bounds,

    /// Retry them in this queue instead of their own.
    #[arg(long, value_name = "QUEUE")]
    into: Option<String>,

    /// Also retry the jobs that ended because these did: dependents that failed with them, and jobs that were
    /// cancelled because no job needed them any more. Jobs on other shards follow once those have been reached.
    #[arg(long)]
    dependents: bool,
}

/// Removes jobs completely: those named, or all that match the conditions.
#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// Ids of the jobs.
    pub(super) jobs: Vec<String>,

    #[command(flatten)]
    filters: Filters,

    /// Change nothing; print how many jobs would change.
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    bounds: Bounds,
}

/// Arguments for ending the running attempts of jobs.
#[derive(Args, Debug)]
pub(crate) struct TimeOutArgs {
    /// Ids of the jobs.
    #[arg(required = true)]
    pub(super) jobs: Vec<String>,
}

/// Arguments for changing a job.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// Id of the job, or shard/id.
    pub(super) job: String,

    /// New priority; smaller runs first.
    #[arg(long, allow_hyphen_values = true, value_parser = read_priority)]
    priority: Option<i64>,

    /// New queue of the job.
    #[arg(long)]
    queue: Option<String>,

    /// Start no earlier than this time from now.
    #[arg(long, value_name = "DURATION", value_parser = read_span, conflicts_with = "run_at")]
    delay: Option<Duration>,

    /// Start no earlier than this time.
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,

    /// New payload: a JSON value, or text.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,

    /// Add this tag; may be repeated.
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,

    /// Remove this tag; may be repeated.
    #[arg(long, value_name = "TAG")]
    untag: Vec<String>,

    /// Set this label; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = read_label)]
    label: Vec<(String, String)>,

    /// Remove the label with this key; may be repeated.
    #[arg(long, value_name = "KEY")]
    no_label: Vec<String>,

    /// Track the job, or stop tracking it.
    #[arg(long)]
    tracked: Option<bool>,

    /// Add this line to the history.
    #[arg(long)]
    note: Option<String>,
}

fn refs(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}

/// Prints what was changed. A named job that was not changed makes the command fail.
fn print_changed(context: &Context, changed: &ChangeResult, done: &str, why_not: &str) -> Outcome {
    context.either(
        &views::changed(changed),
        format!("{} {done}", counted(changed.count, "job")),
    )?;
    if changed.skipped.is_empty() {
        return Ok(Exit::Done);
    }
    if !context.is_json() {
        for id in &changed.skipped {
            remark(format!("{} was not {done}: {why_not}", escape::line(id)));
        }
    }
    Ok(Exit::NotFound)
}

/// Prints which other shards retry jobs.
fn print_other_shards(context: &Context, shards: &BTreeSet<String>) {
    if context.is_json() || shards.is_empty() {
        return;
    }
    let names: Vec<&str> = shards.iter().map(String::as_str).collect();
    remark(format!(
        "passed on to shard {}: what ended there comes back once the message has arrived; `ganger outbox` lists \
         messages that wait",
        names.join(", ")
    ));
}

pub(crate) async fn cancel(context: &Context, args: CancelArgs) -> Outcome {
    let is_dry_of_named = args.dry_run && !args.jobs.is_empty();
    if let Some(filter) = filter(&args.jobs, args.filters, args.dry_run && !is_dry_of_named)? {
        let is_graph_alone = filter
            == JobFilter {
                graph: filter.graph.clone(),
                ..JobFilter::default()
            };
        if let (Some(graph), true) = (&filter.graph, is_graph_alone && !args.dry_run) {
            // A graph is cancelled on all its shards; finished members are expected here.
            let client = context.client().await?;
            let changed = client.cancel_graph(graph, &args.reason).await?;
            let text = format!("{} cancelled", counted(changed.count, "job"));
            context.either(&views::changed(&changed), text)?;
            return Ok(Exit::Done);
        }
        let reason = args.reason;
        let action = BulkAction::Cancel { reason };
        return matching(
            context,
            action,
            filter,
            args.dry_run,
            args.bounds,
            "cancelled",
        )
        .await;
    }
    let client = context.client().await?;
    if is_dry_of_named {
        for job in &args.jobs {
            let effects = client.cancel_effects(job).await?;
            context.either(&effects, effects_text(job, &effects))?;
        }
        return Ok(Exit::Done);
    }
    let changed = client.cancel(&refs(&args.jobs), &args.reason).await?;
    print_changed(
        context,
        &changed,
        "cancelled",
        "it is not there, or has ended",
    )
}

pub(crate) async fn retry(context: &Context, args: RetryArgs) -> Outcome {
    if args.filters.queue.is_some() && !args.jobs.is_empty() {
        return Err(Failure::usage(
            "--queue selects jobs; to put jobs into another queue give --into QUEUE",
        ));
    }
    let into = args.into.as_deref();
    if let Some(filter) = filter(&args.jobs, args.filters, args.dry_run)? {
        let is_graph_alone = filter
            == JobFilter {
                graph: filter.graph.clone(),
                ..JobFilter::default()
            };
        if let (Some(graph), true) = (&filter.graph, is_graph_alone && !args.dry_run) {
            let client = context.client().await?;
            let changed = client.retry_graph(graph, into).await?;
            let outcome = print_changed(
                context,
                &changed,
                "put back",
                "what it waits for is not back",
            );
            print_other_shards(context, &changed.passed_on);
            return outcome;
        }
        let action = BulkAction::Retry {
            queue: args.into,
            dependents: args.dependents,
        };
        return matching(
            context,
            action,
            filter,
            args.dry_run,
            args.bounds,
            "put back",
        )
        .await;
    }
    let client = context.client().await?;
    let jobs = refs(&args.jobs);
    let changed = if args.dependents {
        client.retry_with_dependents(&jobs, into).await?
    } else {
        client.retry(&jobs, into).await?
    };
    if args.dependents {
        // Named jobs that have not ended are no failure here, if their dependents were retried.
        let text = format!("{} put back", counted(changed.count, "job"));
        context.either(&views::changed(&changed), text)?;
        if !context.is_json() {
            for id in &changed.skipped {
                let id = escape::line(id);
                remark(format!(
                    "{id} was not put back: it has not ended, or waits for another job that failed; `ganger job why {id}`"
                ));
            }
        }
        print_other_shards(context, &changed.passed_on);
        return Ok(if changed.count > 0 {
            Exit::Done
        } else {
            Exit::NotFound
        });
    }
    print_changed(
        context,
        &changed,
        "put back",
        "it is not there, has not ended, or waits for a job that failed (--dependents retries what failed with a job)",
    )
}

pub(crate) async fn delete(context: &Context, args: DeleteArgs) -> Outcome {
    if let Some(filter) = filter(&args.jobs, args.filters, args.dry_run)? {
        let action = BulkAction::Delete;
        return matching(
            context,
            action,
            filter,
            args.dry_run,
            args.bounds,
            "deleted",
        )
        .await;
    }
    let client = context.client().await?;
    let changed = client.delete(&refs(&args.jobs)).await?;
    print_changed(
        context,
        &changed,
        "deleted",
        "it is not there, or other jobs wait for it",
    )
}

/// What the cancellation of a job would lead to: a line about the job, and one for each way in which others would be
/// affected.
fn effects_text(job: &str, effects: &CancelEffects) -> String {
    let job = escape::line(job);
    if !effects.would_change {
        return format!("{job} is {} and would not change", effects.state);
    }
    let mut lines = vec![format!("{job} is {} and would be cancelled", effects.state)];
    let bound = if effects.complete { "" } else { "at least " };
    for (affected, what) in [
        (
            &effects.cancelled,
            "would be cancelled with it: no job would need them",
        ),
        (&effects.failed, "would fail: they wait for its result"),
        (&effects.waiting, "would wait until it is retried"),
        (&effects.continuing, "would go on without its result"),
    ] {
        if affected.count == 0 {
            continue;
        }
        let named = affected.jobs.iter().take(SKIPPED_LINES_MAX);
        let named: Vec<_> = named.map(|id| escape::line(id)).collect();
        let more = if affected.count > u64::try_from(named.len()).unwrap_or(u64::MAX) {
            ", ..."
        } else {
            ""
        };
        lines.push(format!(
            "  {bound}{} {what}: {}{more}",
            counted(affected.count, "job"),
            named.join(", ")
        ));
    }
    if effects.elsewhere > 0 {
        lines.push(format!(
            "  {} on other shards would be notified",
            counted(effects.elsewhere, "dependent job")
        ));
    }
    lines.join("\n")
}

/// Returns the conditions, if they are given instead of ids.
fn filter(jobs: &[String], filters: Filters, is_dry: bool) -> Result<Option<JobFilter>, Failure> {
    let filter = filters.conditions()?;
    match (jobs.is_empty(), filter == JobFilter::default()) {
        (false, false) => Err(Failure::usage("give either ids or conditions, not both")),
        (true, true) => Err(Failure::usage(
            "give ids, or conditions such as --queue mail --state failed (as of `ganger job list`)",
        )),
        (false, true) if is_dry => Err(Failure::usage("--dry-run goes only with conditions")),
        (false, true) => Ok(None),
        (true, false) => Ok(Some(filter)),
    }
}

/// Acts on all jobs that match the conditions, by an operation that the server works through.
async fn matching(
    context: &Context,
    action: BulkAction,
    filter: JobFilter,
    is_dry: bool,
    bounds: Bounds,
    done: &str,
) -> Outcome {
    let with_dependents = matches!(
        action,
        BulkAction::Retry {
            dependents: true,
            ..
        }
    );
    if is_dry || with_dependents {
        if bounds.spread_over.is_some() || bounds.at_most.is_some() {
            return Err(Failure::usage(
                "--at-most and --spread-over go neither with --dry-run nor with --dependents",
            ));
        }
        return by_calls(context, &action, filter, is_dry, done).await;
    }
    let (action, reason) = match action {
        BulkAction::Cancel { reason } => (OperationAction::Cancel, reason),
        BulkAction::Retry { queue, .. } => (OperationAction::Retry { queue }, String::new()),
        BulkAction::Delete => (OperationAction::Delete, String::new()),
    };
    let new = NewOperation {
        action,
        filter,
        at_most: bounds.at_most,
        spread_over: bounds.spread_over,
        reason,
    };
    operate(context, new, done).await
}

/// Starts an operation, waits for its end, and prints what it did. `done`: what was done to its jobs, in words.
pub(super) async fn operate(context: &Context, new: NewOperation, done: &str) -> Outcome {
    let client = context.client().await?;
    let Some(operation) = Box::pin(start_and_wait(context, &client, new)).await? else {
        return Ok(Exit::StillRunning);
    };
    let left_out = operation.left_out.iter();
    let all = BulkResult {
        changed: operation.done,
        skipped: operation.skipped + operation.failed,
        skipped_jobs: left_out.map(|left_out| left_out.job.clone()).collect(),
        ..BulkResult::default()
    };
    context.either(&views::matched(&all), summary(&all, false, done))?;
    if !context.is_json() {
        remark_left_out(&operation, done);
    }
    Ok(exit_of(&operation))
}

/// Prints how many jobs an operation would change.
pub(super) async fn try_operation(context: &Context, new: NewOperation, done: &str) -> Outcome {
    let found = context.client().await?.try_operation(new).await?;
    context.either(&views::would_change(&found), summary(&found, true, done))?;
    if found.next.is_some() && !context.is_json() {
        remark("more jobs match: these are the first 100,000 that were looked at");
    }
    Ok(Exit::Done)
}

/// Acts on all jobs that match the conditions, or only counts them, call by call.
async fn by_calls(
    context: &Context,
    action: &BulkAction,
    mut filter: JobFilter,
    is_dry: bool,
    done: &str,
) -> Outcome {
    let client = context.client().await?;
    let mut all = BulkResult {
        exact: true,
        ..BulkResult::default()
    };
    loop {
        let part = Box::pin(client.matching(action, filter.clone(), is_dry)).await?;
        all.changed += part.changed;
        all.skipped += part.skipped;
        all.exact &= part.exact;
        all.other_queues += part.other_queues;
        all.as_of = part.as_of;
        all.passed_on.extend(part.passed_on);
        for (state, count) in part.by_state {
            *all.by_state.entry(state).or_default() += count;
        }
        for (queue, count) in part.by_queue {
            *all.by_queue.entry(queue).or_default() += count;
        }
        for (names, more) in [
            (&mut all.skipped_jobs, part.skipped_jobs),
            (&mut all.sample, part.sample),
        ] {
            let room = LISTED_IDS_MAX.saturating_sub(names.len());
            names.extend(more.into_iter().take(room));
        }
        filter.cursor = part.next;
        if filter.cursor.is_none() {
            break;
        }
        if !context.is_json() {
            remark(format!("{} so far", counted(all.changed, "job")));
        }
    }
    let text = summary(&all, is_dry, done);
    if is_dry {
        context.either(&views::would_change(&all), text)?;
    } else {
        context.either(&views::matched(&all), text)?;
    }
    if !is_dry && !context.is_json() {
        let skipped = all.skipped_jobs.iter().take(SKIPPED_LINES_MAX);
        for id in skipped {
            remark(format!("{} was not {done}", escape::line(id)));
        }
        let shown = u64::try_from(SKIPPED_LINES_MAX).unwrap_or(u64::MAX);
        if all.skipped > shown {
            remark(format!("nor {} more", counted(all.skipped - shown, "job")));
        }
    }
    print_other_shards(context, &all.passed_on);
    Ok(Exit::Done)
}

fn summary(all: &BulkResult, is_dry: bool, done: &str) -> String {
    if !is_dry {
        return format!("{} {done}", counted(all.changed, "job"));
    }
    let mut parts = vec![format!("{} would be {done}", counted(all.changed, "job"))];
    if all.skipped > 0 {
        parts[0] = format!("{}, {} not", parts[0], all.skipped);
    }
    for (word, counts) in [("state", &all.by_state), ("queue", &all.by_queue)] {
        for (name, count) in counts.iter().take(QUEUE_LINES_MAX) {
            parts.push(format!("  {word} {}: {count}", escape::line(name)));
        }
    }
    parts.join("\n")
}

pub(crate) async fn time_out(context: &Context, args: &TimeOutArgs) -> Outcome {
    let client = context.client().await?;
    let changed = client.time_out(&refs(&args.jobs)).await?;
    print_changed(
        context,
        &changed,
        "timed out",
        "it is not there, or does not run",
    )
}

pub(crate) async fn set(context: &Context, args: SetArgs) -> Outcome {
    let run_at = args
        .run_at
        .map(|text| read_moment(&text, SystemTime::now()));
    let run_at = run_at.transpose();
    let run_at = run_at.map_err(|reason| Failure::usage(format!("--run-at: {reason}")))?;
    let change = Alteration {
        priority: args.priority,
        queue: args.queue,
        start: args.delay.map(Start::After).or(run_at.map(Start::At)),
        payload: args.payload.as_deref().map(argument),
        tags_added: args.tag,
        tags_removed: args.untag,
        labels_set: args.label,
        labels_removed: args.no_label,
        tracked: args.tracked,
        note: args.note.map(|note| (note, String::new())),
    };
    if change == Alteration::default() {
        return Err(Failure::usage(
            "nothing to change: see `ganger job set --help`",
        ));
    }
    let (state, tags) = context.client().await?.alter(&args.job, change).await?;
    let id = escape::line(&args.job);
    context.either(
        &json!({ "id": args.job, "state": state.as_str(), "tags": tags }),
        format!("{id} changed; it is {state}"),
    )?;
    Ok(Exit::Done)
}

//! `ganger job alter`: changes all jobs that match conditions, by an operation that the server works through.

use std::time::{Duration, SystemTime};

use clap::Args;
use ganger_client::{AlteredFields, JobFilter, NewOperation, OperationAction, Start};

use super::change::{Bounds, operate, try_operation};
use super::list::{Filters, read_label};
use crate::command::run::read_priority;
use crate::context::Context;
use crate::document::span::{read_moment, read_span};
use crate::exit::{Failure, Outcome};

/// Changes all jobs that match the conditions; `ganger job set` changes one.
#[derive(Args, Debug)]
pub(crate) struct AlterArgs {
    #[command(flatten)]
    filters: Filters,

    /// Change nothing; print how many jobs would change.
    #[arg(long, conflicts_with_all = ["at_most", "spread_over"])]
    dry_run: bool,

    #[command(flatten)]
    bounds: Bounds,

    /// Reason, shown with the operation and recorded in the audit log.
    #[arg(long, default_value = "")]
    reason: String,

    /// Put the jobs into this queue; running jobs are skipped.
    #[arg(long, value_name = "QUEUE", help_heading = "Changes")]
    into: Option<String>,

    /// New priority; smaller runs first. Jobs that have ended are skipped.
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true, value_parser = read_priority, help_heading = "Changes")]
    set_priority: Option<i64>,

    /// Start no earlier than this time from the change of each job; only for jobs that are scheduled or ready.
    #[arg(long, value_name = "DURATION", value_parser = read_span, conflicts_with = "run_at", help_heading = "Changes")]
    delay: Option<Duration>,

    /// Start no earlier than this time; only for jobs that are scheduled or ready.
    #[arg(long, value_name = "TIME", help_heading = "Changes")]
    run_at: Option<String>,

    /// Add this tag; may be repeated.
    #[arg(long, value_name = "TAG", help_heading = "Changes")]
    add_tag: Vec<String>,

    /// Remove this tag; may be repeated.
    #[arg(long, value_name = "TAG", help_heading = "Changes")]
    remove_tag: Vec<String>,

    /// Set this label; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = read_label, help_heading = "Changes")]
    set_label: Vec<(String, String)>,

    /// Remove the label with this key; may be repeated.
    #[arg(long, value_name = "KEY", help_heading = "Changes")]
    remove_label: Vec<String>,
}

pub(crate) async fn run(context: &Context, args: AlterArgs) -> Outcome {
    let filter = args.filters.conditions()?;
    if filter == JobFilter::default() {
        return Err(Failure::usage(
            "give conditions, such as --queue mail --state ready (as of `ganger job list`); `ganger job set` changes \
             one job",
        ));
    }
    let run_at = args
        .run_at
        .map(|text| read_moment(&text, SystemTime::now()));
    let run_at = run_at.transpose();
    let run_at = run_at.map_err(|reason| Failure::usage(format!("--run-at: {reason}")))?;
    let fields = AlteredFields {
        priority: args.set_priority,
        queue: args.into,
        start: args.delay.map(Start::After).or(run_at.map(Start::At)),
        tags_added: args.add_tag,
        tags_removed: args.remove_tag,
        labels_set: args.set_label,
        labels_removed: args.remove_label,
    };
    if fields == AlteredFields::default() {
        return Err(Failure::usage(
            "nothing to change: give --into, --set-priority, --delay, --run-at, --add-tag, --remove-tag, --set-label or \
             --remove-label",
        ));
    }
    let new = NewOperation {
        action: OperationAction::Alter(fields),
        filter,
        at_most: args.bounds.at_most,
        spread_over: args.bounds.spread_over,
        reason: args.reason,
    };
    if args.dry_run {
        return Box::pin(try_operation(context, new, "changed")).await;
    }
    operate(context, new, "changed").await
}

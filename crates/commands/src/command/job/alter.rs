//! `ganger job alter`: changes all jobs that match conditions, by an operation that the server works through.

use clap::Args;
use ganger_client::{AlteredFields, JobFilter, NewOperation, OperationAction};

use super::change::{Bounds, operate};
use super::list::{Filters, read_label};
use crate::command::run::read_priority;
use crate::context::Context;
use crate::exit::{Failure, Outcome};

/// Changes all jobs that match the conditions; `ganger job set` changes one.
#[derive(Args, Debug)]
pub(crate) struct AlterArgs {
    #[command(flatten)]
    filters: Filters,

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
    let fields = AlteredFields {
        priority: args.set_priority,
        queue: args.into,
        tags_added: args.add_tag,
        tags_removed: args.remove_tag,
        labels_set: args.set_label,
        labels_removed: args.remove_label,
    };
    if fields == AlteredFields::default() {
        return Err(Failure::usage(
            "nothing to change: give --into, --set-priority, --add-tag, --remove-tag, --set-label or --remove-label",
        ));
    }
    let new = NewOperation {
        action: OperationAction::Alter(fields),
        filter,
        at_most: args.bounds.at_most,
        spread_over: args.bounds.spread_over,
        reason: args.reason,
    };
    operate(context, new, "changed").await
}

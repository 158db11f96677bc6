//! `ganger failures`: failed jobs by cause.

use std::time::SystemTime;

use clap::{Args, Subcommand};
use ganger_client::{Client, JobFilter, JobOrder, JobState};
use serde_json::json;

use crate::command::job;
use crate::context::{Context, OfShard, remark, remark_unreachable, with_shard};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::Rows;
use crate::show::{counted, escape, time};

/// Number of jobs retried by one call.
const RETRY_JOBS: u32 = 1_000;

/// What to do with failed jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum FailuresCommand {
    /// List the causes, the last failure first: number of failed jobs, times, kinds, and the newest message.
    #[command(visible_alias = "ls")]
    List(OfShard),
    /// Show the failed jobs of one cause.
    Show(ShowArgs),
    /// Retry all failed jobs of one cause.
    Retry(GroupArgs),
}

/// Arguments that name a failure group.
#[derive(Args, Debug)]
pub(crate) struct GroupArgs {
    /// The group of the failures, as `ganger failures list` shows it.
    group: String,
}

/// Shows the failed jobs of a cause.
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// The group of the failures, as `ganger failures list` shows it.
    group: String,

    /// Maximum number of jobs to show.
    #[arg(short, long, default_value_t = 50)]
    limit: u32,
}

pub(crate) async fn run(context: &Context, command: FailuresCommand) -> Outcome {
    let client = context.client().await?;
    match command {
        FailuresCommand::List(of) => list(context, &of).await,
        FailuresCommand::Show(args) => show(context, &client, &args).await,
        FailuresCommand::Retry(args) => retry(context, &client, &args.group).await,
    }
}

async fn list(context: &Context, of: &OfShard) -> Outcome {
    let client = context.client_of_shard(of).await?;
    let listed = client.list_failure_groups().await?;
    remark_unreachable(&listed.unreachable);
    let groups = listed.entries;
    let now = SystemTime::now();
    let mut rows = Rows::new(&[">jobs", "group", "last", ">last hour", "kinds", "message"]);
    for group in &groups {
        if context.is_json() {
            context.json(group)?;
        }
        let kinds = group.by_kind.iter().map(|of| escape::short(&of.name, 30));
        let last_hour: u64 = group.last_hour.iter().sum();
        rows.push([
            group.jobs.to_string(),
            with_shard(group.shard.as_deref(), &group.group),
            group
                .last_at
                .map_or_else(String::new, |at| time::relative(at, now)),
            last_hour.to_string(),
            kinds.collect::<Vec<_>>().join(", "),
            escape::last_line(group.message.as_deref().unwrap_or_default(), 80),
        ]);
    }
    if !context.is_json() {
        if groups.is_empty() {
            remark("no failed jobs");
        } else {
            context.line(rows.text())?;
        }
    }
    Ok(Exit::Done)
}

fn of_group(group: &str, limit: u32) -> JobFilter {
    JobFilter {
        group: Some(group.to_owned()),
        states: vec![JobState::Failed],
        limit,
        brief: true,
        ..JobFilter::default()
    }
}

async fn show(context: &Context, client: &Client, args: &ShowArgs) -> Outcome {
    // One more than wanted shows whether there are more; a page holds 1,000.
    let limit = args.limit.clamp(1, 999);
    let mut filter = of_group(&args.group, limit + 1);
    filter.order = JobOrder::Newest;
    let mut page = client.list(filter).await?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = page.jobs.len() > limit;
    page.jobs.truncate(limit);
    if context.is_json() {
        for job in &page.jobs {
            context.json(job)?;
        }
    } else if page.jobs.is_empty() {
        return Err(nothing(&args.group));
    } else {
        context.line(job::table(&page.jobs, context.palette(), true))?;
        if has_more {
            remark("more jobs exist: give --limit N");
        }
    }
    Ok(Exit::Done)
}

fn nothing(group: &str) -> Failure {
    let message = format!("no kept job failed in the group {group:?}");
    Failure::new(Exit::NotFound, "group_not_found", message)
        .then("`ganger failures list` shows the groups")
}

async fn retry(context: &Context, client: &Client, group: &str) -> Outcome {
    let mut count = 0;
    let mut filter = of_group(group, RETRY_JOBS);
    // The cursor moves past jobs that could not be retried; retried ones leave the listing.
    loop {
        let page = client.list(filter.clone()).await?;
        let ids: Vec<&str> = page.jobs.iter().map(|job| job.id.as_str()).collect();
        if !ids.is_empty() {
            count += client.retry(&ids, None).await?.count;
        }
        filter.cursor = page.next;
        if filter.cursor.is_none() {
            break;
        }
    }
    if count == 0 {
        return Err(nothing(group));
    }
    context.either(
        &json!({ "count": count }),
        format!("{} put back", counted(count, "job")),
    )?;
    Ok(Exit::Done)
}

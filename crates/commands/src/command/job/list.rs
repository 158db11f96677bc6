//! `ganger job list`: pages of jobs, in constant memory however many there are.

use std::time::{Duration, SystemTime};

use clap::Args;
use comfy_table::Cell;
use ganger_client::{Job, JobFilter, JobOrder, JobState};

use crate::context::{Context, OfShard, remark, remark_unreachable};
use crate::document::span::{read_moment, read_span};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::Rows;
use crate::show::{Palette, counted, escape, time};

/// Number of jobs fetched at once.
const PAGE_JOBS: u32 = 200;

/// Conditions on jobs, all of which must hold.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Filters {
    /// Only jobs of this queue.
    #[arg(short, long)]
    pub(super) queue: Option<String>,

    /// Only jobs in this state: blocked, scheduled, ready, running, succeeded, failed, cancelled; may be repeated, or
    /// several separated by commas.
    #[arg(long = "state", value_name = "STATE", value_parser = read_state, value_delimiter = ',')]
    pub(super) states: Vec<JobState>,

    /// Only jobs of this kind.
    #[arg(short, long)]
    kind: Option<String>,

    /// Only jobs of a kind that begins so.
    #[arg(long, value_name = "TEXT")]
    kind_prefix: Option<String>,

    /// Only jobs whose id begins so.
    #[arg(long, value_name = "TEXT")]
    id_prefix: Option<String>,

    /// Only jobs with this tag; may be repeated: with all of them.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// Only jobs with this label; may be repeated: with all of them.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = read_label)]
    labels: Vec<(String, String)>,

    /// Only jobs of this graph.
    #[arg(long)]
    pub(super) graph: Option<String>,

    /// Only jobs of this schedule.
    #[arg(long)]
    schedule: Option<String>,

    /// Only jobs that failed in this failure group.
    #[arg(long)]
    group: Option<String>,

    /// Only jobs whose failure message contains this text.
    #[arg(long, value_name = "TEXT")]
    failure: Option<String>,

    /// Only jobs leased by this worker.
    #[arg(long)]
    worker: Option<String>,

    /// Only jobs with this unique key.
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,

    /// Only tracked jobs; with --tracked=false, only those that are not tracked.
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    tracked: Option<bool>,

    /// Only jobs with at least this number of attempts.
    #[arg(long, value_name = "NUMBER")]
    attempts: Option<u32>,

    /// Only jobs created at or after this time: RFC 3339, or -DURATION such as -2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,

    /// Only jobs created before this time: RFC 3339, or -DURATION such as -2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    until: Option<String>,

    /// Only jobs that ended at or after this time: RFC 3339, or -DURATION such as -2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    finished_since: Option<String>,

    /// Only jobs that ended before this time: RFC 3339, or -DURATION such as -2h.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    finished_until: Option<String>,
}

/// Lists jobs. All conditions given must hold.
#[derive(Args, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the command line"
)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filters: Filters,

    /// Order of the jobs: newest, oldest, finished-newest (the latest end first), or runs-next (the ready jobs of
    /// --queue as they will be leased).
    #[arg(long, value_name = "ORDER", default_value = "newest", value_parser = read_order)]
    order: JobOrder,

    /// List the oldest jobs first.
    #[arg(long, conflicts_with = "order")]
    oldest_first: bool,

    #[command(flatten)]
    of: OfShard,

    /// Look for at most this time, up to 10s, and at no more than 20,000 records; says how far it looked.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    budget: Option<Duration>,

    /// Go on where an earlier list ended.
    #[arg(long, value_name = "PLACE")]
    after: Option<String>,

    /// Maximum number of jobs; 0 for all.
    #[arg(short, long, default_value_t = 100)]
    limit: u64,

    /// Print only the number of jobs.
    #[arg(long, conflicts_with_all = ["limit", "order", "oldest_first", "after", "full", "summary"])]
    count: bool,

    /// Include histories, with --json.
    #[arg(long)]
    full: bool,

    /// Leave out retry policies, and cut failure messages at 200 bytes, for the shortest answers.
    #[arg(long, conflicts_with = "full")]
    summary: bool,
}

pub(crate) fn read_state(text: &str) -> Result<JobState, String> {
    JobState::parse(text).ok_or_else(|| {
        let known = JobState::ALL.map(JobState::as_str).join(", ");
        format!("{text:?} is not a state; there are {known}")
    })
}

fn read_order(text: &str) -> Result<JobOrder, String> {
    match text {
        "newest" => Ok(JobOrder::Newest),
        "oldest" => Ok(JobOrder::Oldest),
        "finished-newest" => Ok(JobOrder::FinishedNewest),
        "runs-next" => Ok(JobOrder::RunsNext),
        _ => Err("there are newest, oldest, finished-newest and runs-next".to_owned()),
    }
}

pub(crate) fn read_label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a label is written KEY=VALUE".to_owned()),
    }
}

pub(crate) async fn run(context: &Context, args: ListArgs) -> Outcome {
    let client = context.client_of_shard(&args.of).await?;
    if args.count {
        let count = client.count(filter(args)?).await?;
        let bound = if count.exact { "" } else { "at least " };
        context.either(&count, format!("{bound}{}", count.count))?;
        remark_unreachable(&count.unreachable);
        return Ok(Exit::Done);
    }
    let limit = if args.limit == 0 {
        u64::MAX
    } else {
        args.limit
    };
    let mut filter = filter(args)?;
    let mut shown: u64 = 0;
    loop {
        // One more than wanted shows whether there are more.
        let wanted = limit - shown;
        filter.limit = u32::try_from(wanted.saturating_add(1))
            .unwrap_or(PAGE_JOBS)
            .min(PAGE_JOBS);
        let mut page = client.list(filter.clone()).await?;
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let has_more = page.jobs.len() > wanted;
        page.jobs.truncate(wanted);
        if context.is_json() {
            for job in &page.jobs {
                if filter.summary {
                    context.json(&job.clone().into_summary())?;
                } else {
                    context.json(job)?;
                }
            }
        } else if !page.jobs.is_empty() {
            context.line(table(&page.jobs, context.palette(), shown == 0))?;
        } else if shown == 0 && page.next.is_none() {
            remark("no jobs");
        }
        remark_unreachable(&page.unreachable);
        shown += u64::try_from(page.jobs.len()).unwrap_or(0);
        filter.cursor = page.next;
        if has_more && !context.is_json() {
            remark(format!(
                "there are more than these {shown}: give --limit N, or 0 for all"
            ));
        }
        if let (Some(false), Some(next)) = (page.complete, &filter.cursor)
            && !has_more
        {
            remark_cut(page.looked_at, page.looked_back_to, next);
            return Ok(Exit::Done);
        }
        if has_more || filter.cursor.is_none() {
            return Ok(Exit::Done);
        }
    }
}

/// Tells how far a list with a budget has looked, and how to go on.
fn remark_cut(looked_at: Option<u64>, back_to: Option<SystemTime>, next: &str) {
    let back_to = back_to.map(|time| format!(", up to {}", time::absolute(time)));
    remark(format!(
        "looked at {} so far{}: give --after '{}' to go on, or a longer --budget",
        counted(looked_at.unwrap_or_default(), "record"),
        back_to.unwrap_or_default(),
        escape::line(next)
    ));
}

fn filter(args: ListArgs) -> Result<JobFilter, Failure> {
    let order = if args.oldest_first {
        JobOrder::Oldest
    } else {
        args.order
    };
    Ok(JobFilter {
        order,
        budget: args.budget,
        cursor: args.after,
        limit: PAGE_JOBS,
        brief: !args.full,
        summary: args.summary,
        ..args.filters.conditions()?
    })
}

impl Filters {
    /// Returns the conditions, without order and page.
    pub(super) fn conditions(self) -> Result<JobFilter, Failure> {
        let moment = |option: &str, text: Option<String>| {
            text.map(|text| read_moment(&text, SystemTime::now()))
                .transpose()
                .map_err(|reason| Failure::usage(format!("{option}: {reason}")))
        };
        Ok(JobFilter {
            queue: self.queue,
            states: self.states,
            kind: self.kind,
            kind_prefix: self.kind_prefix,
            id_prefix: self.id_prefix,
            tags: self.tags,
            labels: self.labels,
            graph: self.graph,
            schedule: self.schedule,
            group: self.group,
            failure_text: self.failure,
            worker: self.worker,
            unique_key: self.unique_key,
            tracked: self.tracked,
            attempt_min: self.attempts,
            created_from: moment("--since", self.since)?,
            created_before: moment("--until", self.until)?,
            finished_from: moment("--finished-since", self.finished_since)?,
            finished_before: moment("--finished-until", self.finished_until)?,
            ..JobFilter::default()
        })
    }
}

/// Returns jobs as a table; `headed`: whether it has a heading.
pub(crate) fn table(jobs: &[Job], palette: Palette, headed: bool) -> String {
    let now = SystemTime::now();
    let mut rows = Rows::new(&[
        "job", "name", "kind", "queue", "state", "attempt", "created", "note",
    ]);
    for job in jobs {
        rows.push([
            Cell::new(escape::line(&job.r#ref)),
            Cell::new(escape::short(job.name.as_deref().unwrap_or_default(), 40)),
            Cell::new(escape::short(&job.kind, 40)),
            Cell::new(escape::short(&job.queue, 30)),
            palette.cell(job.state),
            Cell::new(job.attempt),
            Cell::new(time::relative(job.created_at, now)),
            Cell::new(note(job, now)),
        ]);
    }
    let text = rows.text();
    if headed {
        return text;
    }
    text.split_once('\n')
        .map(|(_, rest)| rest.to_owned())
        .unwrap_or_default()
}

/// Returns the most relevant fact about a job.
fn note(job: &Job, now: SystemTime) -> String {
    let failure = || {
        job.failure
            .as_ref()
            .map(|it| escape::last_line(&it.message, 80))
    };
    match job.state {
        JobState::Running => job
            .lease
            .as_ref()
            .map(|lease| format!("on {}", escape::line(&lease.worker))),
        JobState::Scheduled => job
            .run_at
            .map(|at| format!("runs {}", time::relative(at, now)))
            .or_else(failure),
        JobState::Succeeded => job
            .finished_at
            .map(|at| format!("ended {}", time::relative(at, now))),
        _ => failure(),
    }
    .unwrap_or_default()
}

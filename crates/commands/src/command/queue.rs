//! `ganger queue`: show and change queues.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ganger_client::{
    Backoff, DueOrder, JobFilter, JobState, Keep, QueueSettings, QueueView, Retention,
};
use serde_json::json;

use crate::command::job;
use crate::context::{Context, OfShard, remark, remark_unreachable, with_shard};
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::{Rows, facts};
use crate::show::{escape, time};

/// Show and change queues.
#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues with their jobs by state.
    #[command(visible_alias = "ls")]
    List(OfShard),
    /// Show a queue with its settings.
    Get(GetArgs),
    /// Explain why the jobs of a queue are not running.
    Why(QueueName),
    /// Lease no jobs from a queue until it is resumed; running jobs continue.
    Pause(QueueName),
    /// Lease jobs from a paused queue again.
    Resume(QueueName),
    /// Show the jobs that are leased next.
    Peek(PeekArgs),
    /// Change settings of a queue; others stay as they are.
    Set(Box<SetArgs>),
    /// Drop an empty queue with its settings.
    Forget(QueueName),
}

/// Arguments that name a queue.
#[derive(Args, Debug)]
pub(crate) struct QueueName {
    /// Name of the queue.
    #[arg(default_value = "default")]
    queue: String,
}

/// Shows a queue: its counts, rates and settings.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// Name of the queue.
    #[arg(default_value = "default")]
    queue: String,

    /// Also show the settings that apply, and where each comes from: queue, namespace or default.
    #[arg(long)]
    effective: bool,
}

/// Shows the jobs that are leased next.
#[derive(Args, Debug)]
pub(crate) struct PeekArgs {
    /// Name of the queue.
    #[arg(default_value = "default")]
    queue: String,

    /// Maximum number of jobs to show.
    #[arg(short, long, default_value_t = 10)]
    limit: u32,
}

/// Changes settings. `none` removes a setting, so that the namespace's applies.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// Name of the queue.
    queue: String,

    /// Maximum number of jobs that run at once.
    #[arg(long, value_name = "N|none", value_parser = optional::<u32>)]
    running_max: Option<Setting<u32>>,

    /// Maximum number of live jobs; more are refused.
    #[arg(long, value_name = "N|none", value_parser = optional::<u64>)]
    live_max: Option<Setting<u64>>,

    /// Length of the leases of its jobs.
    #[arg(long, value_name = "DURATION|none", value_parser = optional_span)]
    lease_for: Option<Setting<Duration>>,

    /// Warn the holder of an expired lease, and wait this long before the lease ends.
    #[arg(long, value_name = "DURATION|none", value_parser = optional_span)]
    grace_for: Option<Setting<Duration>>,

    /// Number of retries of jobs that do not set it.
    #[arg(long, value_name = "N")]
    retries: Option<u32>,

    /// Pause before each retry: one duration, several separated by commas, or BASE..CAP, which doubles.
    #[arg(long, value_name = "PAUSE", value_parser = read_backoff)]
    backoff: Option<Backoff>,

    /// Retention of jobs that succeeded.
    #[arg(long, value_name = "DURATION|none", value_parser = optional_span)]
    keep_succeeded: Option<Setting<Duration>>,

    /// Retention of jobs that failed or were cancelled.
    #[arg(long, value_name = "DURATION|none", value_parser = optional_span)]
    keep_failed: Option<Setting<Duration>>,

    /// Position of a job that becomes due.
    #[arg(long)]
    due_order: Option<DueOrderArg>,

    /// Time that a ready job may wait before the queue needs attention; 10 minutes if none.
    #[arg(long, value_name = "DURATION|none", value_parser = optional_span)]
    alert_age: Option<Setting<Duration>>,
}

/// A setting from the command line: a value, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting<T>(Option<T>);

impl<T> Setting<T> {
    /// The value; `None` for none.
    pub(crate) fn value(self) -> Option<T> {
        self.0
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DueOrderArg {
    /// After those already waiting.
    Behind,
    /// Before those already waiting, within its priority.
    Ahead,
}

pub(crate) fn optional<T: std::str::FromStr>(text: &str) -> Result<Setting<T>, String> {
    if text == "none" {
        return Ok(Setting(None));
    }
    text.parse()
        .map(|value| Setting(Some(value)))
        .map_err(|_| format!("{text:?} is neither a number nor none"))
}

pub(crate) fn optional_span(text: &str) -> Result<Setting<Duration>, String> {
    if text == "none" {
        Ok(Setting(None))
    } else {
        read_span(text).map(|span| Setting(Some(span)))
    }
}

pub(crate) fn read_backoff(text: &str) -> Result<Backoff, String> {
    if let Some((base, cap)) = text.split_once("..") {
        return Ok(Backoff::Exponential {
            base: read_span(base)?,
            cap: read_span(cap)?,
        });
    }
    if text.contains(',') {
        return text
            .split(',')
            .map(read_span)
            .collect::<Result<_, _>>()
            .map(Backoff::List);
    }
    read_span(text).map(Backoff::Fixed)
}

pub(crate) async fn run(context: &Context, command: QueueCommand) -> Outcome {
    match command {
        QueueCommand::List(of) => list(context, &of).await,
        QueueCommand::Get(args) => get(context, &args).await,
        QueueCommand::Why(args) => why(context, &args.queue).await,
        QueueCommand::Pause(args) => {
            context.client().await?.pause_queue(&args.queue).await?;
            done(
                context,
                &args.queue,
                "paused: no jobs are leased from it; running jobs continue",
            )
        }
        QueueCommand::Resume(args) => {
            context.client().await?.resume_queue(&args.queue).await?;
            done(context, &args.queue, "resumed")
        }
        QueueCommand::Peek(args) => peek(context, &args).await,
        QueueCommand::Set(args) => set(context, *args).await,
        QueueCommand::Forget(args) => {
            context.client().await?.forget_queue(&args.queue).await?;
            done(context, &args.queue, "forgotten")
        }
    }
}

fn done(context: &Context, queue: &str, what: &str) -> Outcome {
    context.either(
        &json!({ "queue": queue, "done": true }),
        format!("queue {} {what}", escape::line(queue)),
    )?;
    Ok(Exit::Done)
}

async fn list(context: &Context, of: &OfShard) -> Outcome {
    let listed = context.client_of_shard(of).await?.list_queues().await?;
    let queues = listed.entries;
    if context.is_json() {
        for queue in &queues {
            context.json(queue)?;
        }
    } else if queues.is_empty() {
        remark("no queues: one comes into being with its first job");
    } else {
        context.line(table(&queues))?;
    }
    remark_unreachable(&listed.unreachable);
    Ok(Exit::Done)
}

/// Returns queues as a table.
pub(crate) fn table(queues: &[QueueView]) -> String {
    let mut rows = Rows::new(&[
        "queue",
        ">ready",
        ">running",
        ">scheduled",
        ">blocked",
        ">succeeded",
        ">failed",
        ">cancelled",
        "oldest ready",
        "note",
    ]);
    for view in queues {
        let count = |state| view.counts.of(state).to_string();
        rows.push([
            escape::short(&with_shard(view.shard.as_deref(), &view.queue), 40),
            count(JobState::Ready),
            count(JobState::Running),
            count(JobState::Scheduled),
            count(JobState::Blocked),
            count(JobState::Succeeded),
            count(JobState::Failed),
            count(JobState::Cancelled),
            view.oldest_ready_for.map(time::span).unwrap_or_default(),
            if view.settings.paused {
                "paused".to_owned()
            } else {
                String::new()
            },
        ]);
    }
    rows.text()
}

async fn get(context: &Context, args: &GetArgs) -> Outcome {
    let client = context.client().await?;
    let view = if args.effective {
        client.queue_with_effective(&args.queue).await?
    } else {
        client.queue(&args.queue).await?
    };
    let mut text = describe(&view);
    if let Some(effective) = &view.effective {
        let mut rows = Rows::new(&["setting", "value", "from"]);
        for (name, setting) in effective {
            rows.push([
                escape::line(name),
                escape::line(&setting.value.to_string()),
                escape::line(&setting.from),
            ]);
        }
        text = format!("{text}\n\n{}", rows.text());
    }
    context.either(&view, text)?;
    Ok(Exit::Done)
}

async fn why(context: &Context, queue: &str) -> Outcome {
    let why = context.client().await?.queue_why(queue).await?;
    if context.is_json() {
        context.json(&why)?;
    } else if why.reasons.is_empty() {
        remark(format!("no job of the queue {} waits", escape::line(queue)));
    } else {
        let mut rows = Rows::new(&[">jobs", "code", "because"]);
        for reason in &why.reasons {
            rows.push([
                reason.jobs.to_string(),
                escape::line(&reason.code),
                escape::line(&reason.text),
            ]);
        }
        context.line(rows.text())?;
    }
    Ok(Exit::Done)
}

fn describe(view: &QueueView) -> String {
    let settings = &view.settings;
    let counts = JobState::ALL
        .map(|state| format!("{} {state}", view.counts.of(state)))
        .join(", ");
    let or_default =
        |text: Option<String>| text.unwrap_or_else(|| "as the namespace says".to_owned());
    let retry = settings
        .retry
        .as_ref()
        .map(|it| format!("{} retries", it.retries_max));
    let mut pairs = vec![
        ("queue", escape::line(&view.queue)),
        (
            "paused",
            if settings.paused { "yes" } else { "no" }.to_owned(),
        ),
        ("jobs", counts),
        (
            "ever",
            format!(
                "{} enqueued, {} ended",
                view.enqueued_total, view.finished_total
            ),
        ),
        (
            "at once",
            settings
                .running_max
                .map_or("no limit".to_owned(), |most| most.to_string()),
        ),
        (
            "live",
            settings
                .live_max
                .map_or("no limit".to_owned(), |most| most.to_string()),
        ),
        ("lease", or_default(settings.lease_for.map(time::span))),
        ("grace", or_default(settings.grace_for.map(time::span))),
        ("retry", or_default(retry)),
    ];
    if let Some(oldest) = view.oldest_ready_for {
        pairs.push(("oldest", format!("ready for {}", time::span(oldest))));
    }
    if view.schedules > 0 {
        pairs.push(("fed by", crate::show::counted(view.schedules, "schedule")));
    }
    facts(&pairs)
}

/// Shows the jobs that are leased next, in the server's listing order.
async fn peek(context: &Context, args: &PeekArgs) -> Outcome {
    let filter = JobFilter {
        queue: Some(args.queue.clone()),
        states: vec![JobState::Ready],
        limit: args.limit.clamp(1, 1_000),
        brief: true,
        ..JobFilter::default()
    };
    let mut page = context.client().await?.list(filter).await?;
    page.jobs.sort_by_key(|job| job.priority);
    if context.is_json() {
        for job in &page.jobs {
            context.json(job)?;
        }
    } else if page.jobs.is_empty() {
        remark(format!(
            "no job of the queue {} is ready",
            escape::line(&args.queue)
        ));
    } else {
        context.line(job::table(&page.jobs, context.palette(), true))?;
    }
    Ok(Exit::Done)
}

/// Reads the settings, changes those that were given, and writes them back.
async fn set(context: &Context, args: SetArgs) -> Outcome {
    let client = context.client().await?;
    let view = client.queue(&args.queue).await?;
    let (before, version) = (view.settings, view.version);
    let queue = args.queue.clone();
    let after = apply(before.clone(), args);
    if after == before {
        return Err(Failure::usage(
            "nothing to change: see `ganger queue set --help`",
        ));
    }
    // Refused if somebody has changed the settings since they were read.
    let view = match version {
        Some(version) => client.configure_queue_if(&queue, after, &version).await?,
        None => client.configure_queue(&queue, after).await?,
    };
    context.either(&view, describe(&view))?;
    Ok(Exit::Done)
}

fn apply(mut settings: QueueSettings, args: SetArgs) -> QueueSettings {
    if let Some(Setting(value)) = args.running_max {
        settings.running_max = value;
    }
    if let Some(Setting(value)) = args.live_max {
        settings.live_max = value;
    }
    if let Some(Setting(value)) = args.lease_for {
        settings.lease_for = value;
    }
    if let Some(Setting(value)) = args.grace_for {
        settings.grace_for = value;
    }
    if args.retries.is_some() || args.backoff.is_some() {
        let mut retry = settings.retry.take().unwrap_or_default();
        retry.retries_max = args.retries.unwrap_or(retry.retries_max);
        retry.backoff = args.backoff.unwrap_or(retry.backoff);
        settings.retry = Some(retry);
    }
    if args.keep_succeeded.is_some() || args.keep_failed.is_some() {
        let retention = settings.retention.get_or_insert_with(Retention::default);
        let keep = |keep: &mut Keep, given: Option<Setting<Duration>>| {
            if let Some(Setting(age)) = given {
                keep.age = age;
            }
        };
        keep(&mut retention.succeeded, args.keep_succeeded);
        keep(&mut retention.failed, args.keep_failed);
    }
    if let Some(Setting(value)) = args.alert_age {
        settings.alert_age = value;
    }
    match args.due_order {
        Some(DueOrderArg::Behind) => settings.due_order = DueOrder::Behind,
        Some(DueOrderArg::Ahead) => settings.due_order = DueOrder::Ahead,
        None => {}
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_has_three_forms() {
        let seconds = Duration::from_secs;
        assert_eq!(read_backoff("5s"), Ok(Backoff::Fixed(seconds(5))));
        assert_eq!(
            read_backoff("1s,5s"),
            Ok(Backoff::List(vec![seconds(1), seconds(5)]))
        );
        assert_eq!(
            read_backoff("1s..1m"),
            Ok(Backoff::Exponential {
                base: seconds(1),
                cap: seconds(60)
            })
        );
        assert!(read_backoff("soon").is_err());
    }

    #[test]
    fn none_removes_a_setting() {
        assert_eq!(optional::<u32>("none"), Ok(Setting(None)));
        assert_eq!(optional::<u32>("3"), Ok(Setting(Some(3))));
        assert!(optional::<u32>("-3").is_err());
    }
}

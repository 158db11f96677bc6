//! `ganger schedule`: recurring jobs.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand, ValueEnum};
use ganger_client::{
    CatchUp, NewSchedule, Overlap, RetryPolicy, Schedule, ScheduleSpec, ScheduleTime,
};
use ganger_types::limits::SCHEDULE_BACKLOG_MAX;
use serde_json::json;

use crate::command::run::{argument, read_priority};
use crate::context::{Context, OfShard, remark, remark_unreachable, with_shard};
use crate::document::read_schedule;
use crate::document::span::{read_moment, read_span};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::{Rows, facts};
use crate::show::{escape, time};

/// Show and change recurring jobs.
#[derive(Debug, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List all schedules of the namespace.
    #[command(visible_alias = "ls")]
    List(OfShard),
    /// Show one schedule by its name.
    Get(Name),
    /// Create or replace a schedule.
    Set(Box<SetArgs>),
    /// Remove a schedule; its jobs stay.
    Delete(Name),
    /// Pause a schedule: it does not fire until it is resumed.
    Pause(Name),
    /// Resume a paused schedule.
    Resume(Name),
    /// Enqueue a job of the schedule now.
    Run(Name),
    /// Show the next times of a schedule.
    Next(NextArgs),
}

/// Arguments that name a schedule.
#[derive(Args, Debug)]
pub(crate) struct Name {
    /// Name of the schedule.
    schedule: String,
}

/// Shows the next times of a schedule, as if it were not paused.
#[derive(Args, Debug)]
pub(crate) struct NextArgs {
    /// Name of the schedule.
    schedule: String,

    /// Number of times to show, 1 to 20.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=20))]
    count: u32,
}

/// Creates or replaces a schedule.
///
/// ganger schedule set backup --cron '0 3 * * *' --time-zone Europe/Rome --kind backup
/// ganger schedule set ping --every 30s --kind ping --payload '{"host": "a"}'
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// Name of the schedule.
    schedule: String,

    /// Read the schedule from a JSON document; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["every", "cron", "kind"])]
    file: Option<PathBuf>,

    /// Fire at this interval.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    every: Option<Duration>,

    /// With --every: time of the first run.
    #[arg(long, value_name = "TIME", requires = "every")]
    first_at: Option<String>,

    /// Fire by a cron expression of five fields, or six with seconds first.
    #[arg(long, value_name = "EXPRESSION", conflicts_with = "every")]
    cron: Option<String>,

    /// With --cron: IANA time zone.
    #[arg(long, value_name = "ZONE", requires = "cron", default_value = "UTC")]
    time_zone: String,

    /// Kind of its jobs: the name of the program that runs them.
    #[arg(short, long)]
    kind: Option<String>,

    /// Queue of its jobs.
    #[arg(short, long, default_value = "default")]
    queue: String,

    /// Payload of its jobs: a JSON value, or text.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,

    /// Priority of its jobs; smaller runs first.
    #[arg(long, default_value_t = 0, allow_hyphen_values = true, value_parser = read_priority)]
    priority: i64,

    /// Number of retries after the first attempt.
    #[arg(long, value_name = "N")]
    retries: Option<u32>,

    /// Longest run of one attempt.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    job_timeout: Option<Duration>,

    /// Tag of its jobs; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,

    /// What to do about times that passed while no server ran.
    #[arg(long, default_value = "last")]
    catch_up: CatchUpArg,

    /// What to do if the job of the previous time is still live.
    #[arg(long, default_value = "allow")]
    overlap: OverlapArg,

    /// Create the schedule paused.
    #[arg(long)]
    paused: bool,

    /// Save nothing; show the next times.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum CatchUpArg {
    /// Missed runs are skipped.
    None,
    /// One job is enqueued for all of them.
    Last,
    /// One job is enqueued for each.
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OverlapArg {
    /// Both jobs run independently.
    Allow,
    /// The new job is skipped.
    Skip,
    /// The earlier job is cancelled.
    Replace,
}

pub(crate) async fn run(context: &Context, command: ScheduleCommand) -> Outcome {
    match command {
        ScheduleCommand::List(of) => list(context, &of).await,
        ScheduleCommand::Get(name) => {
            let schedule = context.client().await?.schedule(&name.schedule).await?;
            show(context, &schedule)
        }
        ScheduleCommand::Set(args) => {
            let is_dry_run = args.dry_run;
            let schedule = new_schedule(*args)?;
            if is_dry_run {
                return preview(context, schedule).await;
            }
            let schedule = context.client().await?.put_schedule(schedule).await?;
            show(context, &schedule)
        }
        ScheduleCommand::Delete(name) => {
            context
                .client()
                .await?
                .remove_schedule(&name.schedule)
                .await?;
            let text = format!(
                "schedule {} deleted; its jobs stay",
                escape::line(&name.schedule)
            );
            context.either(&json!({ "schedule": name.schedule, "done": true }), text)?;
            Ok(Exit::Done)
        }
        ScheduleCommand::Pause(name) => {
            let client = context.client().await?;
            show(context, &client.pause_schedule(&name.schedule).await?)
        }
        ScheduleCommand::Resume(name) => {
            let client = context.client().await?;
            show(context, &client.resume_schedule(&name.schedule).await?)
        }
        ScheduleCommand::Run(name) => {
            let schedule = context.client().await?.run_schedule(&name.schedule).await?;
            let job = schedule.last_job.clone().unwrap_or_default();
            context.either(&schedule, escape::line(&job))?;
            Ok(Exit::Done)
        }
        ScheduleCommand::Next(args) => next(context, &args).await,
    }
}

async fn list(context: &Context, of: &OfShard) -> Outcome {
    let listed = context.client_of_shard(of).await?.list_schedules().await?;
    remark_unreachable(&listed.unreachable);
    let schedules = listed.entries;
    let now = SystemTime::now();
    let mut rows = Rows::new(&["schedule", "when", "kind", "queue", "next", ">jobs", "note"]);
    for schedule in &schedules {
        if context.is_json() {
            context.json(schedule)?;
        }
        rows.push([
            with_shard(schedule.shard.as_deref(), &schedule.id),
            when(schedule),
            escape::line(&schedule.kind),
            escape::line(&schedule.queue),
            schedule.next_at.map_or_else(
                || if schedule.paused { "-" } else { "never" }.to_owned(),
                |at| time::relative(at, now),
            ),
            schedule.runs.to_string(),
            if schedule.paused {
                "paused".to_owned()
            } else {
                String::new()
            },
        ]);
    }
    if !context.is_json() {
        if schedules.is_empty() {
            remark("no schedules: `ganger schedule set --help` tells how to make one");
        } else {
            context.line(rows.text())?;
        }
    }
    Ok(Exit::Done)
}

fn when(schedule: &Schedule) -> String {
    match (&schedule.cron, &schedule.time_zone) {
        (Some(expression), time_zone) => {
            let time_zone = time_zone.as_deref().unwrap_or("UTC");
            format!("{} {}", escape::line(expression), escape::line(time_zone))
        }
        (None, _) => format!("every {}", time::span(schedule.every.unwrap_or_default())),
    }
}

fn show(context: &Context, schedule: &Schedule) -> Outcome {
    let now = SystemTime::now();
    let payload = match (&schedule.payload, &schedule.payload_base64) {
        (Some(exact), _) => exact.0.get().to_owned(),
        (None, Some(base64)) => String::from_utf8_lossy(&base64.0).into_owned(),
        (None, None) => String::new(),
    };
    let pairs = [
        ("schedule", escape::line(&schedule.id)),
        ("when", when(schedule)),
        (
            "paused",
            if schedule.paused { "yes" } else { "no" }.to_owned(),
        ),
        ("kind", escape::line(&schedule.kind)),
        ("queue", escape::line(&schedule.queue)),
        ("payload", escape::short(&payload, 80)),
        (
            "next",
            schedule.next_at.map_or_else(
                || if schedule.paused { "paused" } else { "never" }.to_owned(),
                |at| {
                    format!(
                        "{} ({})",
                        in_zone(at, schedule.time_zone.as_deref()),
                        time::relative(at, now)
                    )
                },
            ),
        ),
        ("jobs", schedule.runs.to_string()),
        (
            "last job",
            escape::line(schedule.last_job.as_deref().unwrap_or("none")),
        ),
    ];
    context.either(schedule, facts(&pairs))?;
    Ok(Exit::Done)
}

async fn next(context: &Context, args: &NextArgs) -> Outcome {
    let client = context.client().await?;
    let zone = client.schedule(&args.schedule).await?.time_zone;
    let times = client.next_times(&args.schedule, args.count).await?;
    show_times(context, times, zone.as_deref())
}

/// Shows the next times of a schedule that is not saved.
async fn preview(context: &Context, schedule: NewSchedule) -> Outcome {
    let zone = match &schedule.spec {
        ScheduleSpec::Cron { time_zone, .. } => Some(time_zone.clone()),
        ScheduleSpec::Interval { .. } => None,
    };
    let client = context.client().await?;
    let times = client.preview_schedule(schedule, 0).await?;
    show_times(context, times, zone.as_deref())
}

fn show_times(context: &Context, times: Vec<SystemTime>, zone: Option<&str>) -> Outcome {
    for at in times {
        let text = in_zone(at, zone);
        let line = format!("{text}  {}", time::relative(at, SystemTime::now()));
        context.either(&ScheduleTime::new(at, zone), line)?;
    }
    Ok(Exit::Done)
}

/// Returns a time in the time zone of the schedule, UTC if it has none, with the zone's name.
fn in_zone(at: SystemTime, zone: Option<&str>) -> String {
    let zone = zone.unwrap_or("UTC");
    let zoned = jiff::Timestamp::try_from(at)
        .ok()
        .zip(jiff::tz::TimeZone::get(zone).ok())
        .map(|(at, zone)| at.to_zoned(zone));
    zoned.map_or_else(
        || time::exact(at),
        |at| {
            format!(
                "{} {}",
                at.strftime("%Y-%m-%d %H:%M:%S"),
                escape::line(zone)
            )
        },
    )
}

fn new_schedule(args: SetArgs) -> Result<NewSchedule, Failure> {
    if let Some(path) = &args.file {
        let text = read_file(path)?;
        return Ok(read_schedule(&text, &args.schedule)?);
    }
    let first_at = args
        .first_at
        .map(|text| read_moment(&text, SystemTime::now()));
    let first_at = first_at.transpose().map_err(Failure::usage)?;
    let spec = match (args.every, args.cron) {
        (Some(every), _) => ScheduleSpec::Interval { every, first_at },
        (None, Some(expression)) => ScheduleSpec::Cron {
            expression,
            time_zone: args.time_zone,
        },
        (None, None) => {
            return Err(Failure::usage(
                "give --every DURATION, --cron EXPRESSION, or --file FILE",
            ));
        }
    };
    let kind = args
        .kind
        .ok_or_else(|| Failure::usage("give --kind: which program runs the jobs"))?;
    Ok(NewSchedule {
        catch_up: match args.catch_up {
            CatchUpArg::None => CatchUp::None,
            CatchUpArg::Last => CatchUp::Last,
            CatchUpArg::All => CatchUp::All {
                max: SCHEDULE_BACKLOG_MAX,
            },
        },
        overlap: match args.overlap {
            OverlapArg::Allow => Overlap::Allow,
            OverlapArg::Skip => Overlap::Skip,
            OverlapArg::Replace => Overlap::Replace,
        },
        paused: args.paused,
        queue: args.queue,
        payload: args.payload.as_deref().map(argument).unwrap_or_default(),
        priority: args.priority,
        retry: args.retries.map(|retries_max| RetryPolicy {
            retries_max,
            ..RetryPolicy::default()
        }),
        timeout: args.job_timeout,
        tags: args.tags,
        ..NewSchedule::new(args.schedule, kind, spec)
    })
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text)?;
        return Ok(text);
    }
    fs::read(path).map_err(|error| Failure::file(path, &error))
}

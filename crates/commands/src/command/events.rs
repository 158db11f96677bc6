//! `ganger events`: shows events as they happen.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use clap::Args;
use ganger_client::{Event, EventFilter, Happening};
use tokio::time::timeout;

use crate::context::{Context, remark};
use crate::document::span::read_span;
use crate::exit::{Exit, Outcome};
use crate::show::{Palette, escape, time};

/// Without --follow the command ends once no event has arrived for this time.
const QUIET_FOR: Duration = Duration::from_millis(500);

/// Shows events in order, each with its position.
///
/// Without --follow it shows the existing events after --after, and ends.
#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Keep printing new events until interrupted.
    #[arg(short, long)]
    follow: bool,

    /// Show events after this position; new events only if absent.
    #[arg(long, value_name = "POSITION")]
    after: Option<u64>,

    /// Show the newest so many events that are kept, 1 to 1000, in order.
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["after", "follow"],
        value_parser = clap::value_parser!(u32).range(1..=1_000))]
    last: Option<u32>,

    /// With --last: those before this position.
    #[arg(long, value_name = "POSITION", requires = "last")]
    before: Option<u64>,

    /// Show events of this job only; may be repeated.
    #[arg(long = "job", value_name = "JOB")]
    jobs: Vec<String>,

    /// Show events of this queue only; may be repeated.
    #[arg(long = "queue", short, value_name = "QUEUE")]
    queues: Vec<String>,

    /// Omit progress and log events.
    #[arg(long)]
    moves_only: bool,

    /// End after this time.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: EventsArgs) -> Outcome {
    context.client().await?;
    let filter = EventFilter {
        // Without --follow and a start there would be nothing to show.
        after: args.after.or((!args.follow).then_some(0)),
        jobs: args.jobs,
        queues: args.queues,
        moves_only: args.moves_only,
    };
    if let Some(limit) = args.last {
        return show_last(context, &filter, args.before, limit).await;
    }
    let show = show(context, filter, args.follow);
    match args.timeout {
        Some(limit) => timeout(limit, show).await.unwrap_or(Ok(Exit::Done)),
        None => show.await,
    }
}

async fn show_last(
    context: &Context,
    filter: &EventFilter,
    before: Option<u64>,
    limit: u32,
) -> Outcome {
    let past = context
        .client()
        .await?
        .past_events(filter, before, limit)
        .await?;
    for event in past.events.iter().rev() {
        context.either(event, line(event, context.palette()))?;
    }
    if let Some(next) = past.next
        && !context.is_json()
    {
        remark(format!("older events: --last {limit} --before {next}"));
    }
    Ok(Exit::Done)
}

async fn show(context: &Context, filter: EventFilter, follow: bool) -> Outcome {
    let mut events = context.client_for_long_waits()?.events(filter).await?;
    loop {
        let next = if follow {
            events.next().await
        } else {
            match timeout(QUIET_FOR, events.next()).await {
                Ok(next) => next,
                Err(_) => break,
            }
        };
        let Some(event) = next else { break };
        let event = event?;
        context.either(&event, line(&event, context.palette()))?;
    }
    if let Some(position) = events.position()
        && !context.is_json()
    {
        remark(format!("up to position {position}"));
    }
    Ok(Exit::Done)
}

fn line(event: &Event, palette: Palette) -> String {
    let what = match &event.happening {
        Happening::JobMoved(moved) => {
            let from = moved
                .from
                .map_or("new".to_owned(), |state| palette.state(state));
            let mut out = format!(
                "job {} ({}) {from} -> {}",
                escape::line(&moved.job),
                escape::line(&moved.kind),
                palette.state(moved.to)
            );
            if let Some(worker) = &moved.worker {
                write!(out, " on {}", escape::line(worker))
                    .expect("writing to a string cannot fail");
            }
            if !moved.reason.is_empty() {
                write!(out, ": {}", escape::last_line(&moved.reason, 120))
                    .expect("writing to a string cannot fail");
            }
            out
        }
        Happening::JobProgressed { job, progress, .. } => format!(
            "job {} {:.1} % {}",
            escape::line(job),
            f64::from(progress.millionths) / 10_000.0,
            escape::line(&progress.message)
        ),
        Happening::LogAppended {
            number,
            attempt,
            bytes,
        } => {
            format!(
                "job number {number}: log of attempt {attempt} has {}",
                crate::show::bytes(*bytes)
            )
        }
        Happening::JobRemoved { job, .. } => format!("job {} removed", escape::line(job)),
        Happening::QueueChanged { queue, paused } => {
            format!(
                "queue {} {}",
                escape::line(queue),
                if *paused { "is paused" } else { "changed" }
            )
        }
        Happening::ScheduleChanged { schedule } => {
            format!("schedule {} changed", escape::line(schedule))
        }
        Happening::WorkerSeen { worker } => format!("worker {} is here", escape::line(worker)),
        Happening::WorkerGone { worker } => format!("worker {} is gone", escape::line(worker)),
    };
    let at: SystemTime = event.at;
    format!(
        "{:>8}  {}  {what}",
        event.position,
        palette.dim(&time::absolute(at))
    )
}

//! `ganger job get` and `ganger job wait`.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use clap::Args;
use ganger_client::{Backoff, Client, HistoryEntry, Job, JobState};
use ganger_types::Priority;
use tokio::time::Instant;

use crate::command::waiting::{Reporter, WaitTarget};
use crate::context::{Context, remark};
use crate::document::span::read_span;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::{Rows, facts};
use crate::show::{Palette, bytes, counted, escape, time};

/// Maximum bytes of a payload that is shown; `job payload` prints any.
const PAYLOAD_BYTES_SHOWN: u64 = 4_096;

/// Maximum number of inputs that are shown; `job inputs` prints all.
const INPUTS_SHOWN: u32 = 5;
const INPUT_WIDTH: usize = 120;

/// Arguments for showing jobs.
#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// Ids of the jobs.
    #[arg(required = true)]
    pub(super) jobs: Vec<String>,
}

/// Arguments for waiting for jobs.
#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// Ids of the jobs.
    #[arg(required = true)]
    pub(super) jobs: Vec<String>,

    /// Stop waiting after this time.
    #[arg(long, value_name = "DURATION", value_parser = read_span)]
    timeout: Option<Duration>,
}

pub(crate) async fn run(context: &Context, args: &GetArgs) -> Outcome {
    let client = context.client().await?;
    for (place, id) in args.jobs.iter().enumerate() {
        let job = client.job(id).await?;
        if context.is_json() {
            context.json(&job)?;
            continue;
        }
        if place > 0 {
            context.line("")?;
        }
        let input = input(&client, &job).await;
        context.line(describe(&job, &input, context.palette(), SystemTime::now()))?;
    }
    Ok(Exit::Done)
}

/// Returns the program's input if it is short; otherwise its size.
async fn input(client: &Client, job: &Job) -> String {
    let id = job.r#ref.clone();
    if job.inputs == 0 {
        let size = bytes(job.payload_bytes);
        if job.payload_bytes == 0 {
            return "none".to_owned();
        }
        if job.payload_bytes > PAYLOAD_BYTES_SHOWN {
            return size;
        }
        return match client.payload(&id).await {
            Ok(payload) => escape::short(&String::from_utf8_lossy(&payload), INPUT_WIDTH),
            Err(_) => size,
        };
    }
    let Ok((inputs, _)) = client.inputs(&id, 0, INPUTS_SHOWN, false).await else {
        return counted(job.inputs.into(), "input");
    };
    let mut shown: Vec<String> = inputs
        .iter()
        .filter(|input| input.slot < job.inputs)
        .map(|input| match (&input.dependency, &input.value) {
            (Some(dependency), _) => format!("result of {}", escape::line(dependency)),
            (None, Some(value)) => escape::short(&String::from_utf8_lossy(value), INPUT_WIDTH),
            (None, None) => escape::line(&input.state),
        })
        .collect();
    if job.inputs > INPUTS_SHOWN {
        shown.push(format!("... ({} in all)", job.inputs));
    }
    format!("[{}]", shown.join(", "))
}

pub(crate) async fn wait(context: &Context, args: &WaitArgs) -> Outcome {
    context.client().await?;
    let client = context.client_for_long_waits()?;
    let until = args.timeout.map(|timeout| Instant::now() + timeout);
    let reporter = Reporter::new(context)?;
    let mut exit = Exit::Done;
    for id in &args.jobs {
        let awaited = WaitTarget::Job(id.clone());
        let job = reporter
            .during(&awaited, wait_for(&client, id, until))
            .await?;
        print_changed(context, &job)?;
        if !job.state.is_terminal() {
            remark(format!(
                "{} has not ended yet; `ganger job why` tells why",
                escape::line(&job.id)
            ));
            return Ok(Exit::StillRunning);
        }
        if job.state != JobState::Succeeded {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// Waits until a job has ended; returns it as it is then, or when the time is over.
pub(crate) async fn wait_for(
    client: &Client,
    id: &str,
    until: Option<Instant>,
) -> Result<Job, Failure> {
    loop {
        let slice = until.map_or(Duration::from_secs(3_600), |until| {
            until.saturating_duration_since(Instant::now())
        });
        let job = client.wait(id, slice).await?;
        if job.state.is_terminal() || until.is_some_and(|until| until <= Instant::now()) {
            return Ok(job);
        }
    }
}

fn print_changed(context: &Context, job: &Job) -> Result<(), Failure> {
    let reason = job
        .failure
        .as_ref()
        .filter(|_| job.state != JobState::Succeeded);
    let reason = reason.map(|failure| format!("  {}", escape::last_line(&failure.message, 200)));
    let state = context.palette().state(job.state);
    let line = format!(
        "{}/{}  {state}{}",
        job.shard,
        escape::line(&job.id),
        reason.unwrap_or_default()
    );
    context.either(job, line)
}

/// Describes a job completely.
fn describe(job: &Job, input: &str, palette: Palette, now: SystemTime) -> String {
    let mut pairs = vec![
        (
            "job",
            palette.bold(&format!("{}/{}", job.shard, escape::line(&job.id))),
        ),
        ("name", escape::line(job.name.as_deref().unwrap_or("-"))),
        ("kind", escape::line(&job.kind)),
        ("queue", escape::line(&job.queue)),
        ("state", palette.state(job.state)),
    ];
    if let Some(keeper) = &job.kept_by {
        pairs.push(("kept by", escape::line(keeper)));
    }
    push_times(&mut pairs, job, now);
    pairs.push(("attempts", attempts(job)));
    if let Some(lease) = &job.lease {
        let since = time::relative(lease.granted_at, now);
        pairs.push((
            "worker",
            format!("{}, leased {since}", escape::line(&lease.worker)),
        ));
    }
    if let Some(progress) = &job.progress {
        let percent = f64::from(progress.millionths) / 10_000.0;
        pairs.push((
            "progress",
            format!("{percent:.1} % {}", escape::line(&progress.message)),
        ));
    }
    if let Some(failure) = &job.failure {
        let group = escape::line(&failure.group);
        let message = escape::text(failure.message.trim_end()).replace('\n', "\n          ");
        pairs.push((
            "failure",
            format!("{group}, {}: {message}", time::relative(failure.at, now)),
        ));
    }
    pairs.push(("input", input.to_owned()));
    push_rest(&mut pairs, job);
    let mut out = facts(&pairs);
    if !job.history.is_empty() {
        out.push_str("\n\n");
        out.push_str(&history(&job.history, job.history_dropped));
    }
    out
}

fn push_times(pairs: &mut Vec<(&str, String)>, job: &Job, now: SystemTime) {
    pairs.push(("created", time::both(job.created_at, now)));
    if let Some(at) = job.run_at {
        pairs.push(("runs at", time::both(at, now)));
    }
    if let Some(at) = job.deadline {
        pairs.push(("deadline", time::both(at, now)));
    }
    if let Some(at) = job.finished_at {
        pairs.push(("ended", time::both(at, now)));
    }
    if let Some(count) = job.result_bytes {
        pairs.push(("result", bytes(count)));
    }
    if let Some(timeout) = job.timeout {
        pairs.push(("timeout", time::span(timeout)));
    }
}

fn attempts(job: &Job) -> String {
    let pause = match &job.retry.backoff {
        Backoff::Fixed(pause) => format!("{} apart", time::span(*pause)),
        Backoff::List(_) => "apart as listed".to_owned(),
        Backoff::Exponential { base, cap } => {
            format!(
                "{} apart, doubling up to {}",
                time::span(*base),
                time::span(*cap)
            )
        }
    };
    let counted = match job.attempts_counted {
        counted if counted == job.attempt => String::new(),
        counted => format!(" ({counted} counted)"),
    };
    format!(
        "{}{counted}, at most {} retries, {pause}",
        job.attempt, job.retry.retries_max
    )
}

fn push_rest(pairs: &mut Vec<(&str, String)>, job: &Job) {
    if job.priority != Priority::default() {
        pairs.push(("priority", job.priority.to_whole().to_string()));
    }
    for (name, value) in [
        ("graph", &job.graph),
        ("unique key", &job.unique_key),
        ("schedule", &job.schedule),
    ] {
        if let Some(value) = value {
            pairs.push((name, escape::line(value)));
        }
    }
    if !job.tags.is_empty() {
        pairs.push(("tags", escape::line(&job.tags.join(", "))));
    }
    if !job.labels.is_empty() {
        let labels = job
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        pairs.push((
            "labels",
            escape::line(&labels.collect::<Vec<_>>().join(", ")),
        ));
    }
}

fn history(entries: &[HistoryEntry], dropped: u32) -> String {
    let mut rows = Rows::new(&["at", "what", "detail"]);
    for (place, entry) in entries.iter().enumerate() {
        rows.push([
            time::absolute(entry.at),
            escape::line(&entry.what),
            detail(entry),
        ]);
        if place == 0 && dropped > 0 {
            rows.push(["...".to_owned(), format!("{dropped} more"), String::new()]);
        }
    }
    rows.text()
}

fn detail(entry: &HistoryEntry) -> String {
    let text = |field: &Option<String>| escape::line(field.as_deref().unwrap_or_default());
    let Some(number) = entry.attempt else {
        let said = [&entry.queue, &entry.group, &entry.message];
        return said
            .into_iter()
            .find(|it| it.is_some())
            .map(text)
            .unwrap_or_default();
    };
    let end = entry.end.as_deref().unwrap_or_default();
    let mut out = format!("#{number} on {} {end}", text(&entry.worker));
    if let Some(group) = &entry.group {
        write!(out, " ({})", escape::line(group)).expect("writing to a string cannot fail");
    }
    if let Some(message) = entry.message.as_ref().filter(|it| !it.is_empty()) {
        write!(out, ": {}", escape::last_line(message, 120))
            .expect("writing to a string cannot fail");
    }
    out
}

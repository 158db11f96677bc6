//! `ganger stats`: the server, its queues, and the statistics of a day.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use clap::Args;
use ganger_client::{Client, DurationSample, ServerInfo, Statistics};
use serde_json::json;

use crate::command::queue;
use crate::context::Context;
use crate::document::span::read_day;
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::Rows;
use crate::show::{counted, escape, json as views, time};

/// Shows the server, its queues, and what happened on a day.
#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// Show these queues only.
    queues: Vec<String>,

    /// Day (UTC), such as 2030-01-31, or the day that contains this time: RFC 3339, or -DURATION. Today if absent.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    day: Option<String>,
}

pub(crate) async fn run(context: &Context, args: StatsArgs) -> Outcome {
    let day = args.day.map(|text| read_day(&text, SystemTime::now()));
    let day = day.transpose().map_err(Failure::usage)?;
    let client = context.client().await?;
    let info = client.info().await?;
    let mut queues = client.queues().await?;
    if !args.queues.is_empty() {
        queues.retain(|view| args.queues.contains(&view.queue));
    }
    let names: Vec<String> = queues.iter().map(|view| view.queue.clone()).collect();
    let days = days(&client, &names, day).await?;
    if context.is_json() {
        context.json(&json!({
            "server": views::info(&info),
            "queues": queues,
            "statistics": days,
        }))?;
        return Ok(Exit::Done);
    }
    context.line(headline(&info))?;
    if !queues.is_empty() {
        context.line("")?;
        context.line(queue::table(&queues))?;
        context.line("")?;
        context.line(table(&days))?;
    }
    Ok(Exit::Done)
}

async fn days(
    client: &Client,
    queues: &[String],
    day: Option<SystemTime>,
) -> Result<Vec<Statistics>, Failure> {
    let mut out = Vec::with_capacity(queues.len());
    for queue in queues {
        out.push(client.statistics(queue, day).await?);
    }
    Ok(out)
}

fn headline(info: &ServerInfo) -> String {
    let mut out = format!(
        "ganger {}, shard {}, {}, up {}, {}",
        escape::line(&info.version),
        escape::line(&info.shard),
        escape::line(&info.health),
        time::span(info.uptime),
        counted(info.live_jobs, "live job"),
    );
    if !info.reason.is_empty() {
        write!(out, " ({})", escape::line(&info.reason)).expect("writing to a string cannot fail");
    }
    if info.draining {
        out.push_str(", about to stop");
    }
    out
}

fn table(days: &[Statistics]) -> String {
    let mut rows = Rows::new(&[
        "queue",
        ">started",
        ">wait mean",
        ">completed",
        ">run mean",
        ">retries",
        ">failures",
        ">still failed",
    ]);
    for it in days {
        rows.push([
            escape::short(&it.queue, 40),
            it.waiting.count.to_string(),
            mean(&it.waiting),
            it.running.count.to_string(),
            mean(&it.running),
            it.retries.to_string(),
            it.failures.to_string(),
            it.failed.to_string(),
        ]);
    }
    rows.text()
}

fn mean(sample: &DurationSample) -> String {
    if sample.count == 0 {
        return "-".to_owned();
    }
    let seconds = sample.mean_seconds.clamp(0.0, 1e9);
    time::span(Duration::from_secs_f64(seconds))
}

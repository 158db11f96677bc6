//! Fills a server: finished and live jobs in many queues, and graphs.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Plan, Server};

/// Jobs in one request.
const BATCH: usize = 50_000;
/// Jobs of the graph whose drawing is measured.
const DRAWN: usize = 10_000;
/// Levels of that graph.
const LEVELS: usize = 10;

/// The graphs that were submitted, and the time that everything took.
pub(crate) struct Seeded {
    pub(crate) drawn: String,
    pub(crate) largest: Option<String>,
    /// A job that waits.
    pub(crate) job: String,
    pub(crate) took: Duration,
}

pub(crate) fn fill(server: &Server, plan: Plan) -> Result<Seeded> {
    let began = Instant::now();
    enqueue(server, plan.finished, plan.queues, "old")?;
    cancel_all(server, plan.finished)?;
    enqueue(server, plan.live, plan.queues, "send")?;
    let one = server.post(
        "/jobs",
        "application/json",
        br#"{"kind": "send", "queue": "q-0", "tags": ["one"]}"#,
    )?;
    let job: Value = serde_json::from_slice(&one)?;
    let drawn = submit(server, DRAWN, DRAWN / LEVELS)?;
    let largest = match plan.graph {
        0 => None,
        jobs => Some(submit(server, jobs, (jobs / LEVELS).max(1))?),
    };
    Ok(Seeded {
        drawn,
        largest,
        job: job["ref"].as_str().context("a job has a ref")?.to_owned(),
        took: began.elapsed(),
    })
}

fn enqueue(server: &Server, jobs: usize, queues: usize, kind: &str) -> Result<()> {
    for from in (0..jobs).step_by(BATCH) {
        let mut lines = String::with_capacity(BATCH * 64);
        for number in from..jobs.min(from + BATCH) {
            writeln!(
                lines,
                r#"{{"kind":"{kind}-{}","queue":"q-{}","payload":{number}}}"#,
                number % 7,
                number % queues
            )?;
        }
        server.post(
            "/jobs/batch?answers=errors",
            "application/x-ndjson",
            lines.as_bytes(),
        )?;
    }
    Ok(())
}

/// Cancels all jobs that wait, as many as one request looks at at a time.
fn cancel_all(server: &Server, jobs: usize) -> Result<()> {
    let mut cancelled = 0;
    while cancelled < u64::try_from(jobs)? {
        let answer = server.post(
            "/jobs/cancel",
            "application/json",
            br#"{"filter": {"state": "ready"}}"#,
        )?;
        let answer: Value = serde_json::from_slice(&answer)?;
        let changed = answer["changed"].as_u64().context("a number of jobs")?;
        cancelled += changed;
        if changed == 0 {
            break;
        }
    }
    Ok(())
}

/// Submits a graph of so many jobs in levels of `width`; each job takes the results of three jobs of the level before.
fn submit(server: &Server, jobs: usize, width: usize) -> Result<String> {
    let mut text = String::from(r#"{"jobs": ["#);
    for number in 0..jobs {
        let comma = if number == 0 { "" } else { "," };
        write!(
            text,
            r#"{comma}{{"name":"{number}","kind":"k{}","queue":"graph","inputs":["#,
            number * 3 / width % 5
        )?;
        if number >= width {
            let level = number / width - 1;
            for step in [1, 7, 31] {
                let from = level * width + (number * step + step) % width;
                let comma = if step == 1 { "" } else { "," };
                write!(text, r#"{comma}{{"result_of":"{from}"}}"#)?;
            }
        }
        text.push_str("]}");
    }
    text.push_str("]}");
    let answer = server.post("/graphs", "application/json", text.as_bytes())?;
    let answer: Value = serde_json::from_slice(&answer)?;
    Ok(answer["graph"]
        .as_str()
        .context("a graph has a name")?
        .to_owned())
}

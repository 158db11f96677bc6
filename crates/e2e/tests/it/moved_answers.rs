//! Long answers over HTTP at a cluster, as curl gets them: a wait, a log that grows, and a stream of events go on while
//! their shard moves between nodes.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::command::wait_for;
use ganger_e2e::http::Client;
use ganger_e2e::server::TIMEOUT;
use serde_json::{Value, json};

use crate::nodes::{Nodes, ask, drain};

/// Jobs that are enqueued at each place of the shard.
const JOBS_EACH: usize = 20;
/// Time after which the death of an owner ends an answer that had begun.
pub(crate) const BEGUN_AFTER: Duration = Duration::from_secs(7);

/// A curl that runs, with what it has written so far.
struct Curl {
    process: Child,
    written: std::path::PathBuf,
}

impl Curl {
    /// Begins a request to the node that all of them are sent to.
    fn begin(nodes: &Nodes, directory: &Path, name: &str, path: &str) -> Result<Self> {
        let written = directory.join(name);
        let url = format!("http://{}{path}", nodes.setup("c").address);
        let process = Command::new("curl")
            .args(["--silent", "--show-error", "--no-buffer", "--fail", &url])
            .stdin(Stdio::null())
            .stdout(File::create(&written)?)
            .spawn()
            .context("cannot start curl")?;
        Ok(Self { process, written })
    }

    fn text(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.written)?)
    }

    fn wait_for_text(&self, text: &str) -> Result<()> {
        let found = wait_for(text, || Ok(self.text()?.contains(text).then_some(())));
        found.with_context(|| format!("not in {}", self.text().unwrap_or_default()))
    }

    /// Waits for the end of the answer, which must be its right one.
    fn finish(mut self) -> Result<String> {
        let status = self.process.wait()?;
        let text = self.text()?;
        ensure!(status.success(), "curl ended with {status} after {text}");
        Ok(text)
    }
}

impl Drop for Curl {
    fn drop(&mut self) {
        // Both fail if it has ended.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Sends a request to the node of all requests; nothing may fail.
pub(crate) fn post(client: &mut Client, path: &str, body: &Value) -> Result<Value> {
    let answer = client.request("POST", path, body);
    let answer = answer.map_err(|error| anyhow::anyhow!("{path}: {error:?}"))?;
    ensure!(answer.status < 300, "{path}: {}", answer.to_text());
    Ok(if answer.body.is_empty() {
        Value::Null
    } else {
        answer.json()
    })
}

/// A job that writes a log while its shard moves.
pub(crate) struct Job {
    client: Client,
    held: Value,
    /// What was written so far.
    pub(crate) log: String,
}

impl Job {
    pub(crate) fn lease(mut client: Client) -> Result<Self> {
        let job = json!({"id": "long", "queue": "long", "kind": "k"});
        post(&mut client, "/api/v1/jobs", &job)?;
        let lease = json!({"worker": "w", "queues": ["long"], "lease_for": "120s"});
        let leased = post(&mut client, "/api/v1/leases", &lease)?;
        let leased = &leased["jobs"][0];
        let held = json!({"job": leased["ref"], "token": leased["token"]});
        let log = String::new();
        Ok(Self { client, held, log })
    }

    pub(crate) fn write(&mut self, line: &str) -> Result<()> {
        let mut chunk = self.held.clone();
        chunk["offset"] = self.log.len().into();
        chunk["text"] = line.into();
        self.log.push_str(line);
        post(&mut self.client, "/api/v1/leases/log", &chunk).map(drop)
    }

    pub(crate) fn complete(mut self) -> Result<String> {
        // Without an owner, or an answer of one that has just died, it is sent again: a job is completed once.
        let path = "/api/v1/leases/complete";
        wait_for("the completion", || {
            let answer = self.client.request("POST", path, &self.held);
            let answer = answer.map_err(|error| anyhow::anyhow!("{error:?}"))?;
            ensure!(
                answer.status < 300 || answer.status > 500,
                "{}",
                answer.to_text()
            );
            Ok((answer.status < 300).then_some(()))
        })?;
        Ok(self.log)
    }
}

/// Drains all nodes but one, so that the shard moves there.
pub(crate) fn move_to(nodes: &Nodes, owner: &str) -> Result<()> {
    drain(nodes, owner, &["--undo"])?;
    for other in ["a", "b", "c"] {
        if other != owner {
            drain(nodes, other, &[])?;
        }
    }
    wait_for("the move", || {
        Ok((nodes.owner("c", "1")?.as_deref() == Some(owner)).then_some(()))
    })
}

/// The ids of the events that curl got.
fn event_ids(text: &str) -> Vec<u64> {
    let events = text.split("\n\n").filter(|event| event.contains("data:"));
    let ids = events.filter_map(|event| event.lines().find_map(|line| line.strip_prefix("id: ")));
    ids.filter_map(|id| id.parse().ok()).collect()
}

#[test]
fn a_wait_a_log_and_a_stream_of_events_go_on_while_their_shard_moves() -> Result<()> {
    const NAME: &str = "a_wait_a_log_and_a_stream_of_events_go_on";
    let Some(mut nodes) = Nodes::start(NAME, 1, &["a", "b", "c"])? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let begin = |name, path| Curl::begin(&nodes, directory.path(), name, path);
    let events = begin("events", "/api/v1/events?queue=q")?;
    events.wait_for_text("ganger events")?;
    let mut client = Client::new(nodes.setup("c").address, TIMEOUT);
    let mut job = Job::lease(Client::new(nodes.setup("c").address, TIMEOUT))?;
    let log = begin("log", "/api/v1/jobs/long/log?follow=true")?;
    let part = begin(
        "part",
        "/api/v1/jobs/long/log?follow=true&format=ndjson&attempt=1&from=9&length=40",
    )?;
    let waited = begin("wait", "/api/v1/jobs/long?wait=5m")?;
    let result = begin("result", "/api/v1/jobs/long/result?wait=5m")?;
    let mut jobs = 0;
    for owner in ["c", "b", "a", "c", "b", "a"] {
        move_to(&nodes, owner)?;
        let line = format!("written at {owner}\n");
        job.write(&line)?;
        for _ in 0..JOBS_EACH {
            let new = json!({"id": format!("job-{jobs}"), "queue": "q", "kind": "k"});
            post(&mut client, "/api/v1/jobs", &new)?;
            jobs += 1;
        }
        events.wait_for_text(&format!("1/job-{}\"", jobs - 1))?;
    }
    let moved = ask(nodes.setup("c"), "/metrics")?.to_text();

    // The waits end with the job, although the node that waits for it dies.
    let settled = Instant::now();
    for node in ["b", "c"] {
        drain(&nodes, node, &["--undo"])?;
    }
    thread::sleep(BEGUN_AFTER.saturating_sub(settled.elapsed()));
    let written = wait_for("the log", || {
        let text = log.text()?;
        Ok((text == job.log).then_some(text))
    })?;
    nodes.server("a").kill()?;
    let mut report = job.held.clone();
    report["result"] = json!("done");
    job.held = report;
    let all = job.complete()?;
    ensure!(all == written);
    let ended: Value = serde_json::from_str(&waited.finish()?)?;
    ensure!(ended["state"] == "succeeded", "{ended}");
    let result = result.finish()?;
    ensure!(result == "\"done\"", "{result}");

    let seen = events.text()?;
    let missing: Vec<_> = (0..jobs)
        .filter(|number| !seen.contains(&format!("1/job-{number}\"")))
        .collect();
    ensure!(missing.is_empty(), "without events: {missing:?}");
    let ids = event_ids(&seen);
    ensure!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let part = part.finish()?;
    let lines = part.lines().map(serde_json::from_str::<Value>);
    let texts: Vec<Value> = lines.collect::<Result<_, _>>()?;
    let texts: String = texts.iter().filter_map(|it| it["text"].as_str()).collect();
    ensure!(texts == all[9..49], "{texts:?} of {all:?}");
    let count = moved
        .lines()
        .find_map(|line| line.strip_prefix("ganger_answers_moved_total "))
        .context("the metric is there")?;
    // Five moves of a stream of events, a log, a part of it, and two waits.
    ensure!(count.parse::<u64>()? >= 5 * 4, "{count}");
    let server = nodes.setup("a").start()?;
    *nodes.server("a") = server;
    nodes.stop()
}

/// What a reader must not take for the end of a log.
#[test]
fn a_log_that_is_followed_at_a_server_that_stops_does_not_end_as_if_it_were_whole() -> Result<()> {
    const NAME: &str = "a_log_that_is_followed_at_a_server_that_stops";
    let Some(mut nodes) = Nodes::start(NAME, 1, &["c"])? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let mut job = Job::lease(Client::new(nodes.setup("c").address, TIMEOUT))?;
    job.write("begun\n")?;
    let path = "/api/v1/jobs/long/log?follow=true";
    let mut log = Curl::begin(&nodes, directory.path(), "log", path)?;
    log.wait_for_text("begun")?;
    nodes.server("c").stop()?;
    let status = log.process.wait()?;
    ensure!(!status.success(), "the log ended well");
    Ok(())
}

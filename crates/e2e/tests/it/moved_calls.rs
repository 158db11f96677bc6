//! Long answers over gRPC at a cluster, as any client gets them: a stream of events, a log that grows, and a wait go on
//! while their shard moves between nodes and when its owner dies.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use ganger_e2e::command::wait_for;
use ganger_e2e::http::Client;
use ganger_e2e::server::TIMEOUT;
use ganger_proto::v1;
use ganger_proto::v1::insight_client::InsightClient;
use ganger_proto::v1::jobs_client::JobsClient;
use serde_json::json;

use crate::moved_answers::{BEGUN_AFTER, Job, move_to, post};
use crate::nodes::{Nodes, ask, drain};

/// Jobs that are enqueued at each place of the shard.
const JOBS_EACH: usize = 20;

/// What a reader has got so far.
type Seen<T> = Arc<Mutex<Vec<T>>>;

fn seen<T: Clone>(seen: &Seen<T>) -> Vec<T> {
    seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn note<T>(seen: &Seen<T>, more: impl IntoIterator<Item = T>) {
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.extend(more);
}

/// Reads events until the stream ends, which is an error.
#[tokio::main(flavor = "current_thread")]
async fn read_events(node: String, into: &Seen<(u64, String)>) -> Result<()> {
    let mut client = InsightClient::connect(node).await?;
    let request = v1::EventsRequest {
        after: Some(0),
        queues: vec!["q".to_owned()],
        ..v1::EventsRequest::default()
    };
    let mut events = client.events(request).await?.into_inner();
    while let Some(batch) = events.message().await? {
        let moved = batch
            .events
            .into_iter()
            .filter_map(|event| match event.happening {
                Some(v1::event::Happening::JobMoved(moved)) => Some((event.position, moved.job)),
                _ => None,
            });
        note(into, moved);
    }
    Err(anyhow!("the stream of events has ended"))
}

/// Reads a log to its end.
#[tokio::main(flavor = "current_thread")]
async fn read_log(node: String, into: &Seen<u8>) -> Result<()> {
    let mut client = JobsClient::connect(node).await?;
    let request = v1::LogRequest {
        job: "long".to_owned(),
        ..v1::LogRequest::default()
    };
    let mut log = client.follow_log(request).await?.into_inner();
    while let Some(reply) = log.message().await? {
        for chunk in reply.chunks {
            note(into, chunk.bytes);
        }
        if reply.end {
            return Ok(());
        }
    }
    Err(anyhow!("the log has no end"))
}

/// Waits for the end of a job; returns its state.
#[tokio::main(flavor = "current_thread")]
async fn wait(node: String) -> Result<v1::JobState> {
    let mut client = JobsClient::connect(node).await?;
    let request = v1::WaitRequest {
        job: "long".to_owned(),
        wait_ms: 300_000,
        ..v1::WaitRequest::default()
    };
    Ok(client.wait(request).await?.into_inner().state())
}

fn finish<T>(reader: JoinHandle<Result<T>>) -> Result<T> {
    reader.join().map_err(|_| anyhow!("a reader panicked"))?
}

#[test]
fn calls_go_on_while_their_shard_moves_and_when_its_owner_dies() -> Result<()> {
    const NAME: &str = "calls_go_on_while_their_shard_moves";
    let Some(mut nodes) = Nodes::start(NAME, 1, &["a", "b", "c"])? else {
        return Ok(());
    };
    let node = format!("http://{}", nodes.setup("c").address);
    let mut client = Client::new(nodes.setup("c").address, TIMEOUT);
    let mut job = Job::lease(Client::new(nodes.setup("c").address, TIMEOUT))?;
    let (events, log) = (Seen::default(), Seen::default());
    let reader = {
        let (node, events) = (node.clone(), Arc::clone(&events));
        thread::spawn(move || read_events(node, &events))
    };
    let followed = {
        let (node, log) = (node.clone(), Arc::clone(&log));
        thread::spawn(move || read_log(node, &log))
    };
    let waited = thread::spawn(move || wait(node));

    let mut jobs = 0;
    for owner in ["c", "b", "a", "c", "b", "a"] {
        move_to(&nodes, owner)?;
        job.write(&format!("written at {owner}\n"))?;
        for _ in 0..JOBS_EACH {
            let new = json!({"id": format!("job-{jobs}"), "queue": "q", "kind": "k"});
            post(&mut client, "/api/v1/jobs", &new)?;
            jobs += 1;
        }
        let last = format!("1/job-{}", jobs - 1);
        wait_for("the events", || {
            ensure!(!reader.is_finished(), "the stream of events has ended");
            let has_come = seen(&events).iter().any(|(_, job)| *job == last);
            Ok(has_come.then_some(()))
        })?;
    }
    let settled = Instant::now();
    let moved = ask(nodes.setup("c"), "/metrics")?.to_text();
    let count = moved
        .lines()
        .find_map(|line| line.strip_prefix("ganger_answers_moved_total "))
        .context("the metric is there")?;
    // Five moves of three answers.
    ensure!(count.parse::<u64>()? >= 5 * 3, "{count}");
    for node in ["b", "c"] {
        drain(&nodes, node, &["--undo"])?;
    }
    wait_for("the log", || {
        Ok((seen(&log) == job.log.as_bytes()).then_some(()))
    })?;
    thread::sleep(BEGUN_AFTER.saturating_sub(settled.elapsed()));

    nodes.server("a").kill()?;
    let written = job.complete()?;
    ensure!(finish(waited)? == v1::JobState::Succeeded);
    finish(followed)?;
    ensure!(seen(&log) == written.as_bytes());
    let events = seen(&events);
    let positions: Vec<u64> = events.iter().map(|(position, _)| *position).collect();
    ensure!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    let has = |number: &usize| {
        events
            .iter()
            .any(|(_, job)| *job == format!("1/job-{number}"))
    };
    let missing: Vec<usize> = (0..jobs).filter(|number| !has(number)).collect();
    ensure!(missing.is_empty(), "without events: {missing:?}");
    nodes.start_again("a")?;
    // A stream does not hold its node up: the caller goes on at another one.
    nodes.stop()?;
    let told = finish(reader).err().context("the stream has ended")?;
    let code = told
        .downcast_ref::<tonic::Status>()
        .map(tonic::Status::code);
    ensure!(code == Some(tonic::Code::Unavailable), "{told:?}");
    Ok(())
}

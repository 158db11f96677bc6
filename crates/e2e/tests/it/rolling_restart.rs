//! A restart of all nodes, one after the other, under load: no request fails.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use ganger_e2e::balanced_load::{self, Plan};
use ganger_e2e::command::{Worker, wait_for, write_programs};
use ganger_e2e::hand_overs::HandOvers;
use ganger_e2e::http::Client;
use serde_json::json;

use crate::nodes::{Nodes, ask};

/// Number of shards, which the nodes share.
const SHARDS: usize = 4;
/// Longest wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of requests between two restarts.
const REQUESTS_BETWEEN: usize = 300;
/// Programs that a worker runs at each restart.
const PROGRAMS_EACH: usize = 10;

/// Starts a worker that knows all nodes, and is connected to one of them at a time. Each run of a program adds the name of
/// its job to the file `runs`.
fn start_worker(directory: &Path, nodes: &[SocketAddr]) -> Result<Worker> {
    let runs = directory.join("runs");
    let slow = format!(
        "#!/bin/sh\necho $GANGER_JOB_ID >>{}\nsleep 0.3\necho 1\n",
        runs.display()
    );
    let programs = [("slow", slow.as_str())];
    let programs = write_programs(&directory.join("programs"), &programs)?;
    let nodes: Vec<String> = nodes.iter().map(SocketAddr::to_string).collect();
    let nodes = nodes.join(",");
    let arguments = ["--server", &nodes, "--shard", "1", "--queue", "programs"];
    Worker::start(&programs, &directory.join("worker.log"), &arguments, &[])
}

/// Enqueues programs for the worker, which run while a node is restarted.
fn enqueue_programs(nodes: &Nodes, round: &str) -> Result<()> {
    for number in 0..PROGRAMS_EACH {
        let id = format!("program-{round}-{number}");
        let job = json!({"id": id, "queue": "programs", "kind": "slow"});
        let path = "/api/v1/jobs?shard=1";
        let sent = nodes.setup(round).client().request("POST", path, &job);
        let sent = sent.map_err(|error| anyhow!("{error:?}"))?;
        ensure!(sent.status < 300, "{}", sent.to_text());
    }
    Ok(())
}

/// Waits until the worker has run so many programs: each once, though its nodes were restarted. Attempts do not tell: a
/// grant that reached no worker is released, and has used a number.
fn expect_programs_ran_once(nodes: &Nodes, directory: &Path, programs: usize) -> Result<()> {
    let path = "/api/v1/jobs?queue=programs&limit=1000&shard=1";
    let jobs = wait_for("the programs", || {
        let listed = ask(nodes.setup("a"), path)?.json();
        let jobs = listed["jobs"].as_array().cloned().unwrap_or_default();
        let has_ended = jobs.iter().all(|job| !job["finished_at"].is_null());
        Ok((jobs.len() == programs && has_ended).then_some(jobs))
    })?;
    let other = jobs.iter().find(|job| job["state"] != "succeeded");
    ensure!(other.is_none(), "it did not succeed: {other:?}");
    let runs = fs::read_to_string(directory.join("runs"))?;
    let mut runs: Vec<&str> = runs.lines().collect();
    runs.sort_unstable();
    let mut names: Vec<_> = jobs.iter().filter_map(|job| job["ref"].as_str()).collect();
    names.sort_unstable();
    ensure!(runs == names, "programs that ran: {runs:?}");
    Ok(())
}

#[test]
fn no_request_fails_while_all_nodes_are_restarted_in_turn() -> Result<()> {
    const NAME: &str = "no_request_fails_while_all_nodes_are_restarted";
    let names = ["a", "b", "c"];
    let Some(mut nodes) = Nodes::start(NAME, u32::try_from(SHARDS)?, &names)? else {
        return Ok(());
    };
    let addresses = names.map(|name| nodes.setup(name).address);
    let directory = tempfile::tempdir()?;
    let mut worker = start_worker(directory.path(), &addresses)?;
    let plan = Plan {
        shards: SHARDS,
        producers: vec![(1..=SHARDS).collect(); 2],
        every: Duration::from_millis(2),
        has_graphs: true,
    };
    // The load is there before and after each restart.
    let ((), observed) = balanced_load::run(&addresses, &plan, |balancer| {
        for name in names {
            balancer.wait_for_requests(REQUESTS_BETWEEN)?;
            enqueue_programs(&nodes, name)?;
            let begun = Instant::now();
            nodes.server(name).stop()?;
            let now = balancer.now();
            eprintln!("{now:?}: {name} stopped after {:?}", begun.elapsed());
            nodes.start_again(name)?;
        }
        balancer.wait_for_requests(REQUESTS_BETWEEN)
    })?;
    let mut handed_over = 0;
    for name in names {
        let hand_overs = HandOvers::of_log(&nodes.setup(name).log_text())?;
        eprintln!("{name} handed shards over: {hand_overs:?}");
        handed_over += hand_overs.pauses.len();
    }
    eprintln!(
        "{} requests, {} jobs, {} failures",
        observed.requests,
        observed.enqueued,
        observed.failures.len()
    );
    observed.expect_no_failure()?;
    expect_programs_ran_once(&nodes, directory.path(), names.len() * PROGRAMS_EACH)?;
    ensure!(worker.stop()?.success(), "the worker stops in order");
    ensure!(
        handed_over >= SHARDS,
        "each shard had to move at least once"
    );
    nodes.stop()
}

#[test]
fn a_request_for_the_shard_of_a_dead_node_waits_for_the_next_owner() -> Result<()> {
    const NAME: &str = "a_request_for_the_shard_of_a_dead_node_waits";
    /// Every request waits so long before it is refused.
    const WAITS_FOR: Duration = Duration::from_secs(5);
    let Some(mut nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    // The first node came alone, and owns the shard.
    let mut client = Client::new(nodes.setup("b").address, RESPONSE_TIMEOUT);
    let mut enqueue = |id: &str| {
        let job = json!({"id": id, "queue": "q", "kind": "k"});
        let answer = client.request("POST", "/api/v1/jobs", &job);
        answer.map_err(|error| anyhow!("{error:?}"))
    };
    ensure!(enqueue("before")?.status < 300);
    nodes.server("a").kill()?;
    for attempt in 0.. {
        let begun = Instant::now();
        let answer = enqueue("after")?;
        if answer.status < 300 {
            break;
        }
        if answer.status == 504 {
            // It was sent to the node just before that died; the id makes it one job.
            continue;
        }
        // On a machine that does other things too, the shard may be taken over later.
        let (text, took) = (answer.to_text(), begun.elapsed());
        ensure!(
            took >= WAITS_FOR.mul_f64(0.9),
            "refused after {took:?}: {text}"
        );
        ensure!(attempt < 10, "nobody takes the shard over: {text}");
    }
    let server = nodes.setup("a").start()?;
    *nodes.server("a") = server;
    nodes.stop()
}

//! A restart of all nodes, one after the other, under load: no request fails.

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use ganger_e2e::balanced_load::{self, Plan};
use ganger_e2e::hand_overs::HandOvers;
use ganger_e2e::http::Client;
use serde_json::json;

use crate::nodes::Nodes;

/// Number of shards, which the nodes share.
const SHARDS: usize = 4;
/// Longest wait for a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// Number of requests between two restarts.
const REQUESTS_BETWEEN: usize = 300;

#[test]
fn no_request_fails_while_all_nodes_are_restarted_in_turn() -> Result<()> {
    const NAME: &str = "no_request_fails_while_all_nodes_are_restarted";
    let names = ["a", "b", "c"];
    let Some(mut nodes) = Nodes::start(NAME, u32::try_from(SHARDS)?, &names)? else {
        return Ok(());
    };
    let addresses = names.map(|name| nodes.setup(name).address);
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
            let begun = Instant::now();
            nodes.server(name).stop()?;
            eprintln!("{name} stopped after {:?}", begun.elapsed());
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

//! A database that is restored to an earlier time under its nodes: no shard goes on in silence without the jobs that
//! were acknowledged since.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, ensure};
use ganger_e2e::command::{run, run_successfully, wait_for};
use serde_json::{Value, json};

use crate::nodes::{Nodes, ask};

/// Name of the database with the shards.
const DATABASE: &str = ganger_e2e::cluster::DATABASE;

/// Enqueues jobs one by one; returns their ids.
fn enqueue(nodes: &Nodes, node: &str, count: usize) -> Result<Vec<String>> {
    let mut client = nodes.setup(node).client();
    let job = json!({"queue": "mail", "kind": "send", "payload": {"to": "you"}});
    let one = |_| {
        let answer = client.request("POST", "/api/v1/jobs", &job);
        let answer = answer.map_err(|error| anyhow!("{error:?}"))?;
        ensure!(answer.status == 201, "{}", answer.to_text());
        let id = answer.json()["id"].as_str().map(str::to_owned);
        id.context("it has an id")
    };
    (0..count).map(one).collect()
}

/// The newest commit of shard 1 that a node knows to be confirmed.
fn known_commit(nodes: &Nodes, node: &str) -> Result<u64> {
    let metrics = ask(nodes.setup(node), "/metrics")?.to_text();
    let name = r#"ganger_cluster_confirmed_commits{shard="1"} "#;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.map_or(Ok(0), str::parse)?)
}

/// State and number of commits of shard 1 in the database.
fn status(nodes: &Nodes) -> Result<(String, u64)> {
    let store = nodes.cluster.admin_address();
    let text = run_successfully(&["cluster", "status", "--json", "--store", &store], &[])?;
    let status: Value = serde_json::from_str(&text)?;
    let shard = &status["shards"][0];
    let state = shard["state"].as_str().context("it has a state")?;
    let commits = shard["commits"].as_u64().context("it has commits")?;
    Ok((state.to_owned(), commits))
}

/// Accepts the rewind as the operator's hand-book says, and expects the jobs of before alone.
fn accept_and_go_on(nodes: &Nodes, node: &str, kept: &[String], lost: &[String]) -> Result<()> {
    let store = nodes.cluster.admin_address();
    let (_, commits) = status(nodes)?;
    let accept = |at: u64| {
        let at = at.to_string();
        run(
            &[
                "cluster",
                "accept-rewind",
                "1",
                "--at",
                &at,
                "--store",
                &store,
            ],
            &[],
        )
    };
    let refused = accept(commits + 1)?;
    ensure!(!refused.status.success(), "it ends elsewhere");
    let accepted = accept(commits)?;
    ensure!(accepted.status.success(), "{accepted:?}");
    let setup = nodes.setup(node);
    wait_for("the shard is served again", || {
        let answer = ask(setup, "/api/v1/jobs?limit=1")?;
        Ok((answer.status == 200).then_some(()))
    })?;
    for (ids, status) in [(kept, 200), (lost, 404)] {
        for id in ids {
            let answer = ask(setup, &format!("/api/v1/jobs/{id}"))?;
            ensure!(answer.status == status, "{id}: {}", answer.to_text());
        }
    }
    let fresh = enqueue(nodes, node, 5)?;
    for id in &fresh {
        ensure!(
            !lost.contains(id) && !kept.contains(id),
            "{id} is used twice"
        );
    }
    Ok(())
}

/// Waits until a node refuses jobs for the shard and says why; it takes none meanwhile.
fn wait_for_refusal(nodes: &Nodes, node: &str) -> Result<()> {
    let mut client = nodes.setup(node).client();
    let mut answers = BTreeSet::new();
    let closed = wait_for("the shard is closed", || {
        let answer = client.request(
            "POST",
            "/api/v1/jobs",
            &json!({"queue": "mail", "kind": "send"}),
        );
        let answer = answer.map_err(|error| anyhow!("{error:?}"))?;
        ensure!(answer.status >= 500, "{node} serves: {}", answer.to_text());
        let is_closed = answer.status == 503 && answer.to_text().contains("rewound");
        answers.insert(answer.to_text());
        Ok(is_closed.then_some(()))
    });
    closed.with_context(|| format!("{node} has answered {answers:?}"))?;
    wait_for("the list of shards says so", || {
        let listed = ask(nodes.setup(node), "/api/v1/shards")?.to_text();
        let is_listed = listed.contains(r#""state":"rewound""#);
        Ok(is_listed.then_some(()))
    })
}

#[test]
fn a_database_restored_under_a_live_owner_closes_the_shard() -> Result<()> {
    const NAME: &str = "a_database_restored_under_a_live_owner";
    let Some(nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    let kept = enqueue(&nodes, "a", 5)?;
    nodes.cluster.postgres.back_up(DATABASE)?;
    let lost = enqueue(&nodes, "b", 20)?;
    nodes.cluster.postgres.restore(DATABASE)?;
    // Nobody has written anything since, and no job that was acknowledged is denied.
    for (node, id) in [("a", &lost[19]), ("b", &lost[0])] {
        let answer = ask(nodes.setup(node), &format!("/api/v1/jobs/{id}"))?;
        ensure!(answer.status != 404, "{node}: {}", answer.to_text());
    }
    for node in ["a", "b"] {
        wait_for_refusal(&nodes, node)?;
    }
    ensure!(status(&nodes)?.0 == "rewound");
    accept_and_go_on(&nodes, "b", &kept, &lost)?;
    nodes.stop()
}

/// The message by which a node hands a shard over, saying that it ended with a commit that the database does not have.
fn say_that_it_ended_later(nodes: &Nodes, taker: &str) -> Result<()> {
    let url = format!("http://{}/peer/take-shard", nodes.setup(taker).address);
    let marks =
        json!({"marks": [{"shard": "1", "epoch": 1, "sequence": 1_000_000}], "server": null});
    let told = Command::new("curl")
        .args(["--silent", "--show-error", "--header", "ganger-shard: 1"])
        .args(["--header", "ganger-on-behalf-of: none;test;admin@*"])
        .args(["--data", &marks.to_string(), &url])
        .output()
        .context("cannot start curl")?;
    ensure!(told.status.success(), "{told:?}");
    Ok(())
}

#[test]
fn a_node_that_takes_a_shard_heeds_where_it_ended_before() -> Result<()> {
    const NAME: &str = "a_node_that_takes_a_shard_heeds";
    let Some(nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    let owner = nodes.owner("a", "1")?.context("the shard has an owner")?;
    let taker = nodes.other(&owner);
    enqueue(&nodes, &owner, 5)?;
    say_that_it_ended_later(&nodes, &taker)?;
    ensure!(known_commit(&nodes, &taker)? == 1_000_000);
    run_successfully(
        &[
            "--server",
            &format!("http://{}", nodes.setup(&owner).address),
            "shards",
            "move",
            "1",
            &taker,
        ],
        &[],
    )?;
    wait_for_refusal(&nodes, &taker)?;
    nodes.stop()
}

#[test]
fn the_next_owner_notices_a_restored_database() -> Result<()> {
    const NAME: &str = "the_next_owner_notices_a_restored_database";
    let Some(mut nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    let kept = enqueue(&nodes, "a", 5)?;
    nodes.cluster.postgres.back_up(DATABASE)?;
    let lost = enqueue(&nodes, "b", 20)?;
    let owner = nodes.owner("a", "1")?.context("the shard has an owner")?;
    let other = nodes.other(&owner);
    let newest = status(&nodes)?.1;
    wait_for("the other node is told", || {
        Ok((known_commit(&nodes, &other)? >= newest).then_some(()))
    })?;
    nodes.server(&owner).kill()?;
    nodes.cluster.postgres.restore(DATABASE)?;
    wait_for_refusal(&nodes, &other)?;
    // A node that has just started knows nothing of what was confirmed, and finds the shard closed.
    let server = nodes.setup(&owner).start()?;
    *nodes.server(&owner) = server;
    wait_for_refusal(&nodes, &owner)?;
    accept_and_go_on(&nodes, &other, &kept, &lost)?;
    nodes.stop()
}

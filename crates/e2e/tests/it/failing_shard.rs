//! A shard whose store is damaged, in a cluster: it fails on every node, and no node fails with it.

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::command::wait_for;
use ganger_e2e::http::Response;
use ganger_e2e::server::Setup;
use serde_json::json;

use crate::nodes::{Nodes, ask, drain};

/// Damages the rows of jobs of shard 2, and mends them again.
const DAMAGE: &str = "UPDATE ganger_s_2.jobs SET body = set_byte(body, length(body) - 1, 255 - get_byte(body, length(body) - 1))";

fn enqueue(setup: &Setup, shard: u32, id: &str) -> Result<Response> {
    let job = json!({"id": id, "queue": "q", "kind": "k"});
    let path = format!("/api/v1/jobs?shard={shard}");
    let sent = setup.client().request("POST", &path, &job);
    sent.map_err(|error| anyhow::anyhow!("{path}: {error:?}"))
}

#[test]
fn a_damaged_shard_goes_from_node_to_node_and_ends_none_of_them() -> Result<()> {
    const NAME: &str = "a_damaged_shard_goes_from_node_to_node";
    let Some(nodes) = Nodes::start(NAME, 2, &["a", "b"])? else {
        return Ok(());
    };
    for shard in [1, 2] {
        let sent = enqueue(nodes.setup("a"), shard, "j")?;
        ensure!(sent.status < 300, "{}", sent.to_text());
    }
    let owner = nodes.owner("a", "2")?.context("shard 2 has an owner")?;
    let other = nodes.other(&owner);
    wait_for("the row of the job", || {
        let count = nodes.cluster.sql("SELECT count(*) FROM ganger_s_2.jobs")?;
        Ok(count.contains('1').then_some(()))
    })?;
    nodes.cluster.sql(DAMAGE)?;

    // It fails at the other node, and then here, where it was served.
    drain(&nodes, &owner, &[])?;
    let has_failed = |node: &str| -> Result<Option<()>> {
        let log = nodes.setup(node).log_text();
        Ok(log.contains("the shard has failed here").then_some(()))
    };
    wait_for("the failure at the other node", || has_failed(&other))?;
    drain(&nodes, &owner, &["--undo"])?;
    wait_for("the failure at the first node", || has_failed(&owner))?;
    for node in [&owner, &other] {
        let sent = enqueue(nodes.setup(node), 1, &format!("to-{node}"))?;
        ensure!(sent.status < 300, "shard 1 is served: {}", sent.to_text());
    }
    let refused = enqueue(nodes.setup("a"), 2, "k")?;
    ensure!(refused.status == 503, "{}", refused.to_text());

    // Mended, it is served again, with what it had.
    nodes.cluster.sql(DAMAGE)?;
    let job = wait_for("shard 2", || {
        let answer = ask(nodes.setup("a"), "/api/v1/jobs/2%2Fj")?;
        Ok((answer.status == 200).then(|| answer.json()))
    })?;
    ensure!(job["state"] == "ready", "{job}");
    nodes.stop()
}

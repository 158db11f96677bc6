//! What an operator orders of a cluster, over the APIs and without access to its database.

use anyhow::{Result, anyhow, ensure};
use ganger_e2e::command::{command, run_successfully, wait_for};
use ganger_e2e::server::Setup;
use serde_json::{Value, json};

use crate::nodes::{Nodes, ask};

fn post(setup: &Setup, path: &str) -> Result<(u16, Value)> {
    let answer = setup.client().request("POST", path, &Value::Null);
    let answer = answer.map_err(|error| anyhow!("{path}: {error:?}"))?;
    Ok((answer.status, answer.json()))
}

#[test]
fn an_operator_moves_shards_and_drains_nodes() -> Result<()> {
    const NAME: &str = "an_operator_moves_shards_and_drains_nodes";
    let Some(nodes) = Nodes::start(NAME, 2, &["a", "b"])? else {
        return Ok(());
    };
    let url = format!("http://{}", nodes.setup("a").address);
    let ganger = |words: &[&str]| run_successfully(&[&["--server", &url], words].concat(), &[]);
    let wait_for_owner = |shard: &str, node: &str| {
        wait_for(node, || {
            Ok((nodes.owner("a", shard)?.as_deref() == Some(node)).then_some(()))
        })
    };
    wait_for("both nodes", || {
        let known = ask(nodes.setup("a"), "/api/v1/nodes")?.json();
        Ok((known["nodes"].as_array().map(Vec::len) == Some(2)).then_some(()))
    })?;
    let to = if nodes.owner("a", "1")?.as_deref() == Some("a") {
        "b"
    } else {
        "a"
    };
    ganger(&["shards", "move", "1", to])?;
    wait_for_owner("1", to)?;

    ganger(&["nodes", "drain", "b"])?;
    for shard in ["1", "2"] {
        wait_for_owner(shard, "a")?;
    }
    let shown = ganger(&["nodes"])?;
    ensure!(shown.contains("draining"), "{shown}");
    let (status, problem) = post(nodes.setup("b"), "/api/v1/shards/1/move?to=b")?;
    ensure!(
        (status, &problem["code"]) == (409, &json!("node_takes_no_shards")),
        "{problem}"
    );
    let (status, done) = post(nodes.setup("b"), "/api/v1/nodes/b/resume")?;
    ensure!(status == 200, "{done}");
    wait_for("node b", || {
        let moved = post(nodes.setup("a"), "/api/v1/shards/2/move?to=b")?;
        Ok((moved.0 == 200).then_some(()))
    })?;
    wait_for_owner("2", "b")?;

    for (path, code) in [
        ("/api/v1/shards/9/move?to=a", "unknown_shard"),
        ("/api/v1/shards/1/move?to=z", "node_not_found"),
        ("/api/v1/shards/1/move", "invalid_value"),
        ("/api/v1/nodes/z/drain", "node_not_found"),
    ] {
        let (_, problem) = post(nodes.setup("a"), path)?;
        ensure!(problem["code"] == code, "{path}: {problem}");
    }
    let refused = command(&["--server", &url, "nodes", "drain", "z"], &[]).output()?;
    let words = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        !refused.status.success() && words.contains("ganger nodes"),
        "{words}"
    );
    // Without a standby, what an acknowledged job survives is a crash of the database.
    let server = ask(nodes.setup("a"), "/api/v1/server")?.json();
    ensure!(server["shards"][0]["durability"] == "alone", "{server}");
    let metrics = ask(nodes.setup("a"), "/metrics")?.to_text();
    ensure!(
        metrics.contains("ganger_store_durability{shard=\"1\"} 2"),
        "{metrics}"
    );
    ensure!(
        metrics.contains("ganger_cluster_claims_total{why=\"placed\"}"),
        "{metrics}"
    );
    nodes.stop()
}

#[test]
fn a_shard_that_is_added_is_served_by_nodes_that_run() -> Result<()> {
    const NAME: &str = "a_shard_that_is_added_is_served";
    let Some(nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    run_successfully(
        &[
            "cluster",
            "add-shard",
            "--store",
            &nodes.cluster.admin_address(),
        ],
        &[],
    )?;
    // It is not listed before the next beat.
    wait_for("an owner of the new shard", || {
        Ok(nodes.owner("a", "2").ok().flatten())
    })?;
    let job = json!({"id": "j", "queue": "q", "kind": "k"});
    for node in ["a", "b"] {
        let sent = wait_for("the job", || {
            let sent = nodes
                .setup(node)
                .client()
                .request("POST", "/api/v1/jobs?shard=2", &job);
            let sent = sent.map_err(|error| anyhow!("{error:?}"))?;
            Ok((sent.status < 300).then(|| sent.json()))
        })?;
        ensure!(sent.to_string().contains("2/j"), "{sent}");
    }
    nodes.stop()
}

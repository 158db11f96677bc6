//! Nodes of a cluster that know each other by certificates with the name of the cluster.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::certificates::make_certificates;
use ganger_e2e::cluster::TestCluster;
use ganger_e2e::command::{Worker, output_text, run, run_successfully, wait_for, write_programs};
use ganger_e2e::nodes::LEASE;
use ganger_e2e::server::Server;
use ganger_e2e::skip::note_skip;
use serde_json::Value;

/// A graph whose jobs are in both shards.
const GRAPH: &str = r#"{"jobs": [
    {"name": "first", "queue": "q", "kind": "k", "shard": "1"},
    {"name": "second", "queue": "q", "kind": "k", "shard": "2", "inputs": [{"result_of": "first"}]}]}"#;

#[test]
fn nodes_know_each_other_by_the_name_of_their_cluster() -> Result<()> {
    const NAME: &str = "nodes_know_each_other_by_the_name_of_their_cluster";
    let directory = tempfile::tempdir()?;
    let authority = directory.path().join("ca");
    let wanted = [
        &["node", "test", "127.0.0.1"][..],
        &["node", "other", "127.0.0.1"],
        &["client", "box"],
    ];
    if !make_certificates(&authority, &wanted)? {
        note_skip(NAME, "certificates cannot be created here");
        return Ok(());
    }
    let Some(cluster) = TestCluster::new(NAME, 2)? else {
        return Ok(());
    };
    let file = |name: &str| authority.join(name).display().to_string();
    let start = |node: &str, certificate: &str| -> Result<(String, Server)> {
        let own = directory.path().join(node);
        fs::create_dir_all(&own)?;
        let mut setup = cluster.member(&own, node, LEASE)?;
        for (variable, ending) in [("CERT", "pem"), ("KEY", "key")] {
            let path = file(&format!("node-{certificate}.{ending}"));
            setup
                .variables
                .push((format!("GANGER_TLS_{variable}"), path));
        }
        let clients = ("GANGER_TLS_CLIENT_CA".to_owned(), file("ca.pem"));
        setup.variables.push(clients);
        Ok((format!("https://{}", setup.address), setup.spawn()?))
    };
    let own = [
        ("GANGER_CA", file("ca.pem")),
        ("GANGER_CLIENT_CERT", file("box.pem")),
        ("GANGER_CLIENT_KEY", file("box.key")),
    ];
    let own = own.each_ref().map(|(name, file)| (*name, file.as_str()));
    let (a, _node_a) = start("a", "test")?;
    let (b, node_b) = start("b", "test")?;
    let wait_for_places = || {
        wait_for("a shard on each node", || {
            let places = ["1", "2"].into_iter().zip(["a", "b"]);
            for (shard, node) in places {
                let order = ["--server", &a, "shards", "move", shard, node];
                run(&order, &own)?;
            }
            let listed = run(&["--server", &a, "--json", "shards"], &own)?;
            let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
            let owners = [0, 1].map(|shard| listed["shards"][shard]["owner"].clone());
            Ok((owners == ["a", "b"]).then_some(()))
        })
    };
    wait_for_places()?;

    // The graph is submitted through one node, the jobs of the other shard are forwarded, and the end of the first job
    // is told to the shard of the second one.
    let graph = directory.path().join("graph.json");
    fs::write(&graph, GRAPH)?;
    let graph = graph.display().to_string();
    let programs = directory.path().join("programs");
    let programs = write_programs(&programs, &[("k", "#!/bin/sh\necho 1\n")])?;
    let log = directory.path().join("worker.log");
    let both = format!("{a},{b}");
    let worker = |shard: &str| {
        let words = ["--server", &both, "--queue", "q", "--shard", shard];
        Worker::start(&programs, &log, &words, &own)
    };
    let _workers = [worker("1")?, worker("2")?];
    let waiting = [
        "--server",
        &a,
        "submit",
        &graph,
        "--wait",
        "--timeout",
        "60s",
    ];
    run_successfully(&waiting, &own)?;

    // A node of another cluster is not believed, though the same authority signed its certificate.
    drop(node_b);
    let (_, _impostor) = start("b", "other")?;
    wait_for_places()?;
    let refused = wait_for("a refusal", || {
        let list = ["--server", &a, "job", "list", "--shard", "2"];
        let listed = run(&list, &own)?;
        let words = output_text(&listed);
        Ok((!listed.status.success() && words.contains("certificate")).then_some(words))
    })
    .context("the node of another cluster answers")?;
    ensure!(
        refused.contains("ganger://shard/2 or ganger://cluster/test")
            && refused.contains("ganger://cluster/other"),
        "{refused}"
    );
    Ok(())
}

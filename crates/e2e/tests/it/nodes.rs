//! Several nodes over one PostgreSQL: killed under load, stopped and continued, stopped in order.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use ganger_e2e::cluster::TestCluster;
use ganger_e2e::command::{run_successfully, wait_for};
use ganger_e2e::http::{Client, Response};
use ganger_e2e::load::{Load, Plan};
use ganger_e2e::nodes::LEASE;
pub(crate) use ganger_e2e::nodes::{Nodes, ask, drain};
use ganger_e2e::server::{Setup, TIMEOUT};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Faults of the node that owns the shard of the load.
const CYCLES: usize = 8;

#[test]
fn nothing_acknowledged_is_lost_when_owners_are_killed_or_stand_still() -> Result<()> {
    const NAME: &str = "nothing_acknowledged_is_lost_when_owners_are_killed";
    let Some(mut nodes) = Nodes::start(NAME, 4, &["a", "b", "c"])? else {
        return Ok(());
    };
    let plan = Plan {
        seed: 7,
        first_producer: 0,
        producers: 2,
        workers: 3,
        graph_shards: 1,
        backlog_max: 100,
        every: Duration::ZERO,
    };
    // The clients keep their node, which owns the shard of the load or passes requests on.
    let load = Load::start(nodes.setup("c"), plan);
    let mut owner = nodes.owner("a", "1")?.context("shard 1 has an owner")?;
    for cycle in 0..CYCLES {
        let observer = nodes.other(&owner);
        thread::sleep(Duration::from_millis(1_000));
        let begun = Instant::now();
        let is_killed = cycle % 3 != 2;
        if is_killed {
            nodes.server(&owner).kill()?;
        } else {
            nodes.server(&owner).signal(Signal::STOP)?;
        }
        let new = nodes.wait_for_owner(&observer, "1", &owner)?;
        let fault = if is_killed { "killed" } else { "stopped" };
        eprintln!("{owner} {fault}: {new} answers after {:?}", begun.elapsed());
        if is_killed {
            let server = nodes.setup(&owner).start()?;
            *nodes.server(&owner) = server;
        } else {
            nodes.server(&owner).signal(Signal::CONT)?;
            nodes.server(&owner).wait_until_ready(TIMEOUT)?;
        }
        owner = new;
    }
    // The node of the clients may learn of the owner later than the others.
    nodes.wait_for_owner("c", "1", "")?;
    let (_, counts) = load.finish(Duration::from_secs(60))?;
    eprintln!("{counts:?}");
    ensure!(counts.completed >= 30, "too few completions: {counts:?}");
    nodes.stop()
}

#[test]
fn shards_of_a_draining_node_move_under_load_and_nothing_is_lost() -> Result<()> {
    const NAME: &str = "shards_of_a_draining_node_move_under_load";
    let Some(nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    let plan = Plan {
        seed: 8,
        first_producer: 0,
        producers: 2,
        workers: 2,
        graph_shards: 1,
        backlog_max: 100,
        every: Duration::ZERO,
    };
    let load = Load::start(nodes.setup("b"), plan);
    let mut owner = nodes.owner("a", "1")?.context("it has an owner")?;
    for _ in 0..2 {
        let other = nodes.other(&owner);
        drain(&nodes, &other, &["--undo"])?;
        drain(&nodes, &owner, &[])?;
        let begun = Instant::now();
        let new = nodes.wait_for_owner(&other, "1", &owner)?;
        eprintln!("moved from {owner} to {new} within {:?}", begun.elapsed());
        owner = new;
    }
    nodes.wait_for_owner("b", "1", "")?;
    let (_, counts) = load.finish(Duration::from_secs(60))?;
    eprintln!("{counts:?}");
    ensure!(counts.completed >= 30, "too few completions: {counts:?}");
    ensure!(
        drain(&nodes, "nobody", &[]).is_err(),
        "there is no such node"
    );
    nodes.stop()
}

#[test]
fn a_shard_that_its_new_node_does_not_take_is_served_by_its_old_one() -> Result<()> {
    const NAME: &str = "a_shard_that_its_new_node_does_not_take";
    /// Longer than the pause below and the wait of a request for an owner.
    const LEASE: &str = "9s";
    let Some(mut nodes) = Nodes::start_with(NAME, 1, &["a", "b"], LEASE)? else {
        return Ok(());
    };
    ensure!(
        nodes.owner("a", "1")?.as_deref() == Some("a"),
        "it came first"
    );
    let moves = |nodes: &Nodes| {
        let log = nodes.setup("a").log_text();
        log.matches("the shard moves to another node").count()
    };
    for attempt in 1.. {
        // It counts as alive for its whole lease, but gets no shard once it has been silent for three beats.
        let before = moves(&nodes);
        nodes.server("b").signal(Signal::STOP)?;
        drain(&nodes, "a", &[])?;
        thread::sleep(Duration::from_secs(1));
        if moves(&nodes) > before {
            break;
        }
        ensure!(attempt < 10, "the shard does not move");
        drain(&nodes, "a", &["--undo"])?;
        nodes.server("b").signal(Signal::CONT)?;
        thread::sleep(Duration::from_secs(2));
    }
    let job = json!({"id": "a", "queue": "q", "kind": "k"});
    let answer = nodes
        .setup("a")
        .client()
        .request("POST", "/api/v1/jobs", &job);
    let answer = answer.map_err(|error| anyhow!("{error:?}"))?;
    ensure!(answer.status < 300, "{}", answer.to_text());
    let log = nodes.setup("a").log_text();
    ensure!(log.contains("served here again"), "{log}");
    // It gets the shard when it is there again.
    nodes.server("b").signal(Signal::CONT)?;
    let owner = nodes.wait_for_owner("b", "1", "a")?;
    ensure!(owner == "b", "{owner}");
    let listed = ask(nodes.setup("a"), "/api/v1/jobs/a")?;
    ensure!(listed.status == 200, "{}", listed.to_text());
    nodes.stop()
}

/// Returns the metrics of nodes that lines with this prefix name.
fn metrics_after(text: &str, prefix: &str) -> BTreeSet<String> {
    let rows = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let names = rows.filter_map(|rest| rest.split([' ', '`']).next());
    let of_nodes = names.filter(|name| name.starts_with("ganger_cluster_"));
    of_nodes.map(str::to_owned).collect()
}

/// Sends a request and returns its answer later, on a thread of its own.
fn ask_later(setup: &Setup, path: &str) -> thread::JoinHandle<Option<Response>> {
    let (mut client, path) = (Client::new(setup.address, TIMEOUT), path.to_owned());
    thread::spawn(move || client.request("GET", &path, &Value::Null).ok())
}

#[test]
fn an_owner_that_stood_still_answers_nothing_that_is_out_of_date() -> Result<()> {
    const NAME: &str = "an_owner_that_stood_still_answers_nothing";
    let Some(mut nodes) = Nodes::start(NAME, 1, &["a", "b"])? else {
        return Ok(());
    };
    let old = nodes.owner("a", "1")?.context("shard 1 has an owner")?;
    let new = nodes.other(&old);
    let job = json!({"id": "j", "queue": "q", "kind": "k"});
    let sent = nodes
        .setup(&new)
        .client()
        .request("POST", "/api/v1/jobs", &job);
    ensure!(sent.is_ok_and(|sent| sent.status < 300), "it is passed on");
    let ready = ask(nodes.setup(&old), "/api/v1/jobs/count?state=ready")?;
    ensure!(ready.json()["count"] == 1, "{}", ready.to_text());

    nodes.server(&old).signal(Signal::STOP)?;
    // These wait in the socket, for an owner that has the job in memory.
    let paths = [
        "/api/v1/jobs/count?state=ready",
        "/api/v1/jobs/j",
        "/api/v1/queues/q",
        "/api/v1/events?limit=5",
    ];
    let waiting: Vec<_> = paths
        .iter()
        .cycle()
        .take(30)
        .map(|path| ask_later(nodes.setup(&old), path))
        .collect();
    nodes.wait_for_owner(&new, "1", &old)?;
    let mut client = nodes.setup(&new).client();
    let cancelled = client.request("POST", "/api/v1/jobs/j/cancel", &Value::Null);
    let cancelled = cancelled.map_err(|error| anyhow!("{error:?}"))?;
    ensure!(cancelled.status < 300, "{}", cancelled.to_text());

    nodes.server(&old).signal(Signal::CONT)?;
    let mut answered = 0;
    for answer in waiting {
        let Some(answer) = answer.join().expect("it does not panic") else {
            continue;
        };
        let text = answer.to_text();
        ensure!([200, 503].contains(&answer.status), "{text}");
        if answer.status == 200 {
            let found = answer.json();
            let is_old = found["count"] == 1
                || found["state"] == "ready"
                || found["counts"]["ready"] == 1
                || found["events"][0]["to"] == "ready";
            ensure!(!is_old, "out of date: {text}");
            answered += 1;
        }
    }
    eprintln!("{answered} of 30 were passed on to the new owner, the others were refused");
    nodes.server(&old).wait_until_ready(TIMEOUT)?;
    let ready = ask(nodes.setup(&old), "/api/v1/jobs/count?state=ready")?;
    ensure!(ready.json()["count"] == 0, "{}", ready.to_text());
    nodes.stop()
}

/// The other node stands still, and counts as alive for a minute: nobody takes the shard.
#[test]
fn a_node_stops_though_nobody_takes_its_shards() -> Result<()> {
    const NAME: &str = "a_node_stops_though_nobody_takes_its_shards";
    let Some(mut nodes) = Nodes::start_with(NAME, 1, &["a"], "60s")? else {
        return Ok(());
    };
    nodes.server("a").stop()?;
    let arguments = ["--drain-for", "2s"].map(str::to_owned);
    nodes.setup_mut("a").arguments.extend(arguments);
    nodes.start_again("a")?;
    let directory = tempfile::tempdir()?;
    let other = nodes.cluster.member(directory.path(), "b", "60s")?;
    let still = other.start()?;
    wait_for("node b", || {
        let shown = ask(nodes.setup("a"), "/api/v1/nodes")?.json();
        Ok((shown["nodes"].as_array().map(Vec::len) == Some(2)).then_some(()))
    })?;
    let job = json!({"id": "j", "queue": "q", "kind": "k"});
    let sent = nodes
        .setup("a")
        .client()
        .request("POST", "/api/v1/jobs", &job);
    ensure!(sent.is_ok_and(|sent| sent.status < 300));
    still.signal(Signal::STOP)?;
    nodes.server("a").stop()?;
    let log = nodes.setup("a").log_text();
    ensure!(log.contains("the node still has shards"), "{log}");
    still.signal(Signal::CONT)?;
    wait_for("the job at the other node", || {
        let answer = ask(&other, "/api/v1/jobs/j")?;
        Ok((answer.status == 200).then_some(()))
    })
}

#[test]
fn a_node_that_stops_in_order_gives_its_shards_away_and_all_nodes_are_listed() -> Result<()> {
    const NAME: &str = "a_node_that_stops_in_order_gives_its_shards_away";
    let Some(mut nodes) = Nodes::start(NAME, 3, &["a", "b"])? else {
        return Ok(());
    };
    let url = format!("http://{}", nodes.setup("b").address);
    let shown = run_successfully(&["--json", "--server", &url, "nodes"], &[])?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(shown["node"] == "b", "{shown}");
    let names: Vec<_> = shown["nodes"]
        .as_array()
        .context("a list")?
        .iter()
        .map(|node| &node["node"])
        .collect();
    ensure!(names == ["a", "b"], "{shown}");
    let over_http = ask(nodes.setup("b"), "/api/v1/shards")?.json();
    let shards = run_successfully(&["--json", "--server", &url, "shards"], &[])?;
    let shards: Value = serde_json::from_str(&shards)?;
    ensure!(
        shards["shards"][2]["shard"] == over_http["shards"][2]["shard"],
        "{shards}"
    );
    // The first node came alone and got all; its shards are not moved to one that has just come.
    let owner = nodes.owner("b", "1")?.context("it has an owner")?;
    ensure!(owner == "a", "{over_http}");
    let job = serde_json::json!({"kind": "k", "queue": "in-view"});
    let mut client = nodes.setup("b").client();
    let taken = client.request("POST", "/api/v1/jobs", &job);
    ensure!(taken.is_ok_and(|answer| answer.status == 201));
    let queues = ask(nodes.setup("b"), "/ui/queues")?.to_text();
    ensure!(
        queues.contains("in-view"),
        "a node without shards shows those of others: {queues}"
    );
    // Pages about a shard are those of its owner, also at a node that owns none.
    for page in [
        "",
        "queues",
        "jobs",
        "shards",
        "queues?shard=1",
        "shards?shard=3",
    ] {
        let page = format!("/ui/{page}");
        let answer = ask(nodes.setup("b"), &page)?;
        ensure!(answer.status == 200, "{page}: {}", answer.to_text());
    }
    // It owns none and knows their newest commits from the owner, which tells it once a second.
    let metrics = wait_for("the owner's commits and the database's ages", || {
        let metrics = ask(nodes.setup("b"), "/metrics")?.to_text();
        let known = metrics.contains("ganger_cluster_confirmed_commits{shard=\"1\"}")
            && !metrics.contains("ganger_cluster_oldest_transaction_age 0\n");
        Ok(known.then_some(metrics))
    })?;
    ensure!(
        metrics.contains("ganger_cluster_nodes_alive 2"),
        "{metrics}"
    );
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let documented = metrics_after(&fs::read_to_string(page)?, "| `");
    let exported = metrics_after(&metrics, "# TYPE ");
    ensure!(exported == documented, "{exported:?}, {documented:?}");

    nodes.server("a").stop()?;
    for shard in ["1", "2", "3"] {
        nodes.wait_for_owner("b", shard, "a")?;
    }
    // It left after it had handed its shards over, and the other one sees that at its next beat.
    wait_for("the node to be gone from the list", || {
        let listed = ask(nodes.setup("b"), "/api/v1/nodes")?.json();
        let listed = listed["nodes"].as_array().context("a list")?.len();
        Ok((listed == 1).then_some(()))
    })?;
    let server = nodes.setup("a").start()?;
    *nodes.server("a") = server;
    nodes.stop()
}

#[test]
fn a_node_that_cannot_be_one_is_refused_in_words() -> Result<()> {
    let Some(cluster) = TestCluster::new("a_node_that_cannot_be_one", 1)? else {
        return Ok(());
    };
    let refused = |change: &dyn Fn(&mut Setup)| -> Result<String> {
        let directory = tempfile::tempdir()?;
        let mut setup = cluster.member(directory.path(), "a", LEASE)?;
        change(&mut setup);
        let ended = setup.spawn()?.wait(TIMEOUT)?;
        ensure!(ended.code() == Some(2), "{ended:?}: {}", setup.log_text());
        Ok(setup.log_text())
    };
    let text = refused(&|setup| {
        setup.address.set_ip([0, 0, 0, 0].into());
        setup.arguments.push("--insecure".to_owned());
    })?;
    ensure!(text.contains("advertise"), "{text}");
    let text = refused(&|setup| {
        // It is the last argument.
        setup.arguments.pop();
        setup.arguments.push("1s".to_owned());
    })?;
    ensure!(text.contains("2s to 60s"), "{text}");

    let directory = tempfile::tempdir()?;
    let one = cluster.member(directory.path(), "a", LEASE)?;
    let mut first = one.start()?;
    let elsewhere = tempfile::tempdir()?;
    let same = cluster.member(elsewhere.path(), "a", LEASE)?;
    let mut second = same.start()?;
    let ended = first.wait(TIMEOUT)?;
    ensure!(ended.code() == Some(5), "{ended:?}");
    ensure!(one.log_text().contains("--node"), "{}", one.log_text());
    second.stop()
}

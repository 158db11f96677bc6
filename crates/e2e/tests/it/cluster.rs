//! Servers over PostgreSQL: killed, moved to another machine, with a database that dies, and refused in words.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use ganger_e2e::cluster::TestCluster;
use ganger_e2e::command::{output_text, run, run_successfully, wait_for};
use ganger_e2e::http::{Client, Response};
use ganger_e2e::load::{Load, Plan};
use ganger_e2e::random::Random;
use ganger_e2e::server::{Setup, TIMEOUT};
use serde_json::Value;

/// Kills of the server, after each of which it starts with another directory.
const CYCLES: u64 = 12;

#[test]
fn nothing_acknowledged_is_lost_whether_the_server_or_the_database_is_killed() -> Result<()> {
    const NAME: &str = "nothing_acknowledged_is_lost_whether_the_server_or_the_database";
    let Some(mut cluster) = TestCluster::new(NAME, 1)? else {
        return Ok(());
    };
    let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
    let first = cluster.node(directories[0].path(), "a")?;
    // The clients keep their address, as behind a balancer.
    let second = Setup {
        address: first.address,
        ..cluster.node(directories[1].path(), "b")?
    };
    let nodes = [first, second];
    let plan = Plan {
        seed: 1,
        first_producer: 0,
        producers: 2,
        workers: 3,
        graph_shards: 1,
        backlog_max: 100,
        every: Duration::ZERO,
    };
    let load = Load::start(&nodes[0], plan);
    let mut random = Random::new(1);
    for (cycle, node) in (0..CYCLES).zip(nodes.iter().cycle()) {
        let mut server = node.start()?;
        thread::sleep(Duration::from_millis(200 + random.below(600)));
        if cycle % 4 == 3 {
            cluster.postgres.kill()?;
            cluster.postgres.start_again()?;
            server.wait_until_ready(TIMEOUT)?;
            thread::sleep(Duration::from_millis(300));
        }
        server.kill()?;
    }
    let mut server = nodes[0].start()?;
    let (_, counts) = load.finish(Duration::from_secs(60))?;
    server.stop()?;
    for node in &nodes {
        node.expect_no_panic()?;
    }
    eprintln!("{counts:?}");
    ensure!(counts.completed >= 30, "too few completions: {counts:?}");
    ensure!(
        counts.leases_over_a_gap >= 2,
        "too few leases went over a restart: {counts:?}"
    );
    Ok(())
}

fn ask(client: &mut Client, method: &str, path: &str, body: &Value) -> Result<Response> {
    let answer = client.request(method, path, body);
    answer.map_err(|error| anyhow!("{method} {path}: {error:?}"))
}

#[test]
fn a_server_goes_on_when_its_database_comes_back() -> Result<()> {
    let Some(mut cluster) = TestCluster::new("a_server_goes_on_when_its_database", 2)? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let node = cluster.node(directory.path(), "a")?;
    let mut server = node.start()?;
    let mut client = node.client();
    let job = serde_json::json!({"queue": "q", "kind": "k"});
    ensure!(ask(&mut client, "POST", "/api/v1/jobs", &job)?.status < 300);
    cluster.postgres.kill()?;
    let refused = ask(&mut client, "POST", "/api/v1/jobs", &job)?;
    ensure!(refused.status == 503, "{}", refused.to_text());
    let ready = ask(&mut client, "GET", "/readyz", &Value::Null)?;
    ensure!(ready.status == 503, "{}", ready.to_text());
    ensure!(
        ready.json()["status"] == "unreachable",
        "{}",
        ready.to_text()
    );
    cluster.postgres.start_again()?;
    server.wait_until_ready(TIMEOUT)?;
    ensure!(ask(&mut client, "POST", "/api/v1/jobs", &job)?.status < 300);
    server.stop()?;
    node.expect_no_panic()
}

#[test]
fn a_new_owner_shuts_the_old_one_out_which_says_so() -> Result<()> {
    let Some(cluster) = TestCluster::new("a_new_owner_shuts_the_old_one_out", 1)? else {
        return Ok(());
    };
    let directories = [tempfile::tempdir()?, tempfile::tempdir()?];
    let old = cluster.node(directories[0].path(), "old")?;
    let new = cluster.node(directories[1].path(), "new")?;
    let mut old_server = old.start()?;
    let mut new_server = new.start()?;
    let job = serde_json::json!({"queue": "q", "kind": "k"});
    // It ends at once, perhaps before its answer has gone out.
    if let Ok(refused) = ask(&mut old.client(), "POST", "/api/v1/jobs", &job) {
        ensure!(refused.status == 503, "{}", refused.to_text());
    }
    let ended = old_server.wait(TIMEOUT)?;
    ensure!(ended.code() == Some(5), "{ended:?}");
    ensure!(
        old.log_text().contains("another process owns"),
        "{}",
        old.log_text()
    );
    ensure!(ask(&mut new.client(), "POST", "/api/v1/jobs", &job)?.status < 300);
    new_server.stop()?;

    let (store, password) = (cluster.address(), cluster.password_file());
    let shown = run_successfully(
        &[
            "--json",
            "cluster",
            "status",
            "--store",
            &store,
            "--store-password-file",
            &password,
        ],
        &[],
    )?;
    let shown: Value = serde_json::from_str(&shown)?;
    ensure!(
        shown["cluster"] == "test" && shown["durability"] == "alone",
        "{shown}"
    );
    ensure!(shown["shards"][0]["owner"] == "new", "{shown}");
    ensure!(shown["shards"][0]["epoch"] == 2, "{shown}");
    Ok(())
}

/// Starts a node that must be refused with exit code `code`; returns what it logged.
fn refused(cluster: &TestCluster, code: i32, change: impl FnOnce(&mut Setup)) -> Result<String> {
    let directory = tempfile::tempdir()?;
    let mut node = cluster.node(directory.path(), "a")?;
    change(&mut node);
    let ended = node.spawn()?.wait(TIMEOUT)?;
    let text = node.log_text();
    ensure!(ended.code() == Some(code), "{ended:?}: {text}");
    ensure!(!text.contains("a secret of nodes"), "{text}");
    Ok(text)
}

fn expect(text: &str, words: &[&str]) -> Result<()> {
    for word in words {
        ensure!(text.contains(word), "{word:?} is not in {text}");
    }
    Ok(())
}

#[test]
fn a_cluster_that_cannot_be_used_is_refused_in_words() -> Result<()> {
    const NAME: &str = "a_cluster_that_cannot_be_used_is_refused_in_words";
    let Some(cluster) = TestCluster::without_tables(NAME, "fsync = off\n")? else {
        return Ok(());
    };
    let as_admin = |node: &mut Setup| node.arguments[1] = cluster.admin_address();
    let text = refused(&cluster, 3, as_admin)?;
    expect(&text, &["not prepared", "ganger cluster init"])?;
    cluster.init(1)?;
    // What is there is kept.
    cluster.init(2)?;

    let text = refused(&cluster, 3, |_| {})?;
    expect(&text, &["fsync is 'off'", "--store-loss-window"])?;
    let text = refused(&cluster, 2, |node| {
        node.arguments
            .extend(["--cluster".to_owned(), "other".to_owned()]);
    })?;
    expect(&text, &["has the cluster \"test\", not \"other\""])?;
    let text = refused(&cluster, 2, |node| {
        node.arguments[1] = "postgres://ganger_node:geheim@127.0.0.1/ganger".to_owned();
    })?;
    expect(&text, &["GANGER_STORE_PASSWORD"])?;
    ensure!(!text.contains("geheim"), "{text}");
    let text = refused(&cluster, 3, |node| {
        "wrong".clone_into(&mut node.variables[0].1);
    })?;
    expect(&text, &["password"])?;
    cluster.sql("CREATE ROLE somebody LOGIN PASSWORD 'a secret of nodes'")?;
    let text = refused(&cluster, 3, |node| {
        node.arguments[1] = node.arguments[1].replace("ganger_node", "somebody");
    })?;
    expect(&text, &["connect as ganger_node"])?;

    cluster.sql("UPDATE ganger.cluster SET format = 2")?;
    expect(&refused(&cluster, 3, |_| {})?, &["use a newer ganger"])?;
    cluster.sql("UPDATE ganger.cluster SET format = 0")?;
    expect(&refused(&cluster, 3, |_| {})?, &["ganger cluster finalize"])?;
    let store = cluster.admin_address();
    let migrated = run(&["cluster", "migrate", "--store", &store], &[])?;
    ensure!(migrated.status.code() == Some(1), "{migrated:?}");
    cluster.sql("UPDATE ganger.cluster SET format = 1")?;
    run_successfully(&["cluster", "migrate", "--store", &store], &[])?;
    let finalised = run(&["cluster", "finalize", "--store", &store], &[])?;
    expect(
        &output_text(&finalised),
        &["no node lives", "start the nodes first"],
    )?;
    let renamed = run(
        &["cluster", "init", "--store", &store, "--cluster", "other"],
        &[],
    )?;
    ensure!(renamed.status.code() == Some(1), "{renamed:?}");
    Ok(())
}

/// The turns of a shard under load are records of the log. Written into the rows at once, each takes several times as long,
/// and rows of jobs that are done soon are written in vain.
#[test]
fn turns_under_load_go_through_the_log() -> Result<()> {
    const NAME: &str = "turns_under_load_go_through_the_log";
    let Some(cluster) = TestCluster::new(NAME, 1)? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let node = cluster.node(directory.path(), "a")?;
    let mut server = node.start()?;
    let (address, scratch) = (
        node.address.to_string(),
        directory.path().display().to_string(),
    );
    let attached = [
        "bench", "--attach", "--server", &address, "--apis", "streams",
    ];
    let load = [
        "--loads",
        "lives",
        "--connections",
        "16",
        "--batches",
        "256",
    ];
    let rest = ["--time", "1s", "--dir", &scratch];
    run_successfully(&[&attached[..], &load, &rest].concat(), &[])?;
    let metrics = ask(&mut node.client(), "GET", "/metrics", &Value::Null)?.to_text();
    let name = "ganger_store_commits_too_large_total{shard=\"1\"} ";
    let too_large = metrics.lines().find_map(|line| line.strip_prefix(name));
    ensure!(
        too_large == Some("0"),
        "{too_large:?} commits were too large for the log"
    );
    server.stop()?;
    Ok(())
}

/// Makes every commit of the database wait for a standby of this name; for none if it is empty.
fn wait_for_standby(cluster: &TestCluster, name: &str) -> Result<()> {
    cluster.sql(&format!(
        "ALTER SYSTEM SET synchronous_standby_names = '{name}'"
    ))?;
    cluster.sql("SELECT pg_reload_conf()")?;
    Ok(())
}

#[test]
fn a_missing_standby_is_named_new_work_is_refused_and_jobs_can_be_read() -> Result<()> {
    let Some(cluster) = TestCluster::new("a_missing_standby_is_named_new_work", 1)? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let node = cluster.node(directory.path(), "a")?;
    let mut server = node.start()?;
    let mut client = node.client();
    let job = |id: &str| serde_json::json!({"kind": "k", "id": id});
    let path = "/api/v1/jobs";
    ensure!(ask(&mut client, "POST", path, &job("before"))?.status == 201);
    wait_for_standby(&cluster, "nobody")?;
    // This one waits, as nobody knows yet that it will.
    let mut other = node.client();
    let waiting = thread::spawn(move || ask(&mut other, "POST", path, &job("during")));
    let null = Value::Null;
    let unready = wait_for("the missing standby to be noticed", || {
        let answer = ask(&mut client, "GET", "/readyz", &null)?;
        Ok((answer.status != 200).then(|| answer.to_text()))
    })?;
    ensure!(unready.contains("unreachable"), "{unready}");
    let shown = ask(&mut client, "GET", "/api/v1/server", &null)?.to_text();
    ensure!(shown.contains("synchronous standby"), "{shown}");
    let metrics = ask(&mut client, "GET", "/metrics", &null)?.to_text();
    ensure!(
        metrics.contains("ganger_store_held_up{shard=\"1\"} 1"),
        "{metrics}"
    );
    let refused = ask(&mut client, "POST", path, &job("refused"))?;
    let text = refused.to_text();
    ensure!(
        refused.status == 503 && text.contains("synchronous standby"),
        "{text}"
    );
    let read = ask(&mut client, "GET", "/api/v1/jobs/before", &null)?;
    ensure!(read.status == 200, "jobs can be read: {}", read.to_text());
    let why = ask(&mut client, "GET", "/api/v1/jobs/before/why", &null)?;
    let reason = why.json()["reasons"][0]["reason"] == "store_held_up";
    ensure!(why.status == 200 && reason, "{}", why.to_text());
    let url = format!("http://{}", node.address);
    let why = run_successfully(&["--server", &url, "job", "why", "before"], &[])?;
    ensure!(why.contains("synchronous standby"), "{why}");
    // What is said of the queue would depend on the job that waits for its commit.
    let why = ask(&mut client, "GET", "/api/v1/queues/default/why", &null)?.to_text();
    ensure!(
        why.contains("unavailable") && why.contains("synchronous standby"),
        "{why}"
    );
    wait_for_standby(&cluster, "")?;
    let taken = waiting.join().expect("no panic")?;
    ensure!(
        taken.status == 201,
        "it goes on by itself: {}",
        taken.to_text()
    );
    server.wait_until_ready(TIMEOUT)?;
    ensure!(ask(&mut client, "POST", path, &job("after"))?.status == 201);
    let metrics = ask(&mut client, "GET", "/metrics", &null)?.to_text();
    ensure!(
        metrics.contains("ganger_store_held_up{shard=\"1\"} 0"),
        "{metrics}"
    );
    let refused = ask(&mut client, "GET", "/api/v1/jobs/refused", &null)?;
    ensure!(refused.status == 404, "what was refused was not taken");
    server.stop()?;
    node.expect_no_panic()
}

//! The store of one machine taken into a cluster, and back: everything is there, and leases go on.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, anyhow, ensure};
use ganger_e2e::cluster::TestCluster;
use ganger_e2e::command::{output_text, run, run_successfully};
use ganger_e2e::http::Client;
use ganger_e2e::ports::free_address;
use ganger_e2e::redis::LineClient;
use ganger_e2e::server::{Setup, TIMEOUT};
use serde_json::{Value, json};

/// Number of jobs with results, more than one batch of rows.
const FINISHED: usize = 1_500;

/// A client of the HTTP API.
struct Api(Client);

impl Api {
    fn new(setup: &Setup) -> Self {
        Self(setup.client())
    }

    fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.0.request(method, &format!("/api/v1/{path}"), body);
        let answer = answer.map_err(|error| anyhow!("{path}: {error:?}"))?;
        ensure!(answer.status < 300, "{path}: {}", answer.to_text());
        Ok(answer.json())
    }

    fn get(&mut self, path: &str) -> Result<Value> {
        self.call("GET", path, &Value::Null)
    }

    fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        self.call("POST", path, body)
    }
}

/// Fills a server with jobs in all states, keys and settings; returns the lease that is held.
fn fill(api: &mut Api, resp: SocketAddr) -> Result<Value> {
    let jobs: Vec<_> = (0..FINISHED)
        .map(|number| json!({"id": format!("done-{number}"), "queue": "done", "kind": "k"}))
        .collect();
    api.post("graphs", &json!({ "jobs": jobs }))?;
    let lease =
        json!({"queues": [{"queue": "done"}], "worker": "w", "max": 500, "lease_for": "10m"});
    let mut done = 0;
    while done < FINISHED {
        let leased = api.post("leases", &lease)?;
        for job in leased["jobs"].as_array().context("a list")? {
            let number = job["id"].clone();
            let report = json!({"job": job["id"], "token": job["token"], "result": number});
            api.post("leases/complete", &report)?;
            done += 1;
        }
    }
    api.call("PUT", "queues/mail", &json!({"running_max": 3}))?;
    let payload = json!({"text": "x".repeat(50_000)});
    api.post("jobs", &json!({"id": "ready", "queue": "mail", "kind": "k", "payload": payload, "labels": {"tenant": "a"}}))?;
    api.post(
        "jobs",
        &json!({"id": "later", "queue": "mail", "kind": "k", "delay": "1h"}),
    )?;
    api.post(
        "jobs",
        &json!({"id": "behind", "queue": "mail", "kind": "k", "after": ["ready"]}),
    )?;
    api.post(
        "jobs",
        &json!({"id": "failed", "queue": "bad", "kind": "k"}),
    )?;
    let lease = json!({"queues": [{"queue": "bad"}], "worker": "w"});
    let held = api.post("leases", &lease)?["jobs"][0].clone();
    let report =
        json!({"job": "failed", "token": held["token"], "message": "no", "permanent": true});
    api.post("leases/fail", &report)?;
    let schedule = json!({"cron": "0 3 * * *", "kind": "report", "queue": "reports"});
    api.call("PUT", "schedules/nightly", &schedule)?;
    api.post("jobs", &json!({"id": "held", "queue": "held", "kind": "k"}))?;
    let lease = json!({"queues": [{"queue": "held"}], "worker": "w", "lease_for": "10m"});
    let held = api.post("leases", &lease)?["jobs"][0].clone();
    let report = json!({"job": "held", "token": held["token"], "offset": 0, "text": "half done\n"});
    api.post("leases/log", &report)?;
    let mut redis = LineClient::new(resp)?;
    ensure!(redis.call("RPUSH list a b c")? == ":3");
    ensure!(redis.call("SET key value")? == "+OK");
    Ok(held)
}

/// Returns a document without the times that a pause of all servers moves on: those that are still to come.
fn without_times(mut document: Value) -> Value {
    match &mut document {
        Value::Object(fields) => {
            for name in ["run_at", "expires_at", "next_at", "scanned"] {
                fields.remove(name);
            }
            for value in fields.values_mut() {
                *value = without_times(value.take());
            }
        }
        Value::Array(values) => {
            for value in values {
                *value = without_times(value.take());
            }
        }
        _ => {}
    }
    document
}

/// Returns the lines in which two documents differ.
fn difference(before: &Value, after: &Value) -> String {
    let (before, after) = (format!("{before:#}"), format!("{after:#}"));
    let pairs = before.lines().zip(after.lines());
    let differing = pairs.filter(|(before, after)| before != after);
    let lines = differing.map(|(before, after)| format!("{before} -> {after}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// What users see of the jobs, as documents.
fn documents(api: &mut Api) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for path in [
        "jobs/ready",
        "jobs/ready/payload",
        "jobs/later",
        "jobs/behind",
        "jobs/failed",
        "jobs/held",
        "jobs/held/log",
        "jobs/done-0",
        "jobs/done-0/result",
        "jobs/done-1499",
        "queues/mail",
        "schedules/nightly",
        "jobs?queue=done&limit=100",
        "jobs?label=tenant=a",
        "jobs/count?state=succeeded",
    ] {
        let mut document = api.get(path).with_context(|| path.to_owned())?;
        if path == "queues/mail" {
            // Ages and rates are of the moment.
            document = document["settings"].clone();
            ensure!(document.is_object(), "a queue has settings");
        }
        all.push(json!({ "path": path, "document": without_times(document) }));
    }
    Ok(all)
}

#[test]
fn a_store_of_one_machine_moves_into_a_cluster_and_back_with_everything_in_it() -> Result<()> {
    const NAME: &str = "a_store_of_one_machine_moves_into_a_cluster";
    let Some(cluster) = TestCluster::new(NAME, 1)? else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let mut one = Setup::in_directory(directory.path())?;
    let resp = free_address()?;
    let redis = ["--resp".to_owned(), resp.to_string()];
    one.arguments.extend(redis.clone());
    let mut server = one.start()?;
    let held = fill(&mut Api::new(&one), resp)?;
    let before = documents(&mut Api::new(&one))?;
    let (store, file) = (cluster.admin_address(), one.store.display().to_string());
    let import = |file: &str| {
        let arguments = ["cluster", "import", file, "--store", &store];
        run(&arguments, &[])
    };
    let refused = import(&file)?;
    ensure!(!refused.status.success(), "the server has it open");
    server.stop()?;
    let refused = import("nothing.db")?;
    ensure!(
        output_text(&refused).contains("no such file"),
        "{}",
        output_text(&refused)
    );

    // A node that has the empty shard open would go on with what it has read of it.
    let early = tempfile::tempdir()?;
    let mut node = cluster.member(early.path(), "early", "2s")?.spawn()?;
    node.wait_until_ready(TIMEOUT)?;
    let refused = import(&file)?;
    ensure!(
        output_text(&refused).contains("is open in node early"),
        "{}",
        output_text(&refused)
    );
    node.stop()?;

    let arguments = ["cluster", "import", &file, "--store", &store];
    let told = run_successfully(&arguments, &[])?;
    eprintln!("{told}");
    let again = import(&file)?;
    ensure!(
        output_text(&again).contains("has been used"),
        "{}",
        output_text(&again)
    );

    let elsewhere = tempfile::tempdir()?;
    let mut node = cluster.member(elsewhere.path(), "a", "2s")?;
    node.arguments.extend(redis);
    let mut server = node.spawn()?;
    server.wait_until_ready(TIMEOUT)?;
    let mut api = Api::new(&node);
    let after = documents(&mut api)?;
    for (before, after) in before.iter().zip(&after) {
        let path = &before["path"];
        ensure!(before == after, "{path}: {}", difference(before, after));
    }
    // The worker reports to the new owner with its old token, and what waits goes on.
    let report = json!({"job": "held", "token": held["token"], "result": "done"});
    api.post("leases/complete", &report)?;
    let lease = json!({"queues": [{"queue": "mail"}], "worker": "w"});
    let job = api.post("leases", &lease)?["jobs"][0].clone();
    ensure!(job["id"] == "ready", "{job}");
    api.post(
        "leases/complete",
        &json!({"job": "ready", "token": job["token"]}),
    )?;
    ensure!(api.get("jobs/behind")?["state"] == "ready");
    let job = api.post("jobs", &json!({"queue": "mail", "kind": "k"}))?;
    ensure!(job["id"].is_string(), "{job}");
    let mut redis = LineClient::new(resp)?;
    ensure!(redis.call("LLEN list")? == ":3");
    ensure!(redis.call("GET key")? == "$5");
    let before = documents(&mut api)?;
    server.stop()?;
    node.expect_no_panic()?;

    // And back.
    let mut one = Setup::in_directory(elsewhere.path())?;
    one.arguments = node.arguments[node.arguments.len() - 2..].to_vec();
    let file = one.store.display().to_string();
    let arguments = ["cluster", "export", "1", &file, "--store", &store];
    eprintln!("{}", run_successfully(&arguments, &[])?);
    let again = run(
        &["cluster", "export", "1", "other.db", "--store", &store],
        &[],
    )?;
    ensure!(
        output_text(&again).contains("exported"),
        "{}",
        output_text(&again)
    );
    let mut server = one.start()?;
    let after = documents(&mut Api::new(&one))?;
    for (before, after) in before.iter().zip(&after) {
        let path = &before["path"];
        ensure!(before == after, "{path}: {}", difference(before, after));
    }
    let mut redis = LineClient::new(resp)?;
    ensure!(redis.call("LLEN list")? == ":3");
    server.stop()?;
    one.check()
}

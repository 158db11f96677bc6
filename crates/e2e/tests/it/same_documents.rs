//! Resources are the same documents over HTTP and with `--json` on the command line.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::command::{run_successfully, wait_for};
use ganger_e2e::redis::TestBed;
use ganger_e2e::server::Setup;
use serde_json::{Value, json};

/// Runs a command with `--json` and returns its document.
fn printed(url: &str, arguments: &[&str]) -> Result<Value> {
    let text = run_successfully(&[&["--json", "--server", url], arguments].concat(), &[])?;
    serde_json::from_str(&text).with_context(|| text)
}

fn expect_same(what: &str, over_http: &Value, printed: &Value) -> Result<()> {
    ensure!(
        over_http == printed,
        "{what} over HTTP\n{over_http:#}\nand from the command line\n{printed:#}"
    );
    Ok(())
}

/// Enqueues jobs in every state, with as many fields as possible; returns their ids.
fn enqueue(api: &mut Api) -> Result<Vec<&'static str>> {
    api.expect("PUT", "queues/paused", &json!({ "paused": true }))?;
    let everything = json!({
        "id": "ready", "name": "all", "queue": "paused", "kind": "k", "payload": {"a": [1, null]}, "priority": -3,
        "deadline": "2100-01-01T00:00:00Z", "timeout": "1h30m", "tags": ["x", "y"], "labels": {"k": "v", "a": "b"},
        "tracked": true, "unique": {"key": "u", "window": "1h"},
        "retry": {"max": 7, "backoff": ["1s", "1m"], "jitter_percent": 5, "lease_expirations_max": 2},
    });
    for job in [
        everything,
        json!({"id": "scheduled", "kind": "k", "run_at": "2100-01-01T00:00:00.5Z", "retry": {"backoff": "2s"}}),
        json!({"id": "succeeded", "kind": "k", "queue": "work", "retry": {"backoff": {"base": "1s", "cap": "1m"}}}),
        json!({"id": "failed", "kind": "k", "queue": "work", "retry": {"max": 0}}),
        json!({"id": "released", "kind": "k", "queue": "work"}),
        json!({"id": "running", "kind": "k", "queue": "work"}),
        json!({"id": "cancelled", "kind": "k", "queue": "paused"}),
        json!({"id": "blocked", "kind": "k", "inputs": [{"value": 1}, {"result_of_job": "running"}], "after": ["ready"]}),
    ] {
        api.expect("POST", "jobs", &job)?;
    }
    let lease = json!({"worker": "w", "queues": ["work"], "max": 10, "lease_for": "1h"});
    let leased = api.expect("POST", "leases", &lease)?;
    let jobs = leased["jobs"]
        .as_array()
        .context("the response has no list of jobs")?
        .clone();
    for job in &jobs {
        let report = |more: Value| {
            let mut report = json!({"job": job["id"], "token": job["token"]});
            let fields = report.as_object_mut().expect("an object");
            fields.extend(more.as_object().expect("an object").clone());
            report
        };
        match job["id"].as_str() {
            Some("succeeded") => api.expect(
                "POST",
                "leases/complete",
                &report(json!({"result": {"r": 1}})),
            )?,
            Some("failed") => {
                let fields = json!({"group": "g", "message": "no\nluck", "permanent": true});
                api.expect("POST", "leases/fail", &report(fields))?
            }
            Some("released") => {
                let fields = json!({"reason": "later", "delay": "1h", "counted": true});
                api.expect("POST", "leases/release", &report(fields))?
            }
            _ => {
                let progress = json!({"fraction": 0.25, "message": "a quarter"});
                api.expect(
                    "POST",
                    "leases/renew",
                    &report(json!({"progress": progress})),
                )?
            }
        };
    }
    api.expect(
        "POST",
        "jobs/cancelled/cancel",
        &json!({"reason": "not wanted"}),
    )?;
    api.expect(
        "PATCH",
        "jobs/ready",
        &json!({"note": {"text": "looked at", "data": {"by": "me"}}}),
    )?;
    Ok(vec![
        "ready",
        "scheduled",
        "succeeded",
        "failed",
        "running",
        "cancelled",
        "blocked",
    ])
}

#[test]
fn jobs_reasons_and_queues_are_the_same_documents_over_http_and_from_the_command_line() -> Result<()>
{
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    for id in enqueue(&mut api)? {
        let over_http = api.expect("GET", &format!("jobs/{id}"), &Value::Null)?;
        ensure!(over_http["state"] == id, "{over_http:#}");
        expect_same(id, &over_http, &printed(&url, &["job", "get", id])?)?;
        let over_http = api.expect("GET", &format!("jobs/{id}/why"), &Value::Null)?;
        let printed = printed(&url, &["job", "why", id])?;
        expect_same(id, &without_times(over_http), &without_times(printed))?;
    }
    for queue in ["paused", "work"] {
        let over_http = api.expect("GET", &format!("queues/{queue}"), &Value::Null)?;
        let printed = printed(&url, &["queue", "get", queue])?;
        expect_same(queue, &without_times(over_http), &without_times(printed))?;
    }
    server.stop()
}

/// Runs a command with `--json` and returns its documents, one per line.
fn printed_lines(url: &str, arguments: &[&str]) -> Result<Vec<Value>> {
    let text = run_successfully(&[&["--json", "--server", url], arguments].concat(), &[])?;
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect()
}

#[test]
fn workers_and_statistics_are_the_same_documents() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    enqueue(&mut api)?;
    let over_http = api.expect("GET", "workers", &Value::Null)?;
    let workers = over_http["workers"]
        .as_array()
        .context("the response has no list of workers")?;
    ensure!(workers[0]["holds"][0]["job"] == "running", "{over_http:#}");
    let printed = printed_lines(&url, &["workers"])?;
    expect_same("workers", &json!(workers), &json!(printed))?;
    let over_http = api.expect("GET", "stats?queue=work", &Value::Null)?;
    ensure!(over_http["running"]["count"] == 1, "{over_http:#}");
    ensure!(
        over_http["running"]["histogram"][0]["count"] == 1,
        "{over_http:#}"
    );
    let all = printed_lines(&url, &["stats", "work"])?;
    expect_same("statistics", &json!([over_http]), &all[0]["statistics"])?;
    server.stop()
}

/// Sorts the jobs of a graph by id, because HTTP and gRPC return them in different orders.
fn by_id(mut graph: Value) -> Value {
    let jobs = graph["jobs"].as_array_mut().expect("a list of jobs");
    jobs.sort_by_key(|job| job["id"].to_string());
    graph
}

#[test]
fn inputs_graphs_submissions_and_dry_runs_are_the_same_documents() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    enqueue(&mut api)?;

    let over_http = api.expect("GET", "jobs/blocked/inputs", &Value::Null)?;
    ensure!(over_http["inputs"][1]["job"] == "running", "{over_http:#}");
    let printed = Value::from(printed_lines(&url, &["job", "inputs", "blocked"])?);
    expect_same("inputs", &over_http["inputs"], &printed)?;

    let over_http = api.expect("GET", "jobs/blocked/graph", &Value::Null)?;
    let printed = self::printed(&url, &["job", "graph", "blocked"])?;
    ensure!(over_http["edges"][0]["position"] == 1, "{over_http:#}");
    ensure!(
        over_http["edges"][1]["carries_data"] == false,
        "{over_http:#}"
    );
    expect_same("the graph", &by_id(over_http), &by_id(printed))?;

    let filter = json!({"filter": {"queue": "paused"}});
    let mut over_http = api.expect("POST", "jobs/cancel?dry_run=true", &filter)?;
    let arguments = ["job", "cancel", "--queue", "paused", "--dry-run"];
    let mut printed = self::printed(&url, &arguments)?;
    ensure!(over_http["by_state"]["ready"] == 1, "{over_http:#}");
    for document in [&mut over_http, &mut printed] {
        ensure!(document["as_of"].take().is_string(), "{document:#}");
    }
    expect_same("the dry run", &over_http, &printed)?;

    let graph = directory.path().join("graph.json");
    let jobs = json!({"idempotency_key": "g", "jobs": [{"name": "a", "kind": "k"}, {"name": "b", "kind": "k"}]});
    std::fs::write(&graph, jobs.to_string())?;
    api.expect("POST", "graphs", &jobs)?;
    let over_http = api.expect("POST", "graphs", &jobs)?;
    ensure!(over_http["repeat"] == true, "{over_http:#}");
    let path = graph.to_str().context("the path is not UTF-8")?;
    let printed = self::printed(&url, &["submit", path])?;
    expect_same("the submission", &over_http, &printed)?;
    server.stop()
}

/// Reads the first `count` events over HTTP.
fn streamed(address: SocketAddr, count: usize) -> Result<Vec<Value>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let head = format!("GET /api/v1/events?after=0 HTTP/1.1\r\nhost: {address}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut events = Vec::new();
    for line in BufReader::new(stream).lines() {
        if let Some(data) = line?.strip_prefix("data: ") {
            events.push(serde_json::from_str(data)?);
        }
        if events.len() == count {
            break;
        }
    }
    Ok(events)
}

#[test]
fn events_are_the_same_documents() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    enqueue(&mut api)?;
    api.expect("PUT", "queues/paused", &json!({ "paused": false }))?;
    api.expect("PUT", "schedules/s", &json!({"every": "1h", "kind": "k"}))?;
    api.expect("DELETE", "jobs/cancelled", &Value::Null)?;
    let printed = printed_lines(&url, &["events"])?;
    let kinds: BTreeSet<&str> = printed
        .iter()
        .filter_map(|event| event["event"].as_str())
        .collect();
    let expected = [
        "job_moved",
        "job_progressed",
        "job_removed",
        "queue_changed",
        "schedule_changed",
        "worker_seen",
    ];
    ensure!(kinds.into_iter().eq(expected), "{printed:?}");
    let over_http = streamed(setup.address, printed.len())?;
    expect_same("events", &json!(over_http), &json!(printed))?;
    server.stop()
}

#[test]
fn schedules_are_the_same_documents() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    let everything = json!({
        "every": "1h30m", "first_at": "2100-01-01T00:00:00.25Z", "catch_up": "all", "catch_up_max": 3, "overlap": "skip",
        "queue": "paused", "kind": "k", "payload": {"a": [1.0, null]}, "priority": -3, "timeout": "1m",
        "tags": ["x", "y"], "labels": {"k": "v", "a": "b"}, "retry": {"max": 7, "backoff": ["1s", "1m"]},
    });
    let schedules = [
        ("all", everything),
        (
            "bytes",
            json!({"every": "1h", "kind": "k", "payload_base64": "/w=="}),
        ),
        (
            "cron",
            json!({"cron": "30 3 * * *", "time_zone": "Europe/Rome", "kind": "k", "catch_up": "all"}),
        ),
        (
            "paused",
            json!({"cron": "0 0 * * *", "kind": "k", "paused": true, "catch_up": "none"}),
        ),
    ];
    for (id, schedule) in &schedules {
        api.expect("PUT", &format!("schedules/{id}"), schedule)?;
    }
    let list = api.expect("GET", "schedules", &Value::Null)?;
    let listed = Value::from(printed_lines(&url, &["schedule", "list"])?);
    expect_same("schedules", &list["schedules"], &listed)?;
    for (id, _) in &schedules {
        let over_http = api.expect("GET", &format!("schedules/{id}"), &Value::Null)?;
        expect_same(id, &over_http, &printed(&url, &["schedule", "get", id])?)?;
        // The command reads the schedule and puts it again unchanged.
        let paused = over_http["paused"] == true;
        let verb = if paused { "pause" } else { "resume" };
        expect_same(id, &over_http, &printed(&url, &["schedule", verb, id])?)?;
        let times = api.expect("GET", &format!("schedules/{id}/preview"), &Value::Null)?;
        let next = Value::from(printed_lines(&url, &["schedule", "next", id])?);
        expect_same(id, &times["times"], &next)?;
    }
    let shown = &list["schedules"];
    ensure!(shown[2]["catch_up_max"] == 10_000, "{shown:#}");
    ensure!(shown[2]["next_local"].is_string(), "{shown:#}");
    server.stop()
}

/// Removes what changes from one request to the next.
fn without_ages(mut document: Value) -> Value {
    if let Some(attempts) = document["attempts"].as_array_mut() {
        for attempt in attempts {
            if attempt["ended_at"].is_null() {
                attempt["ran_seconds"] = Value::Null;
            }
        }
    }
    document
}

#[test]
fn series_names_attempts_and_what_waits_are_the_same_documents() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    enqueue(&mut api)?;
    for (path, command) in [
        ("queues/paused/why", &["queue", "why", "paused"][..]),
        ("jobs/failed/attempts", &["job", "attempts", "failed"]),
        ("jobs/running/attempts", &["job", "attempts", "running"]),
        ("names?of=queue&limit=100", &["names", "queue"]),
        ("names?of=kind&prefix=k&limit=100", &["names", "kind", "k"]),
        ("whoami", &["whoami"]),
        (
            "latency?queue=work&quantiles=0.5,1",
            &["latency", "--queue", "work", "--quantiles", "0.5,1"],
        ),
        (
            "series?from=-23h&queue=work&metrics=started,failed",
            &[
                "series",
                "--since",
                "-23h",
                "--queue",
                "work",
                "--metrics",
                "started,failed",
            ],
        ),
    ] {
        let over_http = api.expect("GET", path, &Value::Null)?;
        ensure!(
            over_http.as_object().is_some_and(|it| !it.is_empty()),
            "{path}: {over_http:#}"
        );
        let printed = printed(&url, command)?;
        if path.starts_with("series") {
            // A minute may have passed between the two: the last values agree as far as both have them.
            ensure!(
                over_http["step_seconds"] == printed["step_seconds"],
                "{printed:#}"
            );
            let names = |document: &Value| {
                let lines = document["series"].as_array().cloned().unwrap_or_default();
                let names = lines.iter().map(|line| line["metric"].clone());
                names.collect::<Vec<_>>()
            };
            ensure!(names(&over_http) == ["started", "failed"], "{over_http:#}");
            ensure!(names(&over_http) == names(&printed), "{printed:#}");
            continue;
        }
        expect_same(path, &without_ages(over_http), &without_ages(printed))?;
    }
    for (path, list, command) in [
        ("kinds", "kinds", &["kinds"][..]),
        ("labels", "labels", &["labels"]),
        ("labels?key=k", "labels", &["labels", "k"]),
        ("tags", "tags", &["tags"]),
        ("failures", "groups", &["failures", "list"]),
        ("namespaces", "namespaces", &["namespace", "list"]),
    ] {
        let over_http = api.expect("GET", path, &Value::Null)?;
        let entries = over_http[list].as_array().context("there is no list")?;
        ensure!(!entries.is_empty(), "{path}: {over_http:#}");
        let printed = Value::from(printed_lines(&url, command)?);
        expect_same(path, &over_http[list], &printed)?;
    }
    let over_http = api.expect("GET", "queues/work?effective=true", &Value::Null)?;
    let printed = printed(&url, &["queue", "get", "work", "--effective"])?;
    ensure!(
        over_http["effective"]["paused"]["from"] == "default",
        "{over_http:#}"
    );
    expect_same("settings", &over_http["effective"], &printed["effective"])?;
    let short = api.expect("GET", "jobs?fields=summary&state=failed", &Value::Null)?;
    let printed = Value::from(printed_lines(
        &url,
        &["job", "list", "--state", "failed", "--summary"],
    )?);
    expect_same("summaries", &short["jobs"], &printed)?;
    server.stop()
}

#[test]
fn lists_of_all_shards_are_the_same_documents() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut setup = Setup::in_directory(directory.path())?;
    setup.arguments = ["--shards", "2"].map(str::to_owned).to_vec();
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    for (shard, tags) in [
        ("1", json!(["a"])),
        ("2", json!(["a", "b"])),
        ("1", json!(["a", "b"])),
    ] {
        let job = json!({"kind": "k", "shard": shard, "tags": tags});
        api.expect("POST", "jobs", &job)?;
    }
    for (query, arguments, count) in [
        ("order=newest", &[][..], 3),
        (
            "order=oldest&tag=a&tag=b",
            &["--order", "oldest", "--tag", "a", "--tag", "b"],
            2,
        ),
        (
            "order=runs_next&queue=default",
            &["--order", "runs-next", "--queue", "default"],
            3,
        ),
        ("order=finished_newest", &["--order", "finished-newest"], 0),
    ] {
        let page = api.expect("GET", &format!("jobs?shard=all&{query}"), &Value::Null)?;
        let mut over_http = page["jobs"].clone();
        let jobs = over_http.as_array_mut().context("no list of jobs")?;
        ensure!(jobs.len() == count, "{query}: {page:#}");
        let command = [&["job", "list", "--shard", "all"], arguments].concat();
        let mut printed = printed_lines(&url, &command)?;
        for job in jobs.iter_mut().chain(&mut printed) {
            // Listings of the command line leave out the history.
            job["history"] = json!([]);
        }
        expect_same(query, &over_http, &json!(printed))?;
    }
    for shard in ["1", "2"] {
        let schedule = json!({"every": "1h", "kind": "k", "paused": true});
        api.expect("PUT", &format!("schedules/s?shard={shard}"), &schedule)?;
        let lease = json!({"worker": "w", "queues": ["default"], "max": 1, "lease_for": "1h"});
        api.expect("POST", &format!("leases?shard={shard}"), &lease)?;
    }
    for (path, field, command) in [
        ("queues", "queues", &["queue", "list"][..]),
        ("workers", "workers", &["workers"]),
        ("schedules", "schedules", &["schedule", "list"]),
    ] {
        let page = api.expect("GET", &format!("{path}?shard=all"), &Value::Null)?;
        let over_http = page[field].as_array().context("no list")?.iter().cloned();
        let over_http: Vec<Value> = over_http.map(without_times).collect();
        let shards: Vec<&Value> = over_http.iter().map(|entry| &entry["shard"]).collect();
        ensure!(shards == ["1", "2"], "{path}: {page:#}");
        let printed = printed_lines(&url, &[command, &["--shard", "all"]].concat())?;
        let printed: Vec<Value> = printed.into_iter().map(without_times).collect();
        expect_same(path, &json!(over_http), &json!(printed))?;
    }
    let count = api.expect("GET", "jobs/count?shard=all&tag=b", &Value::Null)?;
    ensure!(count["count"] == 2, "{count:#}");
    let arguments = ["job", "list", "--shard", "all", "--tag", "b", "--count"];
    let printed = printed(&url, &arguments)?;
    expect_same("the count", &count["count"], &printed["count"])?;
    expect_same("the count", &count["exact"], &printed["exact"])?;
    server.stop()
}

#[test]
fn graphs_are_the_same_documents_and_top_lists_old_ones_too() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut setup = Setup::in_directory(directory.path())?;
    setup.arguments = ["--shards", "2"].map(str::to_owned).to_vec();
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    let graph = json!({"jobs": [
        {"name": "a", "kind": "k", "shard": "1"},
        {"name": "b", "kind": "k", "shard": "2", "after": ["a"]},
    ]});
    let graph = api.expect("POST", "graphs", &graph)?["graph"].clone();
    let name = graph.as_str().context("a graph has a name")?;
    // `top` looked for graphs among the newest 1,000 jobs once.
    let file = directory.path().join("jobs.ndjson");
    std::fs::write(&file, "{\"kind\": \"k\"}\n".repeat(1_001))?;
    let path = file.to_str().context("the path is not UTF-8")?;
    run_successfully(&["--server", &url, "submit", "--stream", path], &[])?;

    let listed = api.expect("GET", "graphs", &Value::Null)?;
    ensure!(
        listed["graphs"][0]["shards"] == json!(["1", "2"]),
        "{listed:#}"
    );
    let printed_list = printed(&url, &["graphs"])?;
    expect_same("the list of graphs", &listed, &printed_list)?;
    let top = printed(&url, &["top", "--screen", "graphs"])?;
    expect_same("the graphs of top", &listed["graphs"], &top["graphs"])?;
    let in_path = name.replace('/', "%2F");
    let shown = api.expect("GET", &format!("graphs/{in_path}"), &Value::Null)?;
    ensure!(shown["counts"]["blocked"] == 1, "{shown:#}");
    expect_same("the graph", &shown, &printed(&url, &["graphs", name])?)?;
    let drawn = api.expect("GET", &format!("graphs/{in_path}/layout"), &Value::Null)?;
    ensure!(
        drawn["boxes"].as_array().map(Vec::len) == Some(2),
        "{drawn:#}"
    );
    let printed = printed(&url, &["graphs", name, "--layout"])?;
    expect_same("the drawing", &drawn, &printed)?;
    server.stop()
}

/// Removes the numbers that change between two reads of the server.
fn without_numbers(mut server: Value) -> Value {
    let remove = |fields: &mut Value, names: &[&str]| {
        let fields = fields.as_object_mut().expect("an object");
        fields.retain(|name, _| !names.contains(&&**name));
    };
    remove(&mut server, &["uptime_seconds"]);
    let changing = [
        "uptime_seconds",
        "commits_per_second",
        "commit_p99_seconds",
        "store_bytes",
        "disk_free_bytes",
    ];
    for shard in server["shards"].as_array_mut().expect("a list of shards") {
        remove(shard, &changing);
    }
    server
}

#[test]
fn the_server_and_its_audit_log_are_the_same_documents() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    let url = format!("http://{}", setup.address);
    enqueue(&mut api)?;
    let over_http = api.expect("GET", "server", &Value::Null)?;
    ensure!(over_http["shards"][0]["live_jobs"] == 5, "{over_http:#}");
    ensure!(over_http["settings"]["db"].is_string(), "{over_http:#}");
    let printed = without_numbers(printed(&url, &["server-info"])?);
    expect_same("the server", &without_numbers(over_http), &printed)?;

    // The store gets the records of the last half second together.
    let path = "audit-log?what=cancelJob";
    let records = wait_for("a record of the audit log", || {
        let page = api.expect("GET", path, &Value::Null)?;
        let records = page["records"].as_array().cloned().unwrap_or_default();
        Ok((!records.is_empty()).then_some(records))
    })?;
    ensure!(records[0]["outcome"] == "done", "{records:?}");
    let printed = printed_lines(&url, &["audit-log", "--what", "cancelJob"])?;
    expect_same("the audit log", &json!(records), &json!(printed))?;
    server.stop()
}

/// Jobs of raw keys have unlimited retries, which requests cannot set but answers contain.
#[test]
fn jobs_of_raw_keys_are_listed_as_the_same_documents() -> Result<()> {
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    // An item of redis-work-queue, as its library adds one.
    let mut line = test_bed.line_client()?;
    line.call("SET mail:item:a hello")?;
    line.call("LPUSH mail:queue a")?;
    let mut api = Api::new(test_bed.setup.client());
    let page = api.expect("GET", "jobs?queue=mail", &Value::Null)?;
    let jobs = page["jobs"]
        .as_array()
        .context("the response has no list of jobs")?;
    ensure!(jobs.len() == 1 && jobs[0]["kept_by"] == "keys", "{page:#}");
    let url = format!("http://{}", test_bed.setup.address);
    let printed = printed(&url, &["job", "list", "--queue", "mail"])?;
    let (mut over_http, mut printed) = (jobs[0].clone(), printed);
    for document in [&mut over_http, &mut printed] {
        // Listings of the command line leave out the history.
        document["history"] = json!([]);
    }
    expect_same("a raw key", &over_http, &printed)?;
    server.stop()
}

/// Removes durations that change between two reads.
fn without_times(mut document: Value) -> Value {
    let reasons = document["reasons"].as_array_mut();
    for reason in reasons.into_iter().flatten() {
        let fields = reason.as_object_mut().expect("an object");
        fields.retain(|name, _| !["lease_left_seconds", "silent_seconds"].contains(&&**name));
    }
    if let Some(fields) = document.as_object_mut() {
        for name in ["oldest_ready_seconds", "seconds_to_empty"] {
            fields.remove(name);
        }
    }
    document
}

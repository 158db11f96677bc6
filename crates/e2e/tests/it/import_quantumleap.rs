//! Imports QuantumLeap's tasks from the real RQ in a real Redis; each is inserted once.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::clients;
use ganger_e2e::command::wait_for;
use ganger_e2e::ports::free_address;
use ganger_e2e::quantumleap::TestBed;
use ganger_e2e::redis::Redis;
use serde_json::{Value, json};

use crate::import::{count, import_into, run_to};

/// Number of waiting tasks.
const WAITING: u64 = 60;
/// Number of tasks including those that run, wait for a retry, or have failed.
const ALL: u64 = WAITING + 4;
/// Tenants and service paths of these tasks.
const SCOPES: [(&str, &str); 6] = [
    ("x", "/"),
    ("x", "/a/b"),
    ("X y", "/"),
    ("X y", "/a/b"),
    ("", "/"),
    ("", "/a/b"),
];

/// Starts a Redis with tasks, `waiting` of them waiting. Also returns what lists must show of each, by task id.
pub(crate) fn source(waiting: u64) -> Result<(Redis, BTreeMap<String, Value>)> {
    let redis = Redis::start(free_address()?)?;
    let waiting = waiting.to_string();
    let output = redis.run(clients::rq()?, "import_rq.py", &[&waiting])?;
    let lines = output.lines().map(|line| {
        let task: Value = serde_json::from_str(line)?;
        let id = task["task_id"]
            .as_str()
            .context("the task has no id")?
            .to_owned();
        Ok((id, task))
    });
    Ok((redis, lines.collect::<Result<_>>()?))
}

/// Returns all tasks as lists show them, in the form of [`source`].
fn listed(test_bed: &TestBed) -> Result<BTreeMap<String, Value>> {
    let mut tasks = BTreeMap::new();
    for (tenant, path) in SCOPES {
        let (tenant, path) = (
            format!("fiware-service: {tenant}"),
            format!("fiware-servicepath: {path}"),
        );
        let headers = ["-H", &tenant, "-H", &path];
        for item in test_bed.curl("/wq/notifications", &headers)?.items()? {
            let runtime = &item["runtime"];
            let id = runtime["task_id"]
                .as_str()
                .context("the task has no id")?
                .to_owned();
            let task = json!({
                "task_id": id,
                "status": runtime["status"],
                "errors": runtime["errors"],
                "retries_left": runtime["retries_left"],
                "input": item["input"],
            });
            ensure!(tasks.insert(id, task).is_none(), "listed twice: {item}");
        }
    }
    Ok(tasks)
}

/// Returns the number of rows of each entity.
fn rows(test_bed: &TestBed) -> Result<BTreeMap<String, u64>> {
    let mut rows = BTreeMap::new();
    for schema in ["mtx", "\"mtx y\"", "public"] {
        let entities = format!("select entity_id, count(*) from {schema}.etroom group by 1");
        for line in test_bed.sql(&entities)?.lines() {
            let (entity, count) = line.rsplit_once('|').context(line.to_owned())?;
            *rows.entry(entity.to_owned()).or_default() += count.parse::<u64>()?;
        }
    }
    Ok(rows)
}

/// Returns the expected rows: one for each task that had not ended.
fn expected_rows(tasks: &BTreeMap<String, Value>) -> BTreeMap<String, u64> {
    let pending = tasks.values().filter(|task| task["status"] == "pending");
    let entities = pending.filter_map(|task| task["input"]["payload"][0]["id"].as_str());
    entities.map(|entity| (entity.to_owned(), 1)).collect()
}

/// Waits until no task is pending, and checks that each has its rows once.
pub(crate) fn all_are_inserted(test_bed: &TestBed, tasks: &BTreeMap<String, Value>) -> Result<()> {
    wait_for("all tasks to end", || {
        Ok((test_bed.count("?taskStatus=pending")? == 0).then_some(()))
    })?;
    let found = rows(test_bed)?;
    ensure!(found == expected_rows(tasks), "{found:?}");
    Ok(())
}

#[test]
fn tasks_of_quantumleap_are_listed_as_before_and_inserted_once() -> Result<()> {
    const NAME: &str = "tasks_of_quantumleap_are_listed_as_before_and_inserted_once";
    let Some(test_bed) = TestBed::new(NAME, &[])? else {
        return Ok(());
    };
    let (redis, tasks) = source(WAITING)?;
    let digest = redis.digest()?;
    let mut server = test_bed.setup.start()?;

    let import = || import_into(&test_bed.setup, &redis.address.to_string());
    let mut dry = import();
    dry.arg("--dry-run");
    let dry = run_to(dry, 1)?;
    ensure!(
        count(&dry, "quantumleap_tasks", "found") == ALL + 1,
        "{dry}"
    );
    ensure!(test_bed.count("")? == 0, "a dry run has sent something");

    // The job of another program is not imported.
    let report = run_to(import(), 1)?;
    ensure!(
        count(&report, "quantumleap_tasks", "taken_over") == ALL,
        "{report}"
    );
    let records = &report["records"]["quantumleap_tasks"];
    ensure!(
        records["refusals"].to_string().contains("math.sqrt"),
        "{report}"
    );
    ensure!(
        records["left_out"].to_string().contains("has succeeded"),
        "{report}"
    );
    ensure!(report["other_keys"]["count"] == 0, "{report}");
    let now = listed(&test_bed)?;
    for (id, task) in &tasks {
        let found = now.get(id).with_context(|| format!("no {id}"))?;
        ensure!(found == task, "in RQ:\n{task}\nin ganger:\n{found}");
    }
    ensure!(now.len() == tasks.len(), "{}", now.len());

    let mut pool = test_bed.pool(&["--workers", "2"])?;
    all_are_inserted(&test_bed, &tasks)?;
    let ended = test_bed.count("?taskStatus=succeeded")?;
    ensure!(ended == WAITING + 2, "{ended} succeeded");

    // Tasks that have ended in ganger are not imported again.
    let again = run_to(import(), 1)?;
    ensure!(
        count(&again, "quantumleap_tasks", "already_there") == ALL,
        "{again}"
    );
    ensure!(test_bed.count("")? == ALL);
    ensure!(
        rows(&test_bed)? == expected_rows(&tasks),
        "{:?}",
        rows(&test_bed)?
    );
    ensure!(redis.digest()? == digest, "the source has changed");
    pool.stop()?;
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

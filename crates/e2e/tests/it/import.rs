//! Imports what real clients wrote into a real Redis: each job once, with its state, order and lease.

use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::clients::{self, Qless};
use ganger_e2e::command::{command, output_text, run as run_to_end};
use ganger_e2e::ports::free_address;
use ganger_e2e::redis::{Redis, TestBed};
use ganger_e2e::server::{Setup, TIMEOUT};
use serde_json::Value;

/// Number of jobs of a normal import.
const JOBS: &str = "300";
/// Number of jobs of an import that is killed: more than one batch.
const JOBS_OF_KILL: &str = "4000";

/// Returns the command that imports a database of the Redis.
fn import(test_bed: &TestBed, redis: &Redis, database: &str) -> Command {
    import_into(&test_bed.setup, &format!("{}/{database}", redis.address))
}

/// Returns the command that imports from `[LOGIN@]HOST:PORT[/DATABASE]` into the server with this setup.
pub(crate) fn import_into(setup: &Setup, source: &str) -> Command {
    let source = format!("redis://{source}");
    let server = setup.address.to_string();
    command(&["import", &source, "--json", "--server", &server], &[])
}

/// Runs an import, which must succeed; returns its report.
fn run(command: Command) -> Result<Value> {
    run_to(command, 0)
}

/// Runs an import, which must exit with `code`; returns its report.
pub(crate) fn run_to(mut command: Command, code: i32) -> Result<Value> {
    let output = command.output()?;
    ensure!(
        output.status.code() == Some(code),
        "{command:?} ended with {}:\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).context("the output is not a report")
}

pub(crate) fn count(report: &Value, kind: &str, what: &str) -> u64 {
    report["records"][kind][what].as_u64().unwrap_or(0)
}

#[test]
fn the_state_of_qless_is_the_same_in_ganger_as_in_redis() -> Result<()> {
    let redis = Redis::start(free_address()?)?;
    let print = ["reqless", "print"];
    let python = || Qless::Reqless.python();
    redis.run(python()?, "qless_state.py", &["reqless", "fill", "redis"])?;
    let before = redis.run(python()?, "qless_state.py", &["reqless", "print", "redis"])?;
    ensure!(before.contains("\"running\""), "{before}");
    let digest = redis.digest()?;

    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    let report = run(import(&test_bed, &redis, "4"))?;
    ensure!(report["namespace"] == "db4", "{report}");
    ensure!(count(&report, "qless_jobs", "taken_over") == 10, "{report}");
    ensure!(count(&report, "qless_recurring_jobs", "taken_over") == 1);
    let after = test_bed.run(python()?, "qless_state.py", &print)?;
    ensure!(before == after, "in Redis:\n{before}\nin ganger:\n{after}");

    let again = run(import(&test_bed, &redis, "4"))?;
    for (kind, records) in again["records"]
        .as_object()
        .context("the report has no records")?
    {
        ensure!(
            records["taken_over"] == 0 && records["refused"] == 0,
            "{kind}: {again}"
        );
    }
    let after = test_bed.run(python()?, "qless_state.py", &print)?;
    ensure!(
        before == after,
        "in Redis:\n{before}\nafter a repeat:\n{after}"
    );
    ensure!(redis.digest()? == digest, "the source has changed");
    server.kill()?;
    let mut server = test_bed.setup.start()?;
    let after = test_bed.run(python()?, "qless_state.py", &print)?;
    ensure!(
        before == after,
        "in Redis:\n{before}\nafter a kill:\n{after}"
    );
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

#[test]
fn workers_of_qless_continue_where_they_were_in_redis() -> Result<()> {
    let redis = Redis::start(free_address()?)?;
    let python = || Qless::Reqless.python();
    redis.run(python()?, "import_qless.py", &["0", "fill", JOBS, "redis"])?;
    let order = redis.run(python()?, "import_qless.py", &["0", "order", "", "redis"])?;
    let digest = redis.digest()?;
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;

    let mut dry = import(&test_bed, &redis, "0");
    dry.arg("--dry-run");
    let dry = run(dry)?;
    ensure!(count(&dry, "qless_jobs", "found") == 307, "{dry}");
    ensure!(count(&dry, "qless_jobs", "taken_over") == 0, "{dry}");

    let report = run(import(&test_bed, &redis, "0"))?;
    ensure!(
        count(&report, "qless_jobs", "taken_over") == 307,
        "{report}"
    );
    let now = test_bed.run(python()?, "import_qless.py", &["0", "order"])?;
    ensure!(order == now, "in Redis {order}, in ganger {now}");
    test_bed.run(python()?, "import_qless.py", &["0", "finish", JOBS])?;
    // Jobs that have ended in ganger are not imported again.
    let again = run(import(&test_bed, &redis, "0"))?;
    ensure!(
        count(&again, "qless_jobs", "already_there") == 307,
        "{again}"
    );
    let left = test_bed.line_client()?.integer("ZCARD ql:q:work-work")?;
    ensure!(left == 0, "{left} jobs have come back");
    ensure!(redis.digest()? == digest, "the source has changed");
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

#[test]
fn a_killed_import_can_be_repeated_and_imports_each_job_once() -> Result<()> {
    let redis = Redis::start(free_address()?)?;
    let python = || Qless::Reqless.python();
    let fill = ["0", "fill", JOBS_OF_KILL, "redis"];
    redis.run(python()?, "import_qless.py", &fill)?;
    let digest = redis.digest()?;
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    let mut killed = import(&test_bed, &redis, "0")
        .stdout(Stdio::null())
        .spawn()?;
    let mut line = test_bed.line_client()?;
    let begun = Instant::now();
    while line.integer("ZCARD ql:q:work-work")? == 0 {
        ensure!(begun.elapsed() < TIMEOUT, "nothing is imported");
    }
    killed.kill()?;
    killed.wait()?;
    let taken = line.integer("ZCARD ql:q:work-work")?;
    ensure!(
        (1..4_000).contains(&taken),
        "{taken}: it was not in the middle"
    );

    let report = run(import(&test_bed, &redis, "0"))?;
    let there = count(&report, "qless_jobs", "already_there");
    let sum = there + count(&report, "qless_jobs", "taken_over");
    ensure!(there > 0 && sum == 4_007, "{report}");
    test_bed.run(python()?, "import_qless.py", &["0", "finish", JOBS_OF_KILL])?;
    ensure!(redis.digest()? == digest, "the source has changed");
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

#[test]
fn items_of_redis_work_queue_keep_their_order_and_the_remaining_time_of_their_leases() -> Result<()>
{
    let redis = Redis::start(free_address()?)?;
    redis.run(clients::python()?, "import_items.py", &["fill", JOBS])?;
    let digest = redis.digest()?;
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    let report = run(import(&test_bed, &redis, "0"))?;
    // All items that were added and not completed, and the one that is in no list.
    ensure!(
        count(&report, "work_queue_items", "taken_over") == 304,
        "{report}"
    );
    let left_out = &report["records"]["work_queue_items"]["left_out"];
    ensure!(left_out.to_string().contains("ghost"), "{report}");
    let others = report["other_keys"].to_string();
    ensure!(
        others.contains("something else") && others.contains("a set"),
        "{report}"
    );
    test_bed.run(clients::python()?, "import_items.py", &["finish", JOBS])?;
    let again = run(import(&test_bed, &redis, "0"))?;
    ensure!(
        count(&again, "work_queue_items", "already_there") == 304,
        "{again}"
    );
    let left = test_bed.line_client()?.integer("LLEN jobs:item:x:queue")?;
    ensure!(left == 0, "{left} items have come back");
    ensure!(redis.digest()? == digest, "the source has changed");
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

#[test]
fn errors_of_source_and_server_are_reported() -> Result<()> {
    let redis = Redis::start_with(free_address()?, &["--requirepass", "secret"])?;
    let test_bed = TestBed::new(&[])?;
    let (reachable, unreachable) = (redis.address, free_address()?);
    for (source, code, expected) in [
        (
            format!("redis://{unreachable}"),
            4,
            "cannot connect to the source",
        ),
        (format!("redis://{reachable}"), 5, "wants a password"),
        (
            format!("redis://:wrong@{reachable}"),
            5,
            "user or password are wrong",
        ),
        (
            format!("redis://:secret@{reachable}/99"),
            5,
            "has no database of that number",
        ),
        // The source is valid, but no server runs.
        (
            format!("redis://:secret@{reachable}"),
            4,
            "cannot reach a ganger server",
        ),
        ("localhost".to_owned(), 2, "begins with redis://"),
    ] {
        let server = test_bed.setup.address.to_string();
        let output = run_to_end(&["import", &source, "--server", &server], &[])?;
        let error = output_text(&output);
        ensure!(
            output.status.code() == Some(code),
            "{source}: {}: {error}",
            output.status
        );
        ensure!(error.contains(expected), "{source}: {error}");
        ensure!(!error.contains("secret"), "{error}");
    }
    Ok(())
}

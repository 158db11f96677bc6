//! Makes the system calls of the store fail, one per run: no acknowledged work is lost, nothing is acknowledged that is not
//! durable, and the server logs the error and recovers or exits (`rel D6`, f13, f14, f15).

use std::env;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::checker;
use ganger_e2e::history::Recorder;
use ganger_e2e::scenario;
use ganger_e2e::server::{Server, Setup, TIMEOUT, tail};
use ganger_e2e::skip::note_skip;
use ganger_e2e::trace::{self, CallPoint, Fault};
use serde_json::Value;
use tempfile::TempDir;

/// Default number of points per kind of fault, evenly spread over all; `GANGER_FAULT_POINTS` overrides it, and a large
/// number means every point.
const POINTS: usize = 8;
/// Rounds before the fault, which fill the file and the log.
const BEFORE: Range<u32> = 0..2;
/// Rounds with the fault.
const DURING: Range<u32> = 2..4;
/// Rounds after the fault, with the same server if it still runs.
const AFTER: Range<u32> = 4..5;
/// Exit code of a server whose store could not be opened.
const STORE_UNUSABLE: i32 = 3;
/// Exit code of a server whose shard ended.
const SHARD_ENDED: i32 = 5;

const FAILS_ONCE: Fault = Fault {
    error: "EIO",
    is_permanent: false,
};
const FAILS_FOREVER: Fault = Fault {
    error: "EIO",
    is_permanent: true,
};
const FULL_ONCE: Fault = Fault {
    error: "ENOSPC",
    is_permanent: false,
};
const INTERRUPTED: Fault = Fault {
    error: "EINTR",
    is_permanent: false,
};

/// Covers fault f13 (`rel D6`).
#[test]
fn a_flush_that_fails_once_is_not_ignored() -> Result<()> {
    let reached = fail_each(&["fdatasync", "fsync"], FAILS_ONCE)?;
    expect_reported(reached.as_deref())?;
    expect_some(reached.as_deref(), |outcome| outcome.has_logged_error)
}

/// Covers fault f13 (`rel D6`).
#[test]
fn when_every_flush_fails_the_server_exits_with_a_reason() -> Result<()> {
    let reached = fail_each(&["fdatasync", "fsync"], FAILS_FOREVER)?;
    expect_some(reached.as_deref(), |outcome| outcome.has_ended)
}

/// Covers fault f14 (`rel D6`).
#[test]
fn a_write_that_fails_once_is_undone_or_logged() -> Result<()> {
    let reached = fail_each(&["pwrite64"], FAILS_ONCE)?;
    expect_reported(reached.as_deref())?;
    expect_some(reached.as_deref(), |outcome| outcome.has_logged_error)
}

/// Covers fault f14 (`rel D6`).
#[test]
fn when_every_write_fails_the_server_exits_with_a_reason() -> Result<()> {
    let reached = fail_each(&["pwrite64"], FAILS_FOREVER)?;
    expect_some(reached.as_deref(), |outcome| outcome.has_ended)
}

/// Covers fault f15 (`rel D6`).
#[test]
fn a_write_without_space_is_logged_and_service_returns() -> Result<()> {
    let reached = fail_each(&["pwrite64", "ftruncate", "fallocate"], FULL_ONCE)?;
    expect_some(reached.as_deref(), |outcome| {
        outcome.has_logged_error && !outcome.has_ended
    })
}

/// Covers fault f14 (`rel D6`).
#[test]
fn an_interrupted_write_is_repeated() -> Result<()> {
    let reached = fail_each(&["pwrite64"], INTERRUPTED)?;
    for outcome in reached.iter().flatten() {
        ensure!(
            !outcome.has_logged_error && !outcome.has_ended,
            "{outcome:?}"
        );
    }
    Ok(())
}

/// Covers fault f14 (`rel D6`).
#[test]
fn any_other_failed_call_does_no_harm() -> Result<()> {
    fail_each(&["openat", "ftruncate", "unlink", "fallocate"], FAILS_ONCE).map(drop)
}

/// The outcome of a fault.
#[derive(Debug)]
struct FaultOutcome {
    point: CallPoint,
    /// Recorded calls that were made to fail.
    failed: Vec<String>,
    /// Whether the server logged an error or warning.
    has_logged_error: bool,
    /// Whether the server exited by itself.
    has_ended: bool,
}

/// Checks that a failed write or flush is always logged, or ends the server.
fn expect_reported(reached: Option<&[FaultOutcome]>) -> Result<()> {
    for outcome in reached.unwrap_or_default() {
        ensure!(
            outcome.failed.is_empty() || outcome.has_logged_error || outcome.has_ended,
            "the log does not mention {:?}: {:?}",
            outcome.point,
            outcome.failed
        );
    }
    Ok(())
}

/// Checks that at least half of the faults were reached, since thread scheduling varies, and that one had the expected
/// outcome.
fn expect_some(
    reached: Option<&[FaultOutcome]>,
    is_as_expected: fn(&FaultOutcome) -> bool,
) -> Result<()> {
    let Some(reached) = reached else {
        return Ok(());
    };
    let reached: Vec<&FaultOutcome> = reached
        .iter()
        .filter(|outcome| !outcome.failed.is_empty())
        .collect();
    ensure!(
        reached.len() * 2 >= reached.len(),
        "too few faults were reached: {reached:#?}"
    );
    ensure!(
        reached.iter().any(|outcome| is_as_expected(outcome)),
        "no outcome was as expected: {reached:#?}"
    );
    Ok(())
}

/// Makes each of these calls fail in a separate run; `None` without `strace`.
fn fail_each(calls: &[&str], fault: Fault) -> Result<Option<Vec<FaultOutcome>>> {
    if Command::new("strace").arg("-V").output().is_err() {
        note_skip("failing system calls", "strace is not installed");
        return Ok(None);
    }
    let limit = env::var("GANGER_FAULT_POINTS").map_or(Ok(POINTS), |text| text.parse())?;
    let snapshot = StoreSnapshot::create()?;
    let points: Vec<CallPoint> = snapshot
        .record_points()?
        .into_iter()
        .filter(|point| calls.contains(&point.call.as_str()))
        .collect();
    ensure!(!points.is_empty(), "the scenario makes none of these calls");
    let step = points.len().div_ceil(limit);
    let mut outcomes = Vec::new();
    for point in points.iter().step_by(step.max(1)) {
        let outcome = snapshot.fail_at(point, fault);
        outcomes.push(outcome.map_err(|error| error.context(format!("{fault:?} at {point:?}")))?);
    }
    let count =
        |what: fn(&FaultOutcome) -> bool| outcomes.iter().filter(|outcome| what(outcome)).count();
    eprintln!(
        "{fault:?}: {} of {} points: {} reached, {} logged, {} ended the server",
        outcomes.len(),
        points.len(),
        count(|outcome| !outcome.failed.is_empty()),
        count(|outcome| outcome.has_logged_error),
        count(|outcome| outcome.has_ended)
    );
    Ok(Some(outcomes))
}

/// A store with data as a killed server left it, and the history of its clients.
struct StoreSnapshot {
    directory: TempDir,
    recorder: Recorder,
}

impl StoreSnapshot {
    fn create() -> Result<Self> {
        let snapshot = Self {
            directory: tempfile::tempdir()?,
            recorder: Recorder::default(),
        };
        let data = snapshot.data();
        fs::create_dir(&data)?;
        let mut setup = Setup::in_directory(snapshot.directory.path())?;
        setup.store = data.join("store.db");
        let mut server = setup.start()?;
        scenario::run(&snapshot.recorder, &mut Api::new(setup.client()), BEFORE);
        server.kill()?;
        Ok(snapshot)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// Copies the store into a new directory.
    fn copy(&self) -> Result<(TempDir, Setup)> {
        let directory = tempfile::tempdir()?;
        let data = directory.path().join("data");
        fs::create_dir(&data)?;
        for name in ["store.db", "store.db-wal", "store.db-turns"] {
            fs::copy(self.data().join(name), data.join(name))?;
        }
        let mut setup = Setup::in_directory(directory.path())?;
        setup.store = data.join("store.db");
        Ok((directory, setup))
    }

    /// Runs the server without faults and records its calls on the store's files.
    fn record_points(&self) -> Result<Vec<CallPoint>> {
        let (directory, mut setup) = self.copy()?;
        let log = directory.path().join("calls.txt");
        setup.wrapper = trace::record_calls(&log);
        let mut server = setup.start()?;
        let recorder = Recorder::default();
        scenario::run(&recorder, &mut Api::new(setup.client()), DURING);
        server.kill()?;
        // The tracer writes its last lines after the program has ended.
        thread::sleep(Duration::from_millis(200));
        trace::call_points(
            &log,
            &directory.path().join("data"),
            SystemTime::UNIX_EPOCH,
            usize::MAX,
        )
    }

    /// Runs the server with a failing call, then without, and checks the store.
    fn fail_at(&self, point: &CallPoint, fault: Fault) -> Result<FaultOutcome> {
        let (directory, mut setup) = self.copy()?;
        let log = directory.path().join("calls.txt");
        setup.wrapper = trace::fail_call(point, fault, &log);
        let recorder = self.recorder.fork();
        let mut server = setup.spawn()?;
        let has_ended = run_with_fault(&setup, &mut server, &recorder)?;
        let words = setup.log_text();
        let has_logged_error = words.contains("ERROR") || words.contains("WARN");
        if has_ended {
            ensure!(
                ["I/O", "i/o", "disk", "Input/output error"]
                    .iter()
                    .any(|reason| words.contains(reason)),
                "the server does not say why it ended:\n{}",
                tail(&words)
            );
        }
        server.kill()?;

        setup.wrapper.clear();
        setup.check()?;
        let mut server = setup.start()?;
        let history = scenario::finish(&mut Api::new(setup.client()), &recorder)?;
        let (violations, _) = checker::check(&history);
        ensure!(
            violations.is_empty(),
            "{violations:?}\n{:#?}\n{}",
            history.exchanges,
            tail(&words)
        );
        server.stop()?;
        setup.check()?;
        setup.expect_no_panic()?;
        Ok(FaultOutcome {
            point: point.clone(),
            failed: trace::injected_failures(&log, &directory.path().join("data"))?,
            has_logged_error,
            has_ended,
        })
    }
}

/// Uses a server whose disk fails. Returns true if the server exited, false if it recovered.
fn run_with_fault(setup: &Setup, server: &mut Server, recorder: &Recorder) -> Result<bool> {
    if server.wait_until_ready(TIMEOUT).is_err() {
        return expect_exit(setup, server, &[STORE_UNUSABLE, SHARD_ENDED]);
    }
    let mut api = Api::new(setup.client());
    for round in DURING {
        scenario::run(recorder, &mut api, round..round + 1);
        if !serves_again(setup, server)? {
            return expect_exit(setup, server, &[SHARD_ENDED]);
        }
    }
    scenario::run(recorder, &mut api, AFTER);
    if !serves_again(setup, server)? {
        return expect_exit(setup, server, &[SHARD_ENDED]);
    }
    Ok(false)
}

/// Waits until the server is ready; returns false if it has exited.
fn serves_again(setup: &Setup, server: &mut Server) -> Result<bool> {
    let begun = Instant::now();
    loop {
        if server.exit_status()?.is_some() {
            return Ok(false);
        }
        let ready = setup.client().request("GET", "/readyz", &Value::Null);
        if ready.is_ok_and(|answer| answer.status == 200) {
            return Ok(true);
        }
        ensure!(
            begun.elapsed() < TIMEOUT,
            "the server neither serves nor ends:\n{}",
            tail(&setup.log_text())
        );
        thread::sleep(Duration::from_millis(5));
    }
}

fn expect_exit(setup: &Setup, server: &mut Server, codes: &[i32]) -> Result<bool> {
    let status = server.wait(TIMEOUT)?;
    ensure!(
        status.code().is_some_and(|code| codes.contains(&code)),
        "the server ended with {status}:\n{}",
        tail(&setup.log_text())
    );
    Ok(true)
}

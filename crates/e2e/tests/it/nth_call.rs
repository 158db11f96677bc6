//! Kills the server at its 1st, 2nd, 3rd ... system call on the store, and checks the store each time.

use std::env;
use std::ops::Range;
use std::process::Command;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::checker;
use ganger_e2e::history::{Exchange, Outcome, Recorder};
use ganger_e2e::scenario;
use ganger_e2e::server::{Setup, TIMEOUT};
use ganger_e2e::skip::note_skip;
use ganger_e2e::trace::{self, CallPoint};

/// Default number of kills while the server works; `GANGER_CALL_POINTS` overrides it.
const POINTS: usize = 100;
/// Number of kills while a new store is created.
const CREATION_POINTS: usize = 40;
/// Rounds of the scenario, enough for that many calls.
const ROUNDS: Range<u32> = 0..30;

#[test]
fn the_store_is_intact_wherever_the_server_is_killed_at_work() -> Result<()> {
    let limit = env::var("GANGER_CALL_POINTS").map_or(Ok(POINTS), |text| text.parse())?;
    let Some(reached) = kill_at_each(Phase::AtWork, limit)? else {
        return Ok(());
    };
    // Thread scheduling varies, so a few points may be missed or reached early.
    let working = reached
        .iter()
        .filter(|reached| **reached == Reached::WhileWorking)
        .count();
    ensure!(
        working * 2 >= limit,
        "only {working} of {limit} kills came after acknowledged work"
    );
    Ok(())
}

#[test]
fn the_store_is_intact_wherever_its_creation_is_killed() -> Result<()> {
    let Some(reached) = kill_at_each(Phase::AtStart, CREATION_POINTS)? else {
        return Ok(());
    };
    let early = reached
        .iter()
        .filter(|reached| **reached == Reached::AtStart)
        .count();
    ensure!(
        early * 2 >= CREATION_POINTS,
        "only {early} of {CREATION_POINTS} kills came while the store was created"
    );
    Ok(())
}

/// Phase of the run in which the server is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    AtStart,
    AtWork,
}

/// Kills the server at each of the first `limit` points; returns when each was reached, `None` without `strace`.
fn kill_at_each(phase: Phase, limit: usize) -> Result<Option<Vec<Reached>>> {
    if Command::new("strace").arg("-V").output().is_err() {
        note_skip("kill at the Nth system call", "strace is not installed");
        return Ok(None);
    }
    let points = record_points(phase, limit)?;
    ensure!(
        points.len() == limit,
        "the scenario has only {} points",
        points.len()
    );
    let mut all = Vec::new();
    for point in &points {
        all.push(kill_at(point).map_err(|error| error.context(format!("killed at {point:?}")))?);
    }
    let count = |kind| all.iter().filter(|reached| **reached == kind).count();
    eprintln!(
        "{} points: {} reached at the start, {} after acknowledged work, {} missed",
        points.len(),
        count(Reached::AtStart),
        count(Reached::WhileWorking),
        count(Reached::Never)
    );
    Ok(Some(all))
}

/// Runs the scenario without faults and records the calls.
fn record_points(phase: Phase, limit: usize) -> Result<Vec<CallPoint>> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    let log = directory.path().join("calls.txt");
    let mut setup = Setup::in_directory(directory.path())?;
    setup.store = data.join("store.db");
    setup.wrapper = trace::record_calls(&log);
    let mut since = SystemTime::now();
    let mut server = setup.start()?;
    if phase == Phase::AtWork {
        since = SystemTime::now();
    }
    let recorder = Recorder::default();
    scenario::run(&recorder, &mut Api::new(setup.client()), ROUNDS);
    server.kill()?;
    // The tracer writes its last lines after the program has ended.
    std::thread::sleep(Duration::from_millis(200));
    trace::call_points(&log, &data, since, limit)
}

/// The time at which a point was reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    Never,
    /// Before anything was acknowledged.
    AtStart,
    WhileWorking,
}

/// Runs the scenario with a server that is killed at `point`, and checks the store.
fn kill_at(point: &CallPoint) -> Result<Reached> {
    let directory = tempfile::tempdir()?;
    let data = directory.path().join("data");
    std::fs::create_dir(&data)?;
    let mut setup = Setup::in_directory(directory.path())?;
    setup.store = data.join("store.db");

    let recorder = Recorder::default();
    setup.wrapper = trace::kill_at_call(point);
    let mut server = setup.spawn()?;
    let was_ready = server.wait_until_ready(TIMEOUT).is_ok();
    if was_ready {
        scenario::run(&recorder, &mut Api::new(setup.client()), ROUNDS);
    }
    // The client may see the broken connection before the process has ended.
    let is_cut =
        |exchange: &Exchange| matches!(exchange.outcome, Outcome::Unknown | Outcome::NotSent);
    let was_killed = !was_ready || recorder.exchanges().last().is_some_and(is_cut);
    if was_killed {
        server.wait(TIMEOUT)?;
    }
    let has_worked = recorder
        .exchanges()
        .iter()
        .any(|exchange| matches!(exchange.outcome, Outcome::Done { .. }));
    server.kill()?;

    setup.wrapper.clear();
    if setup.store.exists() {
        setup.check()?;
    }
    let mut server = setup.start()?;
    let history = scenario::finish(&mut Api::new(setup.client()), &recorder)?;
    let (violations, _) = checker::check(&history);
    ensure!(
        violations.is_empty(),
        "{violations:?}\n{:#?}",
        history.exchanges
    );
    server.stop()?;
    setup.check()?;
    setup.expect_no_panic()?;
    Ok(match (was_killed, has_worked) {
        (false, _) => Reached::Never,
        (true, false) => Reached::AtStart,
        (true, true) => Reached::WhileWorking,
    })
}

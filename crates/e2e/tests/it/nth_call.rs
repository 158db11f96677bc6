//! Kills the server at its 1st, 2nd, 3rd ... system call that touches the store, and looks each time at what is left.

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

/// How many points are tried while the server works, unless `GANGER_CALL_POINTS` says otherwise.
const POINTS: usize = 100;
/// How many are tried while a new store is made.
const CREATION_POINTS: usize = 40;
/// Rounds of the scenario: enough for that many points.
const ROUNDS: Range<u32> = 0..30;

#[test]
fn the_store_is_whole_wherever_the_server_is_killed_at_work() -> Result<()> {
    let limit = env::var("GANGER_CALL_POINTS").map_or(Ok(POINTS), |text| text.parse())?;
    let Some(reached) = kill_at_each(Phase::AtWork, limit)? else {
        return Ok(());
    };
    // Threads take turns a little differently each time, so a point may be missed or come early; most do not.
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
fn the_store_is_whole_wherever_its_making_is_killed() -> Result<()> {
    let Some(reached) = kill_at_each(Phase::AtStart, CREATION_POINTS)? else {
        return Ok(());
    };
    let early = reached
        .iter()
        .filter(|reached| **reached == Reached::AtStart)
        .count();
    ensure!(
        early * 2 >= CREATION_POINTS,
        "only {early} of {CREATION_POINTS} kills came while the store was made"
    );
    Ok(())
}

/// From where on points are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    AtStart,
    AtWork,
}

/// Kills at each of the first `limit` points, and tells when each was reached; `None` if there is no tracer.
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

/// Runs the scenario once without harm and notes the calls.
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
    // The tracer writes its last lines after the program's end.
    std::thread::sleep(Duration::from_millis(200));
    trace::call_points(&log, &data, since, limit)
}

/// When a point was reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reached {
    Never,
    /// Before anything was acknowledged.
    AtStart,
    WhileWorking,
}

/// Runs the scenario with a server that is killed at `point`, then looks.
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
    // The client may see the connection break a moment before the process can be seen to have ended.
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

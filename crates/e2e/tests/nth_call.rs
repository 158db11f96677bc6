//! Kills the server at its 1st, 2nd, 3rd ... system call that touches the store, and looks each time at what is left.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::checker;
use ganger_e2e::history::{Answered, Asked, Exchange, Held, History, Recorder};
use ganger_e2e::server::{PATIENCE, Setup};
use ganger_e2e::skip::skipped;
use ganger_e2e::trace::{self, Point};
use serde_json::{Value, json};

/// How many points are tried while the server works, unless `GANGER_CALL_POINTS` says otherwise.
const POINTS: usize = 100;
/// How many are tried while a new store is made.
const MAKING_POINTS: usize = 40;
/// Rounds of the scenario: enough for that many points.
const ROUNDS: u32 = 30;
const QUEUE: &str = "line";
const LEASE_FOR: Duration = Duration::from_secs(60);

#[test]
fn the_store_is_whole_wherever_the_server_is_killed_at_work() -> Result<()> {
    let limit = env::var("GANGER_CALL_POINTS").map_or(Ok(POINTS), |text| text.parse())?;
    let Some(reached) = kill_at_each(Begin::AtWork, limit)? else {
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
    let Some(reached) = kill_at_each(Begin::AtStart, MAKING_POINTS)? else {
        return Ok(());
    };
    let early = reached
        .iter()
        .filter(|reached| **reached == Reached::AtStart)
        .count();
    ensure!(
        early * 2 >= MAKING_POINTS,
        "only {early} of {MAKING_POINTS} kills came while the store was made"
    );
    Ok(())
}

/// From where on points are looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    AtStart,
    AtWork,
}

/// Kills at each of the first `limit` points, and tells when each was reached; `None` if there is no tracer.
fn kill_at_each(begin: Begin, limit: usize) -> Result<Option<Vec<Reached>>> {
    if Command::new("strace").arg("-V").output().is_err() {
        skipped("kill at the Nth system call", "strace is not installed");
        return Ok(None);
    }
    let points = note_points(begin, limit)?;
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
fn note_points(begin: Begin, limit: usize) -> Result<Vec<Point>> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    let log = folder.path().join("calls.txt");
    let mut setup = Setup::in_folder(folder.path())?;
    setup.store = data.join("store.db");
    setup.wrapper = trace::noting(&log);
    let mut since = SystemTime::now();
    let mut server = setup.start()?;
    if begin == Begin::AtWork {
        since = SystemTime::now();
    }
    let recorder = Recorder::default();
    scenario(&recorder, &mut Api::new(setup.client()));
    server.kill()?;
    // The tracer writes its last lines after the program's end.
    std::thread::sleep(Duration::from_millis(200));
    trace::points(&log, &data, since, limit)
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
fn kill_at(point: &Point) -> Result<Reached> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    std::fs::create_dir(&data)?;
    let mut setup = Setup::in_folder(folder.path())?;
    setup.store = data.join("store.db");

    let recorder = Recorder::default();
    setup.wrapper = trace::killing_at(point);
    let mut server = setup.spawn()?;
    let was_ready = server.wait_until_ready(PATIENCE).is_ok();
    if was_ready {
        scenario(&recorder, &mut Api::new(setup.client()));
    }
    // The client may see the connection break a moment before the process can be seen to have ended.
    let is_cut =
        |exchange: &Exchange| matches!(exchange.answered, Answered::Unknown | Answered::NotSent);
    let was_killed = !was_ready || recorder.exchanges().last().is_some_and(is_cut);
    if was_killed {
        server.wait(PATIENCE)?;
    }
    let has_worked = recorder
        .exchanges()
        .iter()
        .any(|exchange| matches!(exchange.answered, Answered::Done { .. }));
    server.kill()?;

    setup.wrapper.clear();
    if setup.store.exists() {
        setup.check()?;
    }
    let mut server = setup.start()?;
    let history = settle(&setup, &recorder)?;
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

/// A short life of everything, one request after the other, until there is no answer.
fn scenario(recorder: &Recorder, api: &mut Api) {
    for round in 0..ROUNDS {
        if run_round(recorder, api, round).is_none() {
            return;
        }
    }
}

/// One round; `None` as soon as an answer is missing.
fn run_round(recorder: &Recorder, api: &mut Api, round: u32) -> Option<()> {
    let id = |name: &str| format!("r{round}-{name}");
    enqueue(recorder, api, &[id("single")], |api| {
        api.enqueue(&job(&id("single")))
    })?;
    let graph = [id("first"), id("second"), id("third")];
    let jobs = [
        named(&graph[0]),
        job(&graph[1]),
        after(&graph[2], &graph[0]),
    ];
    enqueue(recorder, api, &graph, |api| api.submit(&jobs))?;

    let held = lease(recorder, api)?;
    let first = held.first()?.clone();
    answered(&recorder.exchange(
        Asked::Renew {
            held: first.clone(),
        },
        || api.renew(&first),
    ))?;
    complete(recorder, api, &first)?;
    if let Some(second) = held.get(1) {
        let asked = Asked::Fail {
            held: second.clone(),
        };
        answered(&recorder.exchange(asked, || api.fail(second, Duration::from_millis(1))))?;
    }
    if let Some(third) = held.get(2) {
        answered(&recorder.exchange(
            Asked::Release {
                held: third.clone(),
            },
            || api.release(third),
        ))?;
    }
    Some(())
}

fn job(id: &str) -> Value {
    json!({ "id": id, "queue": QUEUE, "kind": "step", "retry": { "max": 50, "backoff": "1ms" } })
}

/// A job that others of the same submission can refer to.
fn named(id: &str) -> Value {
    let mut job = job(id);
    job["name"] = json!(id);
    job
}

/// A job that waits for another one of the same submission.
fn after(id: &str, upstream: &str) -> Value {
    let mut job = job(id);
    job["after"] = json!([{ "name": upstream }]);
    job
}

fn enqueue(
    recorder: &Recorder,
    api: &mut Api,
    ids: &[String],
    send: impl FnOnce(&mut Api) -> Answered,
) -> Option<()> {
    answered(&recorder.exchange(Asked::Enqueue { jobs: ids.to_vec() }, || send(api)))
}

fn lease(recorder: &Recorder, api: &mut Api) -> Option<Vec<Held>> {
    let asked = Asked::Lease {
        worker: "w".to_owned(),
        lease_for: LEASE_FOR,
    };
    match recorder.exchange(asked, || {
        api.lease(QUEUE, "w", 3, LEASE_FOR, Duration::ZERO)
    }) {
        Answered::Leased(held) => Some(held),
        _ => None,
    }
}

fn complete(recorder: &Recorder, api: &mut Api, held: &Held) -> Option<()> {
    let result = format!("{} by attempt {}", held.job, held.attempt);
    let asked = Asked::Complete {
        held: held.clone(),
        result: result.clone(),
    };
    answered(&recorder.exchange(asked, || api.complete(held, &result)))
}

fn answered(answered: &Answered) -> Option<()> {
    (!matches!(answered, Answered::Unknown | Answered::NotSent)).then_some(())
}

/// Finishes everything that is left, with the leases held from before the kill, then reads all jobs.
fn settle(setup: &Setup, recorder: &Recorder) -> Result<History> {
    let mut api = Api::new(setup.client());
    let before = recorder.exchanges();
    let mut ids = Vec::new();
    for exchange in &before {
        match (&exchange.asked, &exchange.answered) {
            (Asked::Enqueue { jobs }, _) => ids.extend(jobs.iter().cloned()),
            (Asked::Lease { .. }, Answered::Leased(held)) => {
                for held in held.iter().filter(|held| !has_reported(&before, held)) {
                    complete(recorder, &mut api, held);
                }
            }
            _ => {}
        }
    }
    free_lost_grants(&mut api, &before, &ids)?;

    let begun = Instant::now();
    let mut found = Vec::new();
    for id in &ids {
        while let Some(state) = api.find(id)? {
            if state.state == "succeeded" {
                found.push(state);
                break;
            }
            ensure!(begun.elapsed() < PATIENCE, "job {id} stays {}", state.state);
            for held in lease(recorder, &mut api).unwrap_or_default() {
                complete(recorder, &mut api, &held);
            }
        }
    }
    Ok(History {
        exchanges: recorder.exchanges(),
        found,
    })
}

fn has_reported(exchanges: &[Exchange], held: &Held) -> bool {
    exchanges.iter().any(|exchange| match &exchange.asked {
        Asked::Complete { held: it, .. } => it == held && exchange.answered != Answered::Unknown,
        Asked::Fail { held: it } | Asked::Release { held: it } => it == held,
        _ => false,
    })
}

/// A grant whose answer was lost runs until its lease ends; a person may end it sooner, by hand.
fn free_lost_grants(api: &mut Api, before: &[Exchange], ids: &[String]) -> Result<()> {
    let was_lost = before.iter().any(|exchange| {
        matches!(exchange.asked, Asked::Lease { .. }) && exchange.answered == Answered::Unknown
    });
    let was_unclear = before.iter().any(|exchange| {
        matches!(exchange.asked, Asked::Fail { .. } | Asked::Release { .. })
            && exchange.answered == Answered::Unknown
    });
    if was_lost || was_unclear {
        for id in ids {
            if api.find(id)?.is_some_and(|found| found.state == "running") {
                api.expect("POST", &format!("jobs/{id}/timeout"), &Value::Null)?;
            }
        }
    }
    Ok(())
}

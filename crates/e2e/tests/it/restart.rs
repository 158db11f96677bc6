//! What a restart keeps: leases with their tokens, delays, order, pauses, dependencies, results.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::history::{Answered, Held};
use ganger_e2e::server::Setup;
use serde_json::{Value, json};

/// Live jobs in the store, unless `GANGER_RESTART_JOBS` says otherwise.
const JOBS: usize = 50_000;
/// How long such a start may take; it is a bound against stalls, not a measurement.
const START_FOR_MAX: Duration = Duration::from_secs(20);
const LEASE_FOR: Duration = Duration::from_secs(120);

#[test]
fn leases_delays_pauses_and_results_are_kept_over_a_kill_with_many_live_jobs() -> Result<()> {
    let jobs = std::env::var("GANGER_RESTART_JOBS").map_or(Ok(JOBS), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    fill(&mut api, jobs)?;
    let held = prepare(&mut api)?;
    server.kill()?;
    setup.check()?;

    let begun = Instant::now();
    let mut server = setup.start()?;
    eprintln!(
        "ready {:?} after the start, with {jobs} live jobs",
        begun.elapsed()
    );
    ensure!(
        begun.elapsed() < START_FOR_MAX,
        "the start took {:?}",
        begun.elapsed()
    );

    let mut api = Api::new(setup.client());
    look(&mut api, &held)?;
    server.stop()?;
    setup.check()?;
    setup.expect_no_panic()
}

/// Fills a queue with jobs that nobody takes.
fn fill(api: &mut Api, jobs: usize) -> Result<()> {
    for first in (0..jobs).step_by(10_000) {
        let jobs: Vec<Value> = (first..jobs.min(first + 10_000))
            .map(
                |number| json!({ "id": format!("fill-{number}"), "queue": "full", "kind": "fill" }),
            )
            .collect();
        api.expect("POST", "graphs", &json!({ "jobs": jobs }))?;
    }
    Ok(())
}

/// Puts one job into each situation; returns the leases that are held over the kill.
fn prepare(api: &mut Api) -> Result<Vec<Held>> {
    for id in ["done", "held-1", "held-2"] {
        api.expect(
            "POST",
            "jobs",
            &json!({ "id": id, "queue": "work", "kind": "step" }),
        )?;
    }
    let graph = json!({ "jobs": [
        { "id": "dependency", "name": "dependency", "queue": "later", "kind": "step" },
        { "id": "dependent", "queue": "later", "kind": "step", "inputs": [{ "result_of": "dependency" }] },
    ] });
    api.expect("POST", "graphs", &graph)?;
    api.expect(
        "POST",
        "jobs",
        &json!({ "id": "delayed", "queue": "work", "kind": "step", "delay": "1h" }),
    )?;
    api.expect(
        "POST",
        "jobs",
        &json!({ "id": "parked", "queue": "parked", "kind": "step" }),
    )?;
    api.expect("POST", "queues/parked/pause", &Value::Null)?;

    let Answered::Leased(mut held) = api.lease("work", "w1", 3, LEASE_FOR, Duration::ZERO) else {
        anyhow::bail!("nothing was handed out");
    };
    ensure!(held.len() == 3, "{} jobs were handed out", held.len());
    let first = held.remove(0);
    ensure!(first.job == "done", "{} came first", first.job);
    ensure!(
        api.complete(&first, "kept") == Answered::Done { is_repeat: false },
        "not completed"
    );
    Ok(held)
}

/// Looks at each of them after the restart.
fn look(api: &mut Api, held: &[Held]) -> Result<()> {
    let done = api.find("done")?.context("the finished job is gone")?;
    ensure!(done.result.as_deref() == Some("kept"), "{done:?}");
    let state = |api: &mut Api, id: &str| -> Result<String> {
        Ok(api
            .find(id)?
            .with_context(|| format!("{id} is gone"))?
            .state)
    };
    for (id, expected) in [
        ("held-1", "running"),
        ("held-2", "running"),
        ("dependency", "ready"),
        ("dependent", "blocked"),
        ("delayed", "scheduled"),
        ("parked", "ready"),
    ] {
        let found = state(api, id)?;
        ensure!(found == expected, "{id} is {found} instead of {expected}");
    }
    let nothing = api.lease("parked", "w1", 1, LEASE_FOR, Duration::ZERO);
    ensure!(
        nothing == Answered::Leased(Vec::new()),
        "the pause was forgotten: {nothing:?}"
    );

    // The leases from before the kill count, and nobody else was given their jobs.
    let other = api.lease("work", "w2", 10, LEASE_FOR, Duration::ZERO);
    ensure!(
        other == Answered::Leased(Vec::new()),
        "handed out twice: {other:?}"
    );
    for held in held {
        ensure!(
            api.renew(held) == Answered::Done { is_repeat: false },
            "{} cannot be renewed",
            held.job
        );
        ensure!(
            api.complete(held, "after") == Answered::Done { is_repeat: false },
            "{} cannot be completed",
            held.job
        );
        let found = api.find(&held.job)?.context("gone")?;
        ensure!(
            found.attempts == [1] && found.result.as_deref() == Some("after"),
            "{found:?}"
        );
    }
    Ok(())
}

//! State that survives a restart: leases with their tokens, delays, order, pauses, dependencies, results.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::history::{Lease, Outcome};
use ganger_e2e::server::Setup;
use serde_json::{Value, json};

/// Default number of live jobs in the store; `GANGER_RESTART_JOBS` overrides it.
const JOBS: usize = 50_000;
/// Longest start with these jobs. It detects stalls and is not a performance goal.
const START_FOR_MAX: Duration = Duration::from_secs(20);
const LEASE_FOR: Duration = Duration::from_secs(120);

#[test]
fn leases_delays_pauses_and_results_are_kept_over_a_kill_with_many_live_jobs() -> Result<()> {
    let jobs = std::env::var("GANGER_RESTART_JOBS").map_or(Ok(JOBS), |text| text.parse())?;
    let directory = tempfile::tempdir()?;
    let setup = Setup::in_directory(directory.path())?;
    let mut server = setup.start()?;
    let mut api = Api::new(setup.client());
    enqueue_waiting_jobs(&mut api, jobs)?;
    let leases = prepare(&mut api)?;
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
    check_jobs(&mut api, &leases)?;
    server.stop()?;
    setup.check()?;
    setup.expect_no_panic()
}

/// Enqueues jobs that no worker leases.
fn enqueue_waiting_jobs(api: &mut Api, jobs: usize) -> Result<()> {
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

/// Creates a job in each state; returns the leases that are held over the kill.
fn prepare(api: &mut Api) -> Result<Vec<Lease>> {
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

    let Outcome::Leased(mut leases) = api.lease("work", "w1", 3, LEASE_FOR, Duration::ZERO) else {
        anyhow::bail!("no job was leased");
    };
    ensure!(leases.len() == 3, "{} jobs were leased", leases.len());
    let first = leases.remove(0);
    ensure!(first.job == "done", "{} came first", first.job);
    ensure!(
        api.complete(&first, "kept") == Outcome::Done { is_repeat: false },
        "not completed"
    );
    Ok(leases)
}

/// Checks each job after the restart.
fn check_jobs(api: &mut Api, leases: &[Lease]) -> Result<()> {
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
        nothing == Outcome::Leased(Vec::new()),
        "the pause was lost: {nothing:?}"
    );

    // The leases from before the kill are valid, and no other worker got their jobs.
    let other = api.lease("work", "w2", 10, LEASE_FOR, Duration::ZERO);
    ensure!(
        other == Outcome::Leased(Vec::new()),
        "leased twice: {other:?}"
    );
    for lease in leases {
        ensure!(
            api.renew(lease) == Outcome::Done { is_repeat: false },
            "{} cannot be renewed",
            lease.job
        );
        ensure!(
            api.complete(lease, "after") == Outcome::Done { is_repeat: false },
            "{} cannot be completed",
            lease.job
        );
        let found = api
            .find(&lease.job)?
            .context("the leased job does not exist")?;
        ensure!(
            found.attempts == [1] && found.result.as_deref() == Some("after"),
            "{found:?}"
        );
    }
    Ok(())
}

//! A scenario that runs every operation once per round, one request after the other, and finishes all jobs afterwards.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api::Api;
use crate::history::{Exchange, History, Lease, Operation, Outcome, Recorder};
use crate::server::TIMEOUT;

const QUEUE: &str = "line";
const LEASE_FOR: Duration = Duration::from_secs(60);

/// Runs rounds, each with its own ids, until an answer is missing.
pub fn run(recorder: &Recorder, api: &mut Api, rounds: Range<u32>) {
    for round in rounds {
        if run_round(recorder, api, round).is_none() {
            return;
        }
    }
}

/// Runs one round; `None` as soon as an answer is missing.
fn run_round(recorder: &Recorder, api: &mut Api, round: u32) -> Option<()> {
    let id = |name: &str| format!("r{round}-{name}");
    enqueue(recorder, api, &[id("single")], |api| {
        api.enqueue(&job(&id("single")))
    })?;
    let graph = [id("first"), id("second"), id("third")];
    let jobs = [
        named_job(&graph[0]),
        job(&graph[1]),
        dependent_job(&graph[2], &graph[0]),
    ];
    enqueue(recorder, api, &graph, |api| api.submit(&jobs))?;

    let leases = lease(recorder, api)?;
    let first = leases.first()?.clone();
    require_answer(&recorder.exchange(
        Operation::Renew {
            lease: first.clone(),
        },
        || api.renew(&first),
    ))?;
    complete(recorder, api, &first)?;
    if let Some(second) = leases.get(1) {
        let operation = Operation::Fail {
            lease: second.clone(),
        };
        require_answer(
            &recorder.exchange(operation, || api.fail(second, Duration::from_millis(1))),
        )?;
    }
    if let Some(third) = leases.get(2) {
        require_answer(&recorder.exchange(
            Operation::Release {
                lease: third.clone(),
            },
            || api.release(third),
        ))?;
    }
    Some(())
}

fn job(id: &str) -> Value {
    json!({ "id": id, "queue": QUEUE, "kind": "step", "retry": { "max": 50, "backoff": "1ms" } })
}

/// Returns a job that others of the same submission can refer to.
fn named_job(id: &str) -> Value {
    let mut job = job(id);
    job["name"] = json!(id);
    job
}

/// Returns a job that waits for another one of the same submission.
fn dependent_job(id: &str, dependency: &str) -> Value {
    let mut job = job(id);
    job["after"] = json!([{ "name": dependency }]);
    job
}

fn enqueue(
    recorder: &Recorder,
    api: &mut Api,
    ids: &[String],
    send: impl FnOnce(&mut Api) -> Outcome,
) -> Option<()> {
    require_answer(&recorder.exchange(Operation::Enqueue { jobs: ids.to_vec() }, || send(api)))
}

fn lease(recorder: &Recorder, api: &mut Api) -> Option<Vec<Lease>> {
    let operation = Operation::Lease {
        worker: "w".to_owned(),
        lease_for: LEASE_FOR,
    };
    match recorder.exchange(operation, || {
        api.lease(QUEUE, "w", 3, LEASE_FOR, Duration::ZERO)
    }) {
        Outcome::Leased(leases) => Some(leases),
        _ => None,
    }
}

fn complete(recorder: &Recorder, api: &mut Api, lease: &Lease) -> Option<()> {
    let result = format!("{} by attempt {}", lease.job, lease.attempt);
    let operation = Operation::Complete {
        lease: lease.clone(),
        result: result.clone(),
    };
    require_answer(&recorder.exchange(operation, || api.complete(lease, &result)))
}

fn require_answer(outcome: &Outcome) -> Option<()> {
    (!matches!(outcome, Outcome::Unknown | Outcome::NotSent)).then_some(())
}

/// Finishes all jobs, first under the leases from before the fault, and reads them.
pub fn finish(api: &mut Api, recorder: &Recorder) -> Result<History> {
    let before = recorder.exchanges();
    let mut ids = Vec::new();
    for exchange in &before {
        match (&exchange.operation, &exchange.outcome) {
            (Operation::Enqueue { jobs }, _) => ids.extend(jobs.iter().cloned()),
            (Operation::Lease { .. }, Outcome::Leased(leases)) => {
                for lease in leases.iter().filter(|lease| !has_reported(&before, lease)) {
                    complete(recorder, api, lease);
                }
            }
            _ => {}
        }
    }
    free_lost_grants(api, &before, &ids)?;

    let begun = Instant::now();
    let mut found = Vec::new();
    for id in &ids {
        while let Some(state) = api.find(id)? {
            if state.state == "succeeded" {
                found.push(state);
                break;
            }
            ensure!(begun.elapsed() < TIMEOUT, "job {id} stays {}", state.state);
            for lease in self::lease(recorder, api).unwrap_or_default() {
                complete(recorder, api, &lease);
            }
        }
    }
    Ok(History {
        exchanges: recorder.exchanges(),
        found,
    })
}

fn has_reported(exchanges: &[Exchange], lease: &Lease) -> bool {
    exchanges.iter().any(|exchange| match &exchange.operation {
        Operation::Complete { lease: it, .. } => {
            it == lease && exchange.outcome != Outcome::Unknown
        }
        Operation::Fail { lease: it } | Operation::Release { lease: it } => it == lease,
        _ => false,
    })
}

/// Ends the leases whose answer was lost, which would otherwise run until they expire.
fn free_lost_grants(api: &mut Api, before: &[Exchange], ids: &[String]) -> Result<()> {
    let was_lost = before.iter().any(|exchange| {
        matches!(exchange.operation, Operation::Lease { .. })
            && exchange.outcome == Outcome::Unknown
    });
    let was_unclear = before.iter().any(|exchange| {
        matches!(
            exchange.operation,
            Operation::Fail { .. } | Operation::Release { .. }
        ) && exchange.outcome == Outcome::Unknown
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

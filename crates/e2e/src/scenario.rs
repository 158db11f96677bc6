//! A short life of everything, one request after the other, and how its loose ends are tied up afterwards.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::api::Api;
use crate::history::{Answered, Asked, Exchange, Held, History, Recorder};
use crate::server::PATIENCE;

const QUEUE: &str = "line";
const LEASE_FOR: Duration = Duration::from_secs(60);

/// Does so many rounds, each under ids of its own, until there is no answer.
pub fn run(recorder: &Recorder, api: &mut Api, rounds: Range<u32>) {
    for round in rounds {
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
fn after(id: &str, dependency: &str) -> Value {
    let mut job = job(id);
    job["after"] = json!([{ "name": dependency }]);
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
pub fn settle(api: &mut Api, recorder: &Recorder) -> Result<History> {
    let before = recorder.exchanges();
    let mut ids = Vec::new();
    for exchange in &before {
        match (&exchange.asked, &exchange.answered) {
            (Asked::Enqueue { jobs }, _) => ids.extend(jobs.iter().cloned()),
            (Asked::Lease { .. }, Answered::Leased(held)) => {
                for held in held.iter().filter(|held| !has_reported(&before, held)) {
                    complete(recorder, api, held);
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
            ensure!(begun.elapsed() < PATIENCE, "job {id} stays {}", state.state);
            for held in lease(recorder, api).unwrap_or_default() {
                complete(recorder, api, &held);
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

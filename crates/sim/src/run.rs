//! A run: load with faults, recovery, a drain with honest workers, and the final checks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use ganger_types::command::{ConfigureQueue, QueueChange, RemoveSchedule};
use ganger_types::{Command, NamespaceSettings, QueueSettings, Reply};

use crate::actor::{names, worker};
use crate::goals::Goals;
use crate::oracle::Violation;
use crate::run_log::Recording;
use crate::tape::Tape;
use crate::world::{StepOutcome, World, broken};

/// Maximum number of rounds of the drain before it counts as stalled.
const DRAIN_ROUNDS_MAX: usize = 4_000;

/// First step of the callers' clocks in microseconds, while nothing can be leased.
const CALLERS_STEP: u64 = 20_000_000;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of all events, in order.
    pub hash: u64,
    /// Number of events handled in the run.
    pub events: u64,
    /// Simulated time, in microseconds.
    pub simulated_micros: u64,
    /// Whether too little happened for the run to prove anything.
    pub is_void: bool,
    /// Violation that was found; `None` if there is none.
    pub violation: Option<Violation>,
    /// Last events as text; empty unless recorded.
    pub log: Vec<String>,
    pub(crate) goals: Goals,
}

/// Runs a tape. A panic of the code under test is a violation, not a panic of this function.
///
/// # Panics
/// If a tape has more than 2^64 steps.
pub fn run(tape: &Tape, recording: Recording) -> Outcome {
    match tape.level {
        3 => return crate::cluster::run(tape, recording),
        4 => return crate::remote::run(tape, recording),
        _ => {}
    }
    silence_panics();
    let mut world = None;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let world = world.insert(World::new(tape.clone(), recording));
        play(world)
    }));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => Some(broken("assertion", text_of(panic.as_ref()))),
    };
    let Some(world) = world else {
        let goals = Goals::default();
        let log = Vec::new();
        return Outcome {
            hash: 0,
            events: 0,
            simulated_micros: 0,
            is_void: false,
            violation,
            log,
            goals,
        };
    };
    let mut goals = world.oracle.goals.clone();
    goals.merge(&world.callers.goals);
    Outcome {
        hash: world.log.hash(),
        events: world.log.events(),
        simulated_micros: world.time,
        is_void: world.answered * 5 < u64::try_from(world.tape.len()).expect("few steps"),
        violation,
        log: world.log.lines(),
        goals,
    }
}

fn play(world: &mut World) -> StepOutcome {
    world.load()?;
    world.full_check()?;
    heal(world)?;
    drain(world)?;
    world.full_check()?;
    all_ended(world)
}

fn all_ended(world: &World) -> StepOutcome {
    world.oracle.all_ended()?;
    world.callers.all_ended()
}

/// Stops the faults, starts the shard, lifts pauses and limits, and removes the schedules.
fn heal(world: &mut World) -> StepOutcome {
    world.is_healed = true;
    world.clocks.heal();
    world.retry_shard()?;
    for namespace in names::namespaces(&world.plan) {
        for number in 0..world.plan.queues {
            let queue = names::queue_number(number);
            let change = QueueChange::All(QueueSettings::default());
            let cmd = ConfigureQueue {
                namespace: namespace.clone(),
                queue,
                change,
            };
            world.ask(&Command::ConfigureQueue(Box::new(cmd)))?.ok();
        }
        let settings = NamespaceSettings {
            clock: names::clock(&namespace),
            ..NamespaceSettings::default()
        };
        let cmd = ganger_types::command::ConfigureNamespace {
            namespace: namespace.clone(),
            settings,
        };
        world.ask(&Command::ConfigureNamespace(Box::new(cmd)))?.ok();
        let names: Vec<_> = world.rows.schedules.keys().cloned().collect();
        for (owner, id) in names {
            if owner == namespace {
                let cmd = RemoveSchedule {
                    namespace: owner,
                    id,
                };
                world.ask(&Command::RemoveSchedule(cmd))?.ok();
            }
        }
    }
    Ok(())
}

fn drain(world: &mut World) -> StepOutcome {
    for round in 0..DRAIN_ROUNDS_MAX {
        if world.rows.live.is_empty() || all_ended(world).is_ok() {
            return Ok(());
        }
        let name = names::worker(100, u64::try_from(round).expect("few rounds"));
        let mut granted = 0;
        for namespace in names::namespaces(&world.plan) {
            let lease = worker::lease_all(&world.plan, namespace, name.clone());
            let answer = world.ask(&Command::Lease(Box::new(lease)))?;
            let Ok(Reply::Leased(grants)) = answer else {
                return Err(broken(
                    "T8",
                    format!("an honest worker was refused: {answer:?}"),
                ));
            };
            granted += grants.len();
            for grant in grants {
                let mut hand = worker::SimWorker::new(100);
                let place = hand.takes(&grant);
                let report = worker::honest(&hand.tasks[place]);
                let answer = world.ask(&report)?;
                if answer.is_err() {
                    return Err(broken(
                        "T8",
                        format!("an honest report was refused: {answer:?}"),
                    ));
                }
            }
        }
        if granted > 0 {
            continue;
        }
        if world.callers.all_ended().is_err() {
            // No timer of the shard acts in that namespace: the next command carries the time. Advance in growing
            // steps, because a clock that had jumped may have set times a year ahead.
            let rounds = u64::try_from(round + 1).expect("few rounds");
            world.time += CALLERS_STEP * rounds * rounds;
            world.look_after()?;
        } else if !world.pass_time()? {
            break;
        }
    }
    all_ended(world)
}

pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    let place = LAST_PANIC
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    format!(
        "{} at {place}",
        text.unwrap_or_else(|| "a panic".to_owned())
    )
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Installs a panic hook that records the location and prints nothing, because a panic is a violation.
pub(crate) fn silence_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let previous: Arc<dyn Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync> =
            Arc::from(std::panic::take_hook());
        std::panic::set_hook(Box::new(move |info| {
            let place = info.location().map(ToString::to_string).unwrap_or_default();
            if place.contains("crates/sim/tests") {
                previous(info);
            }
            *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = place;
        }));
    });
}

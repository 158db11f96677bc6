//! Level 3: two to five shards, the network between them, and clients that submit to several at once.
//!
//! Each shard is an engine over the model store, as at level 1. Batches are lost, duplicated and delayed; shards are
//! partitioned, killed and restarted from their rows; submitters die. At the end all faults stop, and every job must
//! end as the oracle predicts.

mod again;
mod coordinator;
mod drain;
pub(crate) mod goals;
mod graphs;
mod network;
mod node;
mod oracle;
pub(crate) mod planted;
mod prefetch;
mod steps;
mod store;
mod world;

pub(crate) use world::hours;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::run::{Outcome, silence_panics, text_of};
use crate::run_log::Recording;
use crate::tape::Tape;

/// Runs a tape of level 3.
pub(crate) fn run(tape: &Tape, recording: Recording) -> Outcome {
    silence_panics();
    let mut world = world::World::new(tape.clone(), recording);
    let result = catch_unwind(AssertUnwindSafe(|| {
        world.load()?;
        world.finish()
    }));
    let violation = match result {
        Ok(Ok(())) => None,
        Ok(Err(violation)) => Some(violation),
        Err(panic) => Some(crate::world::broken("assertion", text_of(panic.as_ref()))),
    };
    let steps = u64::try_from(tape.len()).expect("few steps");
    Outcome {
        hash: world.log.hash(),
        events: world.log.events(),
        simulated_micros: world.time,
        is_void: world.answered * 5 < steps,
        violation,
        log: world.log.lines(),
        goals: world.oracle.goals.clone(),
    }
}

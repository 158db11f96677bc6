//! Level 4: one shard in a database on another machine, and several processes that may own it.
//!
//! The rules under test are the product's: the claim, the commit, the rows behind the log and the taking back of
//! `store-postgres`, and the core of `shard`. Behind them is a model of PostgreSQL: statements that go on without their
//! connections, shared and exclusive locks, a standby that lags and takes the server's place, with and without loss,
//! and waits for it that are cancelled. Processes stand still, die and lose their connections; their clocks drift, and
//! their wall clocks are hours apart.

mod backend;
mod clients;
mod execute;
mod finish;
pub(crate) mod goals;
mod host;
mod locks;
mod oracle;
mod plan;
pub(crate) mod planted;
mod process;
mod server;
mod statement;
mod tables;
#[cfg(test)]
mod tests;
mod thread;
mod trouble;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::run::{Outcome, silence_panics, text_of};
use crate::run_log::Recording;
use crate::tape::Tape;

/// Runs a tape of level 4.
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

//! The simulator: production code under a simulated clock, network and store, determined by one seed.
//!
//! A seed becomes a [`Tape`], and a tape becomes a run: producers, workers and operators send commands, the network
//! loses them, the process dies, the clock jumps. A plain model predicts every answer and every stored row. At the
//! end faults stop and all jobs must end. A failing tape is shrunk and kept as a test.

#![forbid(unsafe_code)]

mod actor;
mod audit;
mod campaign;
mod chaos;
mod clients;
mod clock;
mod cluster;
mod decisions;
mod drain;
mod durable_turns;
mod faulty_store;
mod goals;
mod ledger;
mod oracle;
mod plan;
mod planted;
mod process;
mod remote;
mod rng;
mod rows;
mod run;
mod run_log;
mod shard_host;
mod shrink;
mod sim_ticket;
mod store_tasks;
mod tape;
mod world;

pub use campaign::{Hunt, Report, campaign, hunt};
pub use oracle::Violation;
pub use run::{Outcome, run};
pub use run_log::Recording;
pub use shrink::shrink;
pub use tape::Tape;

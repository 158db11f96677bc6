//! A pool of workers that insert NGSI entities, each in its own process.
//!
//! The tasks are ordinary jobs of ganger, created by its QuantumLeap API. The pool holds their leases and communicates
//! with the server. Only its *children* use the database: processes of the same binary that receive batches of tasks on
//! standard input and reply on standard output. A crash, leak or hang of a child affects only the task that caused it.
//!
//! # The parts
//!
//! [`run()`] runs the pool (`pool`, based on `ganger_worker::run_pool`). Deliveries wait (`waiting`) until they are
//! distributed to the workers (`slot`). Each worker keeps one child (`child`), and `restarts` decides when a dead child is
//! replaced. `outcome` and `reporter` report the results of tasks to the server. The metrics are in `metrics`.
//!
//! # For binaries that host a pool
//!
//! [`Settings::program`] says how children are started; the started program must call [`insert_for_parent`].

#![forbid(unsafe_code)]

mod burst;
mod child;
mod entry;
mod error;
mod metrics;
mod outcome;
mod pool;
mod rate;
mod reporter;
mod restarts;
mod sample;
mod settings;
mod slot;
mod source;
mod variables;
mod waiting;

pub use entry::insert_for_parent;
pub use error::Error;
pub use ganger_worker::{Deliveries, Reports, Shutdown, shutdown_on_signals};
pub use pool::{Summary, run, run_with};
pub use settings::{Program, Settings, WORKERS_MAX};
pub use source::{QueueState, ServerQueries};
pub use variables::variables;

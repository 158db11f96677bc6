//! A pool of workers that insert NGSI entities, each in its own process.
//!
//! The tasks are ordinary jobs of ganger, made by its QuantumLeap API. The pool holds their leases and communicates
//! with the server; only its *children* use the database: processes of the same binary that get batches of tasks on
//! standard input and answer on standard output. A child may crash, leak or hang; that affects only the task that
//! caused it.
//!
//! # The parts
//!
//! [`run()`] is the pool (`pool`, in the frame of `ganger_worker::run_pool`): deliveries arrive, wait (`waiting`),
//! and are distributed to the workers (`slot`), each of which keeps one child (`child`) and decides what its death
//! means (`restarts`). The results of tasks go to the server (`outcome`, `reporter`). The metrics are in `metrics`.
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

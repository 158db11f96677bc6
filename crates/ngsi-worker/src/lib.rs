//! A pool of workers that insert NGSI entities, each insert in a process of its own.
//!
//! The tasks are ordinary jobs of ganger, made by its QuantumLeap interface. The pool holds their leases and talks to
//! the server; the database is touched only by its *children*: processes of the same binary that get batches of tasks
//! on standard input and answer on standard output. A child may crash, leak or hang; that costs the task that made it,
//! and nothing else.
//!
//! # The parts
//!
//! [`run()`] is the pool (`pool`, in the frame of `ganger_worker::run_pool`): deliveries come in, wait (`waiting`), and
//! are dealt out to the workers (`slot`), each of which keeps one child (`child`) and decides what its death means
//! (`restarts`). How tasks ended goes to the server (`outcome`, `reporter`). What others may read of it is in `metrics`, shown by `ganger_worker::show_metrics`.
//!
//! # For binaries that host a pool
//!
//! The children are started as [`Settings::program`] says; whatever that is ends in [`insert_for_parent`].

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

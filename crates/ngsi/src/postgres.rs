//! Inserts the entities of tasks into PostgreSQL, each task exactly once, and creates missing tables and columns.
//!
//! An attempt to insert a batch of tasks goes through these modules:
//!
//! 1. `inserter`: repeats transactions and determines the outcome of each task;
//! 2. `session`: opens the connection when it is needed, and again when it broke;
//! 3. `tables`: creates missing schemas, tables, columns and indexes, in separate transactions;
//! 4. `insert_batch`: inserts all tasks in one transaction, with one `COPY` per table and set of columns (`copy`);
//! 5. `insert_single`: if that failed, inserts each task in its own transaction, and saves entities that do not fit as
//!    JSON;
//! 6. `session_error`: decides whether an error is retryable, and formats it as QuantumLeap does.
//!
//! [`executor`] does this in a child process of a worker. The two communicate through the lines of [`protocol`].

mod copy;
pub mod executor;
mod insert_batch;
mod insert_single;
mod inserter;
mod locks;
pub mod protocol;
mod session;
mod session_error;
mod settings;
mod tables;
mod task_rows;
mod tls;

use std::time::Instant;

use crate::task::Task;

pub use inserter::Inserter;
pub use settings::{Settings, UrlError};

/// A task to insert.
#[derive(Clone, Debug)]
pub struct TaskInsert {
    /// The task whose rows to insert.
    pub task: Task,
    /// UUID of the task, 32 hexadecimal digits. The ids of its rows are derived from it.
    pub uuid: String,
    /// Whether an earlier attempt may have inserted the task. Then its rows are looked up first.
    pub is_repeat: bool,
    /// Time from which another worker may have the same task, so that its rows are looked up first; `None` for never.
    pub exclusive_until: Option<Instant>,
}

/// The result of inserting a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertSummary {
    /// Number of the task's rows in the database.
    pub rows: u64,
}

/// A task was not inserted; none of its rows is in the database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InsertError {
    /// The text that QuantumLeap shows in `errors`.
    pub message: String,
    /// Whether a later attempt may succeed.
    pub is_retryable: bool,
}

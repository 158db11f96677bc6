//! Inserts the entities of tasks into PostgreSQL: tables and columns made as they are needed, each task once.
//!
//! An attempt at a batch of tasks goes through these files:
//!
//! 1. `inserter`: what is tried, how often, and what becomes of each task of a batch;
//! 2. `session`: the connection, made when it is needed and again when it broke;
//! 3. `tables`: schemas, tables, columns and indexes that are missing are made, in transactions of their own;
//! 4. `insert_batch`: one transaction for all tasks, one `COPY` for all rows that go into the same columns (`copy`);
//! 5. `insert_single`: where that failed, a transaction per task, in which entities that do not fit are saved as JSON;
//! 6. `faults`: what an error means for the task, and the words in which it is shown.
//!
//! [`executor`] does this in a child process for a worker, which talks to it in [`protocol`]'s lines.

mod copy;
pub mod executor;
mod faults;
mod insert_batch;
mod insert_single;
mod inserter;
mod locks;
pub mod protocol;
mod session;
mod settings;
mod tables;
mod tls;
mod work;

use std::time::Instant;

use crate::task::Task;

pub use inserter::Inserter;
pub use settings::{Settings, UrlError};

/// A task to insert.
#[derive(Clone, Debug)]
pub struct Insert {
    /// The task whose rows to insert.
    pub task: Task,
    /// The task's own part of its id, 32 hexadecimal digits: what is inserted of it is recognised by that.
    pub uuid: String,
    /// Whether an earlier attempt may have been inserted: then that is looked up first.
    pub is_repeat: bool,
    /// From this moment on somebody else may have been given the same task: then it is looked up too.
    pub sole_until: Option<Instant>,
}

/// A task that is in the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Rows in the database because of it.
    pub rows: u64,
}

/// A task that is not in the database; nothing of it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InsertError {
    /// In the words in which QuantumLeap shows it in `errors`.
    pub message: String,
    /// Whether a later attempt may go well.
    pub is_curable: bool,
}

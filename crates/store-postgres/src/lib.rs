//! The store of ganger in PostgreSQL: one shard is one schema, with one owner at a time.
//!
//! A commit is one statement that appends its record to a log table, if the epoch of the shard is still the owner's.
//! Its rows follow in the tables, together with those of many other commits. Safety rests on a lock in the database
//! and never on a clock: a claim waits for the statements of the last owner and shuts out what comes later.

#![forbid(unsafe_code)]

mod admin;
mod claim;
mod columns;
mod database;
mod durability;
mod fault;
mod header;
mod limits;
mod log;
mod names;
mod record;
mod schema;
mod session;
mod settings;
mod tls;

pub use admin::{Admin, AdminError, SHARDS_MAX};
pub use database::Database;
pub use durability::{Durability, DurabilityMode};
#[doc(hidden)]
pub use limits::Limits;
pub use settings::{PasswordSource, Settings, SettingsError};

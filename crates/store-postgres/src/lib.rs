//! The store of ganger in PostgreSQL: one shard is one schema, with one owner at a time.
//!
//! A commit is one statement that appends its record to a log table, if the epoch of the shard is still the owner's.
//! Its rows follow in the tables, together with those of many other commits. Safety rests on a lock in the database
//! and never on a clock: a claim waits for the statements of the last owner and shuts out what comes later.

#![forbid(unsafe_code)]

#[cfg(test)]
extern crate self as ganger_store_postgres;

mod admin;
mod ages;
mod backend;
mod claim;
mod columns;
mod connect;
mod control;
mod count;
mod database;
mod durability;
mod expired_jobs;
mod export;
mod fault;
mod fence;
mod formats;
mod header;
mod import;
mod limits;
mod list;
mod load;
mod log;
mod lookup;
mod mark;
mod names;
mod newest;
mod nodes;
mod placement;
mod plan;
mod postgres;
mod reader;
mod record;
mod rewind;
mod row_columns;
mod row_tables;
mod row_thread;
mod rows;
mod schema;
mod session;
mod settings;
mod settings_error;
mod shared;
mod standby_wait;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod tls;
mod transfer;

pub use admin::{Admin, AdminError, SHARDS_MAX};
pub use ages::DatabaseAges;
pub use control::{Directory, ShardEntry, ShardStatus};
pub use database::Database;
pub use durability::{Durability, durability};
pub use formats::{Formats, NextFormat};
pub use ganger_store::DurabilityMode;
pub use import::Imported;
#[doc(hidden)]
pub use limits::Limits;
pub use mark::{KnownMark, Mark};
pub use newest::{NewestServer, ServerIdentity, ServerRun};
pub use nodes::{
    BEAT_EVERY, BeatError, Holds, Member, NodeName, OWNERSHIP_LEASE, OWNERSHIP_LEASE_MAX,
    OWNERSHIP_LEASE_MIN, SILENT_AFTER, Seen, SeenNode, SeenShard, finalize, move_shard,
    set_draining,
};
pub use reader::PostgresReader;
pub use rewind::{RewindError, accept_rewind};
pub use settings::{PasswordSource, Settings};
pub use settings_error::SettingsError;
pub use store::{PostgresStore, ShardStore};

/// The rules of a shard's owner apart from the statements: the simulator runs them over a model of the database.
pub mod rules {
    pub use crate::backend::{
        Backend, ClaimTables, FenceRow, LockWait, LogRecord, LogTables, RowTables, RowWrite,
        SlotEnd,
    };
    pub use crate::fault::Fault;
    pub use crate::fence::{Claimant, Fence, Ownership};
    pub use crate::header::Header;
    pub use crate::log::Target;
    pub use crate::mark::epoch_after_rewind;
    pub use crate::postgres::{Postgres, PostgresClaim, PostgresLog};
    pub use crate::record::{Place, in_rows, open};
    pub use crate::row_tables::PostgresRows;
    pub use crate::shared::Shared;
}

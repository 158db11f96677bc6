//! The embedded store of ganger, on SQLite: one file, one writer, and readers that never block it.
//!
//! Each acknowledged commit is one flushed record in the turn log. Its rows follow in the tables, together with those
//! of many other commits. Every row carries a checksum that every read verifies.

#![forbid(unsafe_code)]

mod audit;
mod backup;
mod commit;
mod connect;
mod count;
mod create;
mod expired_jobs;
mod export;
mod fault;
mod flushes;
mod graph;
mod import;
mod limits;
mod list;
mod load;
mod lock;
mod lookup;
mod meta;
mod reader;
mod recover;
mod reserve;
mod row_thread;
mod rows;
mod run;
mod schema;
mod session;
mod shared;
mod small;
mod statements;
mod store;
mod tables;
#[cfg(test)]
mod tests;
mod turns;
mod upgrade;
mod wal;

pub use audit::{AuditReport, Finding, check};
pub use backup::backup;
pub use export::Export;
pub use import::Import;
#[doc(hidden)]
pub use limits::Limits;
pub use reader::EmbeddedReader;

pub use store::EmbeddedStore;

//! The embedded store of ganger, on SQLite: one file, one writer, readers that never stop it.
//!
//! Every row carries a checksum that is verified at every read. The commit that is acknowledged is
//! flushed; its epoch and sequence are checked inside its own transaction.

#![forbid(unsafe_code)]

mod audit;
mod backup;
mod commit;
mod connect;
mod count;
mod create;
mod fault;
mod list;
mod load;
mod lock;
mod marks;
mod meta;
mod names;
mod reader;
mod retirees;
mod row;
mod run;
mod schema;
mod small;
mod statements;
mod store;
#[cfg(test)]
mod tests;
mod upgrade;
mod wal;

pub use audit::{Finding, Report, check};
pub use backup::backup;
pub use reader::EmbeddedReader;
pub use store::EmbeddedStore;

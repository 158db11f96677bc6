//! The embedded store of ganger, on SQLite: one file, one writer, and readers that never block it.
//!
//! Every row carries a checksum that every read verifies. Each acknowledged commit is flushed: a large one in the
//! tables, a small one in a separate turn log, from which many are written into the tables together.

#![forbid(unsafe_code)]

mod audit;
mod backup;
mod commit;
mod connect;
mod count;
mod create;
mod expired_jobs;
mod external;
mod fault;
mod list;
mod load;
mod lock;

mod meta;
mod names;
mod reader;
mod recover;
mod reserve;
mod row;
mod run;
mod schema;
mod secondary_index;
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
pub use reader::EmbeddedReader;
#[doc(hidden)]
pub use session::Limits;
pub use store::EmbeddedStore;

//! Where changes are kept: the `Store` trait, the record encoding, a memory store, one suite for all.
//!
//! A store applies the commits of one shard, in order, each whole or not at all, and gives them back:
//! to the engine at start (`Store::load`), to everyone else through readers that never stop the writer.

#![forbid(unsafe_code)]

pub mod encoding;
mod error;
pub mod memory;
pub mod merge;
mod reader;
mod repeated;
pub mod rows;
pub mod select;
mod store;
#[cfg(feature = "suite")]
pub mod suite;
pub mod waiting;

pub use error::{CommitError, StoreError};
pub use ganger_types::StoredJob;
pub use memory::MemoryStore;
pub use reader::{LogChunk, Page, Reader};
pub use repeated::{Line, Over, Repeated};
pub use store::{Loaded, Opened, Reserve, Store, statistics_loaded_from};

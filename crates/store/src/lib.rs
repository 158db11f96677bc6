//! Stores: the `Store` trait, the record encoding, a memory store, and one test suite for all stores.
//!
//! A store applies the commits of one shard, in order, each completely or not at all. The engine reads them back at
//! its start (`Store::load`), everything else through readers, which never block the writer.

#![forbid(unsafe_code)]

pub mod encoding;
mod error;
pub mod graph;
mod hold;
mod log_state;
pub mod memory;
pub mod merge;
mod number_map;
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
pub use hold::StoreHold;
pub use log_state::{DurabilityMode, LogState};
pub use memory::MemoryStore;
pub use number_map::{NumberHasher, NumberMap};
pub use reader::{
    Count, EndedPage, IndexedValue, LogChunk, Looked, Page, Reader, ValueCount, ValuePage,
    ValueQuery,
};
pub use repeated::{Line, RepeatedWarning, SeriesEnd};
pub use store::{Loaded, Opened, Reserve, Store, statistics_loaded_from};

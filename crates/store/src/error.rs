//! What can go wrong with a store: commits that did not take place, stores that cannot be used.

use ganger_types::Epoch;

/// Why a commit did not take place, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written; the store goes on. The shard reloads the engine and may try new work.
    #[error("not written: {reason}")]
    NotApplied {
        /// Such as "disk full".
        reason: String,
        /// Whether it was for lack of space.
        is_full: bool,
    },
    /// A newer epoch owns the store: the shard must stop.
    #[error("epoch {ours:?} has been replaced by {theirs:?}: another process owns this store")]
    Fenced {
        /// The epoch of this writer.
        ours: Epoch,
        /// The epoch that owns the store.
        theirs: Epoch,
    },
    /// Whether it was written is not known: reopen the store and compare the sequence (`rel D6`).
    #[error("outcome unknown: {0}")]
    Unknown(String),
}

/// Why a store could not be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open (`rel D11`).
    #[error("the store {path} is in use by another process{holder}: stop that one first")]
    InUse {
        /// Path of the store.
        path: String,
        /// Its process id if known, such as ` (pid 123)`.
        holder: String,
    },
    /// Damage was found before the data was used (`rel D8`).
    #[error("the store {path} is damaged: {what}; run `ganger check {path}` to see all of it")]
    Damaged {
        /// Path of the store.
        path: String,
        /// Which table, row, and what is affected.
        what: String,
    },
    /// The file is none, or its first page is lost.
    #[error(
        "{path} is not a store of ganger, or its first page is lost: name the file of a store, or restore it from a backup"
    )]
    NotAStore {
        /// The path as it was given.
        path: String,
    },
    /// It was written by a newer version (`rel D14`).
    #[error(
        "the store {path} has format {found}, this program knows up to {known}: use a newer ganger"
    )]
    TooNew {
        /// Path of the store.
        path: String,
        /// Version in which the store is written.
        found: u32,
        /// Newest version that this program knows.
        known: u32,
    },
    /// A newer epoch owns the store, so that it cannot be taken back.
    #[error(
        "epoch {ours:?} of the store {path} has been replaced by {theirs:?}: another process owns it"
    )]
    Fenced {
        /// Path of the store.
        path: String,
        /// The epoch that was to be taken back.
        ours: Epoch,
        /// The epoch that owns the store.
        theirs: Epoch,
    },
    /// It belongs to another shard.
    #[error(
        "the store {path} belongs to shard {found}, not {wanted}: give the right --shard or another --db"
    )]
    OtherShard {
        /// Path of the store.
        path: String,
        /// The shard that owns the store.
        found: String,
        /// The shard that opened the store.
        wanted: String,
    },
    /// The device has no room for what has to be written; the same works once there is some.
    #[error("the store {path} cannot be {doing}: the disk is full ({reason}); free some space")]
    Full {
        /// Path of the store.
        path: String,
        /// Such as `opened`, `read`.
        doing: &'static str,
        /// Message of the operating system.
        reason: String,
    },
    /// The operating system refused an operation.
    #[error("the store {path} cannot be {doing}: {reason}")]
    Io {
        /// Path of the store.
        path: String,
        /// Such as `opened`, `read`.
        doing: &'static str,
        /// Message of the operating system.
        reason: String,
    },
}

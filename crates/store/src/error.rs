//! Errors of stores.

use ganger_types::Epoch;

/// Why a commit failed or may have failed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written, and the store can be used further. The shard reloads the engine.
    #[error("not written: {reason}")]
    NotApplied {
        /// Message of the cause, such as "disk full".
        reason: String,
        /// Whether the device is full.
        is_full: bool,
    },
    /// A process with a newer epoch owns the store: the shard must stop.
    #[error("epoch {ours:?} has been replaced by {theirs:?}: another process owns this store")]
    Fenced {
        /// The epoch of this writer.
        ours: Epoch,
        /// The epoch that owns the store.
        theirs: Epoch,
    },
    /// It is not known whether the commit was written: reopen the store and compare the sequence (`rel D6`).
    #[error("outcome unknown: {0}")]
    Unknown(String),
}

/// Why a store could not be opened or read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has the store open (`rel D11`).
    #[error("the store {path} is in use by another process{holder}: stop that one first")]
    InUse {
        /// Path of the store.
        path: String,
        /// Process id of the other process, such as ` (pid 123)`; empty if unknown.
        holder: String,
    },
    /// Damage was found before the data was used (`rel D8`).
    #[error("the store {path} is damaged: {what}; run `ganger check {path}` to see all of it")]
    Damaged {
        /// Path of the store.
        path: String,
        /// Table, row and job that are damaged.
        what: String,
    },
    /// The file is not a store, or its first page is lost.
    #[error(
        "{path} is not a store of ganger, or its first page is lost: name the file of a store, or restore it from a backup"
    )]
    NotAStore {
        /// Path of the file.
        path: String,
    },
    /// A newer version wrote the store (`rel D14`).
    #[error(
        "the store {path} has format {found}, this program knows up to {known}: use a newer ganger"
    )]
    TooNew {
        /// Path of the store.
        path: String,
        /// Format of the store.
        found: u32,
        /// Newest format that this program knows.
        known: u32,
    },
    /// A newer epoch owns the store, so that it cannot be taken back.
    #[error(
        "epoch {ours:?} of the store {path} has been replaced by {theirs:?}: another process owns it"
    )]
    Fenced {
        /// Path of the store.
        path: String,
        /// The epoch that the caller wanted to take back.
        ours: Epoch,
        /// The epoch that owns the store.
        theirs: Epoch,
    },
    /// The store has lost commits that were confirmed: its server went back in time.
    #[error(
        "the store {path} went back in time: it ends with commit {found} of epoch {found_epoch}, and commit {known} of epoch {known_epoch} was confirmed before; if this is the state to continue with, run `ganger cluster accept-rewind SHARD --at {found}`"
    )]
    Rewound {
        /// Path of the store.
        path: String,
        /// Sequence of its last commit.
        found: u64,
        /// Number of its last claim.
        found_epoch: u64,
        /// Largest sequence that was confirmed.
        known: u64,
        /// Epoch in which it was confirmed.
        known_epoch: u64,
    },
    /// The store belongs to another shard.
    #[error(
        "the store {path} belongs to shard {found}, not {wanted}: give the right --shard or another --db"
    )]
    OtherShard {
        /// Path of the store.
        path: String,
        /// Shard that owns the store.
        found: String,
        /// Shard that tried to open the store.
        wanted: String,
    },
    /// The device is full; the same operation works once there is space.
    #[error("the store {path} cannot be {doing}: the disk is full ({reason}); free some space")]
    Full {
        /// Path of the store.
        path: String,
        /// The failed operation as a participle, such as `opened` or `read`.
        doing: &'static str,
        /// Message of the operating system.
        reason: String,
    },
    /// The store cannot be reached now. The same works once it answers again, and nothing of it is known to be lost.
    #[error("the store {path} cannot be reached: {reason}; work goes on as soon as it answers")]
    Unreachable {
        /// Path of the store.
        path: String,
        /// Message of the connection.
        reason: String,
    },
    /// The operating system refused an operation.
    #[error("the store {path} cannot be {doing}: {reason}")]
    Io {
        /// Path of the store.
        path: String,
        /// The failed operation as a participle, such as `opened` or `read`.
        doing: &'static str,
        /// Message of the operating system.
        reason: String,
    },
}

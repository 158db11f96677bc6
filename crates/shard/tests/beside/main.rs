//! The tests of the shard again, over a store on another machine: commits run on the store's thread, and rows are read
//! beside the shard. What callers see is the same.

/// Whether the store of the tests is on another machine.
const IS_REMOTE: bool = true;

#[path = "../it/acknowledge.rs"]
mod acknowledge;
#[path = "../it/broken.rs"]
mod broken;
#[path = "../it/core_property.rs"]
mod core_property;
#[path = "../it/delivery.rs"]
mod delivery;
#[path = "../it/failures.rs"]
mod failures;
#[path = "../it/full.rs"]
mod full;
#[path = "../it/kit.rs"]
mod kit;
#[path = "../it/popping.rs"]
mod popping;
#[path = "../it/reads.rs"]
mod reads;
#[path = "../it/recovery.rs"]
mod recovery;
#[path = "../it/waiting.rs"]
mod waiting;

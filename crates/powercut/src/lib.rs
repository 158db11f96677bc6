//! Power cuts under the embedded store.
//!
//! A run of the real store is recorded at its system calls: each write, truncation, creation, removal, renaming and flush
//! of each of its files. Then the power is cut after every one of these events, and the states that the disk may be left
//! in are opened by the real store. All that was acknowledged has to be there, at most the one commit that was being made
//! besides, and nothing else. What recovery does is recorded too, and cut.

mod disk;
mod explore;
mod planted;
mod record;
mod recovery;
mod rng;
mod search;
mod syscalls;
mod workload;

pub use explore::{Counts, Effort, Explorer, StartState, Violation};
pub use planted::PlantedBug;
pub use search::{ALPHABET, every_sequence, hunt, random};
pub use workload::Step;

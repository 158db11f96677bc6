//! Power cuts under the embedded store.
//!
//! A run of the real store is recorded at its system calls: each write, truncation, creation, removal, rename and flush
//! of each of its files. The explorer then cuts the power after each of these events and opens, with the real store,
//! the states in which the cut can leave the disk. A recovered store must hold every acknowledged commit, may hold the
//! commit in progress, and must hold nothing else. Some recoveries are recorded and cut as well.

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

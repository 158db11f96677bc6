//! Power cuts under the embedded store.
//!
//! A run of the real store is recorded at its system calls: each write, truncation, creation, removal, renaming and flush
//! of each of its files. Then the power is cut after every one of these events, and the states that the disk may be left
//! in are opened by the real store. All that was acknowledged has to be there, at most the one commit that was being made
//! besides, and nothing else. What recovery does is recorded too, and cut.

mod calls;
mod dice;
mod disk;
mod explore;
mod judge;
mod plant;
mod record;
mod search;
mod work;

pub use explore::{Base, Effort, Explorer, Tally, Violation};
pub use plant::Plant;
pub use search::{ALPHABET, every_sequence, hunt, random};
pub use work::Step;

//! qless without Lua: the rules of its script, as a state machine on the clocks of its callers.
//!
//! Pure and deterministic, as the engine whose part it is: requests in; replies, messages and changed rows out. What a
//! call does is described by the commands of the qless script, whose clients depend on each detail; the rules are those
//! of its second generation, and where the first and the third differ, the code says so.

#![forbid(unsafe_code)]

mod call;
mod commands;
mod dispatch;
mod events;
mod import;
mod inspect;
mod json;
mod native_lease;
mod number;
mod pages;
mod procedures;
mod recognise;
mod state;
mod statistics;
mod view;

pub use inspect::{QueueSizes, list_of, tag_text, text_of};
pub use native_lease::{Heartbeat, LeaseOptions, live_lease};
pub use recognise::{ScriptKind, recognise};
pub use state::{JobPosition, Qless, Touched};

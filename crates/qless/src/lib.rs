//! qless without Lua: the rules of its script as a state machine. Callers pass their own time in.
//!
//! Pure and deterministic, like the engine that uses it: requests come in; replies, messages and changed rows go out.
//! The behaviour is that of the commands of the qless script, because its clients depend on every detail. The rules are
//! those of the script's second generation; the code says where the first and the third differ.

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

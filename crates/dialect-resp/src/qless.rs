//! qless on the Redis port: calls of its script, the rights they need, and the few plain commands that read its keys.
//!
//! A call of the script goes to the engine with its words unchanged. Only the engine knows what a command does.

mod commands;
mod keys;
pub(crate) mod scripts;

pub(crate) use keys::COMMANDS;

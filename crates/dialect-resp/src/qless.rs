//! qless on this port: which scripts are its, who may call what, and the few plain commands that read its keys.
//!
//! A call of the script becomes a call of the engine, with its words as they came; what a command does is not known here.

mod commands;
mod keys;
pub(crate) mod scripts;

pub(crate) use keys::COMMANDS;

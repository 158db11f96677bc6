//! What each command returns, changes and publishes, and how it refuses a call, as clients see it.

mod caller;
mod config;
mod jobs;
mod log;
mod queues;
mod recur;
mod tag;
mod track;
mod workers;

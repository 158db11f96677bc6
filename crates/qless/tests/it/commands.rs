//! What each command answers, changes and tells, and how it refuses, as clients see it.

mod caller;
mod config;
mod jobs;
mod log;
mod queues;
mod recur;
mod tag;
mod track;
mod workers;

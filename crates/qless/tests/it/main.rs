//! The integration tests of this crate, in one program, because linking each program takes time.

mod commands;
mod harness;
mod jobs;
mod oddities;
mod random_calls;
mod refusals;
mod throttles;
mod touched;
mod worked_examples;

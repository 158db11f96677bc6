//! Tests of the crate through its public API.

mod drawings;
mod progress;
mod sample;

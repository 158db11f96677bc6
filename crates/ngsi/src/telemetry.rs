//! Samples of durations and sizes, in CSV files that others may read, move and delete while the program runs.
//!
//! The files have the form of QuantumLeap's telemetry, so that its users' analysis scripts read them: one directory, a
//! prefix for each sort of samples, and a new file whenever enough have gathered.

mod error;
mod runtime;
mod sampler;

pub use error::TelemetryError;
pub use runtime::{Usage, sample_runtime};
pub use sampler::{BUFFER_BYTES_MAX, Sampler};

/// Prefix of the files with how long things took: requests, and attempts of tasks.
pub const DURATION: &str = "duration";
/// Prefix of the files with what a process uses.
pub const RUNTIME: &str = "runtime";
/// Prefix of the files with what is measured from outside, such as the length of a queue.
pub const GAUGE: &str = "gauge";

//! Writes samples of durations and sizes to CSV files, which other programs may read, move and delete at any time.
//!
//! The files have the format of QuantumLeap's telemetry, so that existing analysis scripts can read them: one directory, a
//! prefix for each kind of samples, and a new file whenever the buffer is full.

mod error;
mod runtime;
mod sampler;

pub use error::TelemetryError;
pub use runtime::{Usage, sample_runtime};
pub use sampler::{BUFFER_BYTES_MAX, Sampler};

/// Prefix of the files with durations of requests and of attempts of tasks.
pub const DURATION: &str = "duration";
/// Prefix of the files with the resource usage of a process.
pub const RUNTIME: &str = "runtime";
/// Prefix of the files with gauges, such as the length of a queue.
pub const GAUGE: &str = "gauge";

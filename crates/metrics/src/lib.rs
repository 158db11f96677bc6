//! Metrics of every process: histograms that threads share, and the Prometheus text format.
//!
//! Each part of a process adds its families to one [`Exposition`] when the metrics are requested. The library
//! `prometheus` writes them; no other code writes the format.

#![forbid(unsafe_code)]

#[cfg(any(test, feature = "check"))]
mod check;
mod exposition;
mod histogram;

#[cfg(any(test, feature = "check"))]
pub use check::check;
pub use exposition::{CONTENT_TYPE, Exposition, HistogramFamily, NumberFamily, Source, Value};
pub use histogram::{Distribution, Histogram};

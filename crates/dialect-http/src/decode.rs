//! Inward conversion: documents of requests to commands. No rule of the queue lives here.

pub(crate) mod enq;
pub(crate) mod filter;
pub(crate) mod graph;
pub(crate) mod job;
pub(crate) mod lease;
mod place;
pub(crate) mod report;
pub(crate) mod schedule;
pub(crate) mod settings;
pub(crate) mod shape;
pub(crate) mod short;
pub(crate) mod word;

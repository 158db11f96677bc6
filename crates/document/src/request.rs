//! Documents of requests, and their conversion to commands.

pub mod bulk;
pub mod enq;
pub mod graph;
pub mod job;
pub mod lease;
pub mod operation;
pub mod report;
pub mod schedule;

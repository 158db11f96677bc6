//! Documents that ask for something, and the commands they stand for.

pub mod bulk;
pub mod enq;
pub mod graph;
pub mod job;
pub mod lease;
pub mod report;
pub mod schedule;

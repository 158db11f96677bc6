//! The typed calls, by area.

mod bulk;
mod graphs;
mod insight;
mod jobs;
mod leases;
mod operations;
mod queues;
mod schedules;
mod series;
mod server;
mod submit;

pub use bulk::Bulk;
pub use operations::{AlteredFields, NewOperation, OperationAction};
pub use submit::Submission;

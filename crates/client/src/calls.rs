//! The typed calls, by area.

mod bulk;
mod graphs;
mod insight;
mod jobs;
mod leases;
mod queues;
mod schedules;
mod submit;

pub use bulk::Bulk;
pub use submit::Submission;

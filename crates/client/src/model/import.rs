//! Records to import from another system.

use ganger_types::WorkItem;
use ganger_types::import::QlessSource;

use super::NewJob;

/// A record to import from another system.
#[derive(Clone, Debug)]
pub enum ImportRecord {
    /// A record of qless, as its script keeps it in Redis.
    Qless(Box<QlessSource>),
    /// An item of a work queue of raw keys.
    Item(Box<WorkItem>),
    /// A job of ganger.
    Job {
        /// The job to import, with its id.
        job: Box<NewJob>,
        /// Failure with which the job is imported as failed; `None` to import it as a live job.
        failed: Option<String>,
    },
}

//! Records of another server.

use ganger_types::WorkItem;
use ganger_types::import::QlessSource;

use super::NewJob;

/// A record of another server that is to be taken over.
#[derive(Clone, Debug)]
pub enum ImportRecord {
    /// A record of qless, as its script keeps it in Redis.
    Qless(Box<QlessSource>),
    /// An item of a work queue of raw keys.
    Item(Box<WorkItem>),
    /// A job of ours, which must have an id.
    Job {
        /// The job to import, with its id.
        job: Box<NewJob>,
        /// Why it has failed for good; `None`: it has not.
        failed: Option<String>,
    },
}

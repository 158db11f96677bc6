//! Commands: one file per command, or per group of commands that share rules.

mod alter;
mod audit;
mod cancel;
mod complete;
mod configure;
mod delete;
mod dependencies;
mod enqueue;
mod fail;
mod fingerprint;
mod lease;
mod log;
mod operation;
mod release;
mod renew;
mod report;
mod retry;
mod schedule;

pub(crate) use enqueue::{Batch, check_references, edges_of};
pub(crate) use fingerprint::Fingerprint;
pub(crate) use operation::forgotten_at;
pub(crate) use report::{ended, goes_on};
pub(crate) use retry::{RetryPlan, RetryScope, job_of};

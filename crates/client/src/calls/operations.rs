//! Calls for operations: actions on all jobs that match a filter, done in the background.

use std::time::Duration;

use ganger_proto::convert;
use ganger_proto::v1;

use super::jobs::call;
use crate::Client;
use crate::convert::{labels, ms, new_start};
use crate::error::Error;
use crate::model::{BulkResult, JobFilter, Operation, Start};

/// An operation to start.
#[derive(Clone, Debug, PartialEq)]
pub struct NewOperation {
    /// What to do with each job.
    pub action: OperationAction,
    /// Conditions on the jobs; at least one.
    pub filter: JobFilter,
    /// Maximum number of jobs to change; `None`: no limit.
    pub at_most: Option<u64>,
    /// Time over which to spread the changes, at most 7 days; `None`: as soon as possible.
    pub spread_over: Option<Duration>,
    /// Reason, for people and for the audit log; may be empty.
    pub reason: String,
}

/// What an operation does with each job.
#[derive(Clone, Debug, PartialEq)]
pub enum OperationAction {
    /// Cancels the job, if it has not ended.
    Cancel,
    /// Puts the finished job back on its queue, or on the named one. Dependents are not retried with it: they match the
    /// filter too, or stay.
    Retry {
        /// Queue for the job; `None` for its own.
        queue: Option<String>,
    },
    /// Removes the job with everything that is stored about it.
    Delete,
    /// Changes fields of the job.
    Alter(AlteredFields),
}

/// Fields that an operation changes in each job; those that are `None` or empty stay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlteredFields {
    /// New priority; smaller runs first. For jobs that have not ended.
    pub priority: Option<i64>,
    /// New queue. For jobs that do not run.
    pub queue: Option<String>,
    /// New start. For jobs that are scheduled or ready; a delay counts from the change of each job.
    pub start: Option<Start>,
    /// Tags to add to the job.
    pub tags_added: Vec<String>,
    /// Tags to remove from the job; absent ones are ignored.
    pub tags_removed: Vec<String>,
    /// Labels to set, as key and value.
    pub labels_set: Vec<(String, String)>,
    /// Keys of labels to remove; absent ones are ignored.
    pub labels_removed: Vec<String>,
}

impl Client {
    /// Starts an operation. It goes on in the server, also after a restart of it.
    ///
    /// # Errors
    /// If the filter has no condition, too many operations run, or the server cannot be reached.
    pub async fn start_operation(&self, new: NewOperation) -> Result<Operation, Error> {
        let request = self.operation_request(new);
        let reply = call!(self, IfNothingChanged, operations_wire.start(request))?;
        Ok(convert::operation(reply)?)
    }

    /// Returns how many jobs an operation would change, without starting it. At most 100,000 jobs are looked at; with
    /// more, [`BulkResult::next`] is set, and the numbers are bounds.
    ///
    /// # Errors
    /// If the filter has no condition, or the server cannot be reached.
    pub async fn try_operation(&self, new: NewOperation) -> Result<BulkResult, Error> {
        let request = self.operation_request(new);
        Ok(call!(self, Safe, operations_wire.dry_run(request))?.into())
    }

    fn operation_request(&self, new: NewOperation) -> v1::StartOperationRequest {
        let mut request = v1::StartOperationRequest {
            namespace: self.namespace(),
            filter: Some(new.filter.into_wire(self.namespace())),
            at_most: new.at_most.unwrap_or(0),
            spread_over_ms: new.spread_over.map(ms),
            reason: new.reason,
            ..v1::StartOperationRequest::default()
        };
        let action = match new.action {
            OperationAction::Cancel => v1::OperationAction::Cancel,
            OperationAction::Retry { queue } => {
                request.queue = queue;
                v1::OperationAction::Retry
            }
            OperationAction::Delete => v1::OperationAction::Delete,
            OperationAction::Alter(fields) => {
                request.priority = fields.priority;
                request.queue = fields.queue;
                request.start = fields.start.map(new_start);
                request.tags_added = fields.tags_added;
                request.tags_removed = fields.tags_removed;
                request.labels_set = labels(fields.labels_set);
                request.labels_removed = fields.labels_removed;
                v1::OperationAction::Alter
            }
        };
        request.set_action(action);
        request
    }

    /// Returns an operation by its name, such as `op-7`, or `shard/op-7`.
    ///
    /// # Errors
    /// `operation_not_found`, or if the server cannot be reached.
    pub async fn operation(&self, operation: &str) -> Result<Operation, Error> {
        let request = self.operation_named(operation);
        let client = self.for_job(operation);
        Ok(convert::operation(call!(
            client,
            Safe,
            operations_wire.get(request)
        )?)?)
    }

    /// Returns a page of operations, newest first, and the name to pass as `after` for the next one; at most `limit`
    /// operations (100 if 0).
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn operations(
        &self,
        after: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Operation>, Option<String>), Error> {
        let request = v1::OperationsRequest {
            namespace: self.namespace(),
            after: after.unwrap_or_default().to_owned(),
            limit,
        };
        let reply = call!(self, Safe, operations_wire.list(request))?;
        let found = reply.operations.into_iter();
        let found = found.map(|one| Ok(convert::operation(one)?));
        let next = convert::non_empty(reply.next);
        Ok((found.collect::<Result<_, Error>>()?, next))
    }

    /// Stops an operation, and returns it; what it has done stays.
    ///
    /// # Errors
    /// `operation_not_found`, or if the server cannot be reached.
    pub async fn stop_operation(&self, operation: &str) -> Result<Operation, Error> {
        let request = self.operation_named(operation);
        let client = self.for_job(operation);
        Ok(convert::operation(call!(
            client,
            Safe,
            operations_wire.stop(request)
        )?)?)
    }

    fn operation_named(&self, operation: &str) -> v1::OperationRequest {
        let name = operation.rsplit('/').next().unwrap_or_default();
        v1::OperationRequest {
            namespace: self.namespace(),
            operation: name.to_owned(),
        }
    }
}

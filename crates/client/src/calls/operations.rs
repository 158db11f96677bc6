//! Calls for operations: actions on all jobs that match a filter, done in the background.

use std::time::Duration;

use ganger_proto::convert;
use ganger_proto::v1;

use super::jobs::call;
use crate::Client;
use crate::convert::ms;
use crate::error::Error;
use crate::model::{BulkAction, JobFilter, Operation};

/// An operation to start.
#[derive(Clone, Debug, PartialEq)]
pub struct NewOperation {
    /// What to do with each job. A retry does not retry dependents: they match the filter too, or stay.
    pub action: BulkAction,
    /// Conditions on the jobs; at least one.
    pub filter: JobFilter,
    /// Maximum number of jobs to change; `None`: no limit.
    pub at_most: Option<u64>,
    /// Time over which to spread the changes, at most 7 days; `None`: as soon as possible.
    pub spread_over: Option<Duration>,
}

impl Client {
    /// Starts an operation. It goes on in the server, also after a restart of it.
    ///
    /// # Errors
    /// If the filter has no condition, too many operations run, or the server cannot be reached.
    pub async fn start_operation(&self, new: NewOperation) -> Result<Operation, Error> {
        let mut request = v1::StartOperationRequest {
            namespace: self.namespace(),
            filter: Some(new.filter.into_wire(self.namespace())),
            at_most: new.at_most.unwrap_or(0),
            spread_over_ms: new.spread_over.map(ms),
            ..v1::StartOperationRequest::default()
        };
        let action = match new.action {
            BulkAction::Cancel { reason } => {
                request.reason = reason;
                v1::OperationAction::Cancel
            }
            BulkAction::Retry { queue, .. } => {
                request.queue = queue;
                v1::OperationAction::Retry
            }
            BulkAction::Delete => v1::OperationAction::Delete,
        };
        request.set_action(action);
        let reply = call!(self, IfNothingChanged, operations_wire.start(request))?;
        Ok(convert::operation(reply)?)
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

//! Operations on all jobs that match a filter.

use ganger_access::Right;
use ganger_proto::v1::operations_server::Operations;
use ganger_proto::{convert, v1};
use ganger_types::command::{StartOperation, StopOperation};
use ganger_types::limits::{PAGE_JOBS_MAX, PAGE_OPERATIONS_MAX};
use ganger_types::operation::{AlteredFields, JobFilter};
use ganger_types::{Namespace, OperationAction, OperationNumber, OperationRecord};
use tonic::{Request, Response, Status};

use crate::ServiceContext;
use crate::authorization;
use crate::decode::{self, At};
use crate::encode;
use crate::problem::Problem;

/// Jobs that a dry run looks at.
const LOOKED_MAX: usize = 100_000;

/// The operation that a request names.
fn named(request: &v1::OperationRequest) -> Result<(Namespace, OperationNumber), Problem> {
    let namespace = decode::namespace(&request.namespace)?;
    let number = number(At::top("operation"), &request.operation)?;
    authorization::note(|| number.to_string());
    Ok((namespace, number))
}

fn number(at: At<'_>, text: &str) -> Result<OperationNumber, Problem> {
    let number = OperationNumber::parse(text);
    number.ok_or_else(|| Problem::invalid(at, "operations are called op-1, op-2, ..."))
}

/// What to do with each job.
fn action(request: &v1::StartOperationRequest) -> Result<OperationAction, Problem> {
    let queue = request.queue.as_deref();
    let queue = queue.map(|text| decode::queue(At::top("queue"), text));
    let queue = queue.transpose()?;
    let priority = request.priority;
    let priority = priority.map(|value| decode::priority(At::top("priority"), value));
    let fields = AlteredFields {
        priority: priority.transpose()?,
        queue: queue.clone(),
        start: decode::start(request.start),
        tags_added: decode::tags(At::top("tags_added"), &request.tags_added)?,
        tags_removed: decode::tags(At::top("tags_removed"), &request.tags_removed)?,
        labels_set: decode::labels(At::top("labels_set"), &request.labels_set)?,
        labels_removed: decode::keys(At::top("labels_removed"), &request.labels_removed)?,
    };
    let queue_alone = AlteredFields {
        queue: queue.clone(),
        ..AlteredFields::default()
    };
    let foreign = |is_foreign: bool| {
        if is_foreign {
            let at = At::top("action");
            return Err(Problem::invalid(at, "does not take the other fields"));
        }
        Ok(())
    };
    match request.action() {
        v1::OperationAction::Retry => {
            foreign(fields != queue_alone)?;
            Ok(OperationAction::Retry { queue })
        }
        v1::OperationAction::Cancel => {
            foreign(fields != AlteredFields::default())?;
            Ok(OperationAction::Cancel)
        }
        v1::OperationAction::Delete => {
            foreign(fields != AlteredFields::default())?;
            Ok(OperationAction::Delete)
        }
        v1::OperationAction::Alter if fields == AlteredFields::default() => Err(Problem::missing(
            At::top("action"),
            "nothing to alter: give queue, priority, tags or labels",
        )),
        v1::OperationAction::Alter => Ok(OperationAction::Alter(fields)),
        v1::OperationAction::Unspecified => Err(Problem::missing(
            At::top("action"),
            "give RETRY, CANCEL, DELETE or ALTER",
        )),
    }
}

/// Reads an operation, which the caller must have the right to.
fn start_of(request: v1::StartOperationRequest) -> Result<StartOperation, Problem> {
    let namespace = decode::namespace(&request.namespace)?;
    let action = action(&request)?;
    if action != OperationAction::Cancel {
        authorization::check_right(Right::OPERATE, &namespace)?;
    }
    let filter = request.filter.unwrap_or_default();
    let filter = v1::ListRequest {
        cursor: String::new(),
        ..filter
    };
    let query = decode::matching_query(namespace.clone(), filter)?;
    Ok(StartOperation {
        namespace,
        action,
        filter: JobFilter::of(query),
        created_before: None,
        at_most: Some(request.at_most).filter(|most| *most > 0),
        spread_over: request.spread_over_ms.map(decode::ms),
        reason: request.reason,
        by: authorization::identity().to_string(),
    })
}

impl ServiceContext {
    fn operation(&self, record: OperationRecord) -> Response<v1::Operation> {
        Response::new(convert::operation_message(self.handle.id(), record))
    }
}

#[tonic::async_trait]
impl Operations for ServiceContext {
    async fn start(
        &self,
        request: Request<v1::StartOperationRequest>,
    ) -> Result<Response<v1::Operation>, Status> {
        let start = start_of(request.into_inner())?;
        let record = self.handle.start_operation(start).await;
        Ok(self.operation(record.map_err(Problem::from)?))
    }

    async fn dry_run(
        &self,
        request: Request<v1::StartOperationRequest>,
    ) -> Result<Response<v1::Matched>, Status> {
        let start = start_of(request.into_inner())?;
        let query = start.filter.query(start.namespace, PAGE_JOBS_MAX);
        let done = self
            .handle
            .try_operation(&start.action, query, LOOKED_MAX)
            .await
            .map_err(Problem::from)?;
        let is_exact = start.action.is_foreseeable();
        Ok(Response::new(encode::would_match(
            &self.handle,
            is_exact,
            done,
        )))
    }

    async fn get(
        &self,
        request: Request<v1::OperationRequest>,
    ) -> Result<Response<v1::Operation>, Status> {
        let (namespace, number) = named(request.get_ref())?;
        let record = self.handle.operation(&namespace, number).await;
        Ok(self.operation(record.map_err(Problem::from)?))
    }

    async fn list(
        &self,
        request: Request<v1::OperationsRequest>,
    ) -> Result<Response<v1::OperationsReply>, Status> {
        let request = request.get_ref();
        let namespace = decode::namespace(&request.namespace)?;
        let before = Some(request.after.as_str()).filter(|text| !text.is_empty());
        let before = before.map(|text| number(At::top("after"), text));
        let most = u32::try_from(PAGE_OPERATIONS_MAX).unwrap_or(u32::MAX);
        let limit = decode::bounded(At::top("limit"), request.limit, most, most)?;
        let limit = usize::try_from(limit).unwrap_or(PAGE_OPERATIONS_MAX);
        let found = self
            .handle
            .operations(&namespace, before.transpose()?, limit + 1);
        let mut records = found.await.map_err(Problem::from)?;
        let has_more = records.len() > limit;
        records.truncate(limit);
        let last = records.last().map(|record| record.number.to_string());
        let records = records.into_iter();
        Ok(Response::new(v1::OperationsReply {
            operations: records
                .map(|record| convert::operation_message(self.handle.id(), record))
                .collect(),
            next: last.filter(|_| has_more).unwrap_or_default(),
        }))
    }

    async fn stop(
        &self,
        request: Request<v1::OperationRequest>,
    ) -> Result<Response<v1::Operation>, Status> {
        let (namespace, number) = named(request.get_ref())?;
        let record = self.handle.operation(&namespace, number).await;
        if record.map_err(Problem::from)?.action != OperationAction::Cancel {
            authorization::check_right(Right::OPERATE, &namespace)?;
        }
        let stop = StopOperation {
            namespace,
            number,
            by: authorization::identity().to_string(),
        };
        let record = self.handle.stop_operation(stop).await;
        Ok(self.operation(record.map_err(Problem::from)?))
    }
}

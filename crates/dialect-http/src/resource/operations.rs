//! Operations: start, list, show, stop.

use axum::response::Response;
use ganger_access::{Operation as AccessOperation, Right};
use ganger_document::request::operation::OperationIn;
use ganger_document::view::operation::{Operation, Operations};
use ganger_types::command::{StartOperation, StopOperation};
use ganger_types::limits::{PAGE_JOBS_MAX, PAGE_OPERATIONS_MAX};
use ganger_types::{OperationAction, OperationNumber};
use http::StatusCode;

use crate::arguments::refused;
use crate::json::{self, JsonBody};
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::resource::bulk;

/// Jobs that a dry run looks at; with more, its answer has a `next`, and the numbers are bounds.
const LOOKED_MAX: usize = 100_000;

/// The query parameters of an operation to start.
pub(crate) const START_PARAMETERS: &[(&str, &str)] = &[(
    "dry_run",
    "true: starts nothing, and answers how many jobs it would change (WouldChange)",
)];

/// The query parameters of a list of operations.
pub(crate) const PARAMETERS: &[(&str, &str)] = &[
    (
        "after",
        "goes on where a page ended: the `next` of that page",
    ),
    ("limit", "on a page, 1 to 100; 100 if absent"),
];

/// Cancelling is a right of producers; whatever else an operation does takes the right to operate.
const OPERATE: AccessOperation = AccessOperation::new("startOperation", Right::OPERATE);

pub(crate) async fn start(
    context: RequestContext,
    JsonBody(given): JsonBody<OperationIn>,
) -> Result<Response, Problem> {
    if !given.is_cancellation() {
        check_may_operate(&context)?;
    }
    let by = context.identity.to_string();
    let start = given.convert(context.namespace.clone(), by)?;
    if context.arguments.flag("dry_run")? {
        return would_change(&context, start).await;
    }
    let record = context.shard().start_operation(start).await?;
    let view = Operation::new(context.shard().id(), record);
    Ok(json::answer(StatusCode::ACCEPTED, &view))
}

/// Answers how many jobs an operation would change.
async fn would_change(
    context: &RequestContext,
    start: StartOperation,
) -> Result<Response, Problem> {
    let mut query = start.filter.query(start.namespace, PAGE_JOBS_MAX);
    query.enqueued_before(start.created_before);
    let shard = context.shard();
    let done = shard
        .try_operation(&start.action, query, LOOKED_MAX)
        .await?;
    let is_exact = start.action.is_foreseeable();
    Ok(json::ok(&bulk::would_change(context, is_exact, done)))
}

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let before = context.arguments.text("after")?.map(read).transpose()?;
    let most = u64::try_from(PAGE_OPERATIONS_MAX).unwrap_or(u64::MAX);
    let limit = context.arguments.number("limit", 1, most)?.unwrap_or(most);
    let limit = usize::try_from(limit).unwrap_or(PAGE_OPERATIONS_MAX);
    let shard = context.shard();
    // One more than wanted shows whether there is a next page.
    let mut records = shard
        .operations(&context.namespace, before, limit + 1)
        .await?;
    let has_more = records.len() > limit;
    records.truncate(limit);
    let last = records.last().map(|record| record.number.to_string());
    let records = records.into_iter();
    Ok(json::ok(&Operations {
        operations: records
            .map(|record| Operation::new(shard.id(), record))
            .collect(),
        next: last.filter(|_| has_more),
    }))
}

pub(crate) async fn show(context: RequestContext) -> Result<Response, Problem> {
    let number = number(&context)?;
    let shard = context.shard();
    let record = shard.operation(&context.namespace, number).await?;
    Ok(json::ok(&Operation::new(shard.id(), record)))
}

pub(crate) async fn stop(context: RequestContext) -> Result<Response, Problem> {
    let number = number(&context)?;
    let shard = context.shard();
    let record = shard.operation(&context.namespace, number).await?;
    if record.action != OperationAction::Cancel {
        check_may_operate(&context)?;
    }
    let stop = StopOperation {
        namespace: context.namespace.clone(),
        number,
        by: context.identity.to_string(),
    };
    let record = shard.stop_operation(stop).await?;
    Ok(json::ok(&Operation::new(shard.id(), record)))
}

fn check_may_operate(context: &RequestContext) -> Result<(), Problem> {
    let namespace = Some(context.namespace.as_bytes());
    let allowed = context.identity.may(OPERATE, namespace);
    allowed.map_err(|denied| Problem::new("permission_denied", denied.to_string()))
}

/// The operation in the path.
fn number(context: &RequestContext) -> Result<OperationNumber, Problem> {
    let segment = context.segment(0);
    let text = String::from_utf8_lossy(segment);
    OperationNumber::parse(&text).ok_or_else(|| {
        let detail = format!("path: {text:?} is not an operation; they are called op-1, op-2, ...");
        Problem::new("invalid_value", detail)
    })
}

fn read(text: &str) -> Result<OperationNumber, Problem> {
    OperationNumber::parse(text).ok_or_else(|| {
        let wrong = format!("{text:?} is not the `next` of a page: send that unchanged");
        refused("after", &wrong)
    })
}

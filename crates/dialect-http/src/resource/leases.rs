//! Leases: lease jobs and report on them, one by one or in lists.

use axum::response::Response;
use ganger_document::request::lease::LeaseIn;
use ganger_document::request::report::{CompleteIn, FailIn, LogIn, ReleaseIn, RenewIn, Report};
use ganger_document::time::Moment;
use ganger_document::view::delivery::{self, DeliveriesView};
use ganger_types::command::Lease;
use ganger_types::{Command, Reply, Timestamp};
use http::header;
use serde::Serialize;
use serde::de::DeserializeOwned;
use utoipa::ToSchema;

use crate::json::{self, JsonBody, OneOrMany};
use crate::problem::{Problem, ProblemView};
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;

/// Maximum number of reports in one list.
const REPORTS_MAX: usize = 10_000;
/// Number of commands of one list that are sent for one turn.
const REPORTS_AT_ONCE: usize = 1_024;

/// The answer to a report.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Reported)]
pub(crate) struct ReportedView {
    /// Of complete, fail and release: state of the job now.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    /// Of fail and release: time of the next attempt; absent if there is none or it can start now.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_at: Option<Moment>,
    /// Whether the same report had been accepted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeat: Option<bool>,
    /// Of renew: length of the lease from now, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_for_seconds: Option<f64>,
    /// Of log: size of the attempt's log in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Of log: number of bytes that were dropped because the log is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

/// The answer to one report of a list: that to a single report, or `error`.
#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Done(ReportedView),
    Refused { error: ProblemView<'a> },
}

pub(crate) async fn lease(
    context: RequestContext,
    JsonBody(given): JsonBody<LeaseIn>,
) -> Result<Response, Problem> {
    let (lease, wait) = given.convert(context.namespace.clone());
    introduce(&context, &lease);
    let deliveries = tokio::select! {
        deliveries = context.shard().lease(lease, wait) => deliveries?,
        // A stopping server answers as if the time were over; the worker then asks again.
        () = context.api.settings().stopping.cancelled(), if !wait.is_zero() => Vec::new(),
    };
    let jobs = deliveries
        .into_iter()
        .map(|it| delivery::view(context.shard().id(), it.grant, &it.payload, &it.inputs))
        .collect();
    Ok(json::ok(&DeliveriesView { jobs }))
}

/// Records the address and the program of the worker that asks.
fn introduce(context: &RequestContext, lease: &Lease) {
    let agent = context.headers.get(header::USER_AGENT);
    let version = agent
        .and_then(|agent| agent.to_str().ok())
        .unwrap_or_default();
    let address = context
        .from
        .map(|from| from.to_string())
        .unwrap_or_default();
    if let Some(worker) = lease
        .worker
        .as_ref()
        .filter(|_| !address.is_empty() || !version.is_empty())
    {
        let shard = context.shard();
        shard.introduce(&context.namespace, worker, &address, version);
    }
}

pub(crate) async fn renew(
    context: RequestContext,
    given: OneOrMany<RenewIn>,
) -> Result<Response, Problem> {
    report(context, given).await
}

pub(crate) async fn complete(
    context: RequestContext,
    given: OneOrMany<CompleteIn>,
) -> Result<Response, Problem> {
    report(context, given).await
}

pub(crate) async fn fail(
    context: RequestContext,
    given: OneOrMany<FailIn>,
) -> Result<Response, Problem> {
    report(context, given).await
}

pub(crate) async fn release(
    context: RequestContext,
    given: OneOrMany<ReleaseIn>,
) -> Result<Response, Problem> {
    report(context, given).await
}

pub(crate) async fn log(
    context: RequestContext,
    given: OneOrMany<LogIn>,
) -> Result<Response, Problem> {
    report(context, given).await
}

async fn report<T: Report + DeserializeOwned>(
    context: RequestContext,
    given: OneOrMany<T>,
) -> Result<Response, Problem> {
    match given {
        OneOrMany::One(report) => Ok(json::ok(&send(&context, report, String::new()).await?)),
        OneOrMany::Many(reports) => send_all(&context, reports).await,
    }
}

/// Sends the reports in order and returns an answer for each, in the same order.
async fn send_all<T: Report>(
    context: &RequestContext,
    reports: Vec<T>,
) -> Result<Response, Problem> {
    if reports.len() > REPORTS_MAX {
        let detail = format!(
            "the list has {} reports, the limit is {REPORTS_MAX}: send several lists",
            reports.len()
        );
        return Err(Problem::new("too_large", detail));
    }
    let mut answers = Vec::with_capacity(reports.len());
    let mut reports = reports.into_iter().enumerate();
    while reports.len() > 0 {
        let together = reports.by_ref().take(REPORTS_AT_ONCE);
        let commands = together.map(|(place, report)| {
            Ok(report.convert(&context.api, &context.namespace, &format!("/{place}"))?)
        });
        answers.extend(apply(context, commands.collect()).await);
    }
    let items: Vec<_> = answers
        .iter_mut()
        .map(|answer| match answer {
            Ok(view) => Item::Done(std::mem::take(view)),
            Err(problem) => Item::Refused {
                error: problem.view(),
            },
        })
        .collect();
    Ok(json::ok(&items))
}

/// Applies the valid reports in one turn of the shard and returns an answer for each report, in order.
async fn apply(
    context: &RequestContext,
    commands: Vec<Result<Command, Problem>>,
) -> Vec<Result<ReportedView, Problem>> {
    let mut answers = Vec::with_capacity(commands.len());
    let mut places = Vec::with_capacity(commands.len());
    let mut readable = Vec::with_capacity(commands.len());
    for (place, command) in commands.into_iter().enumerate() {
        answers.push(Ok(ReportedView::default()));
        match command {
            Ok(command) => {
                places.push(place);
                readable.push(command);
            }
            Err(problem) => answers[place] = Err(problem),
        }
    }
    if readable.is_empty() {
        return answers;
    }
    match context.call_all(readable).await {
        Ok(replies) => {
            for (place, reply) in places.into_iter().zip(replies) {
                answers[place] = reply.map_err(Problem::from).and_then(|reply| view(&reply));
            }
        }
        Err(error) => {
            let problem = Problem::from(error);
            for place in places {
                answers[place] = Err(problem.clone());
            }
        }
    }
    answers
}

async fn send<T: Report>(
    context: &RequestContext,
    report: T,
    pointer: String,
) -> Result<ReportedView, Problem> {
    let command = report.convert(&context.api, &context.namespace, &pointer)?;
    view(&context.call(command).await?)
}

fn view(reply: &Reply) -> Result<ReportedView, Problem> {
    Ok(match *reply {
        Reply::Reported {
            state,
            retry_at,
            repeat,
        } => ReportedView {
            state: Some(state.as_str()),
            retry_at: retry_at.map(|at: Timestamp| Moment(at)),
            repeat: Some(repeat),
            ..ReportedView::default()
        },
        Reply::Renewed { lease_for } => ReportedView {
            lease_for_seconds: Some(lease_for.as_secs_f64()),
            ..ReportedView::default()
        },
        Reply::LogAppended { bytes, dropped } => ReportedView {
            bytes: Some(bytes),
            dropped: Some(dropped),
            ..ReportedView::default()
        },
        _ => return Err(unexpected_reply()),
    })
}

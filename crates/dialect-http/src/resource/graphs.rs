//! Graphs: submit, cancel, and show the neighbours of a job.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::response::Response;
use bytes::Bytes;
use ganger_access::Hold;
use ganger_document::names::{full_name, text};
use ganger_document::request::enq::TaskId;
use ganger_document::request::graph::{self, MemberName, Submission};
use ganger_document::view::graph::{Graph, GraphEdge, GraphJob};
use ganger_document::view::submission::{SubmittedGraph, SubmittedJob};
use ganger_engine::ShardedSubmission;
use ganger_router::RouteError;
use ganger_shard::StoredJob;
use ganger_types::command::{Cancel, Selection};
use ganger_types::query::JobQuery;
use ganger_types::{Command, InputState, JobRef, Reply};
use http::StatusCode;

use crate::api::Api;
use crate::body;
use crate::filter;
use crate::json::{self, MaybeDoc, require_type};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::act::CancelIn;
use crate::resource::bulk;
use crate::resource::jobs::{enqueued, find};
use crate::resource::numbers::Done;
use crate::resource::submission;

/// Maximum number of edges shown for one job.
const EDGES_SHOWN_MAX: usize = 1_000;

/// The body of a submission, which may be larger than other bodies.
pub(crate) struct GraphBody(Bytes, Option<Arc<Hold>>);

impl FromRequest<Api> for GraphBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        require_type(request.headers(), &["application/json"])?;
        let hold = request.extensions().get().cloned();
        let body = body::read(request, api.settings().graph_bytes_max).await?;
        Ok(Self(body, hold))
    }
}

pub(crate) async fn submit(context: RequestContext, body: GraphBody) -> Result<Response, Problem> {
    let idempotency_key = context.idempotency_key()?;
    let Submission {
        jobs,
        idempotency_key: key_in_body,
        called,
        pointer,
        ..
    } = {
        let api = context.api.clone();
        let read = move |body: &[u8]| Ok(graph::read(&api, body)?);
        json::apart(&context.api, body.1, body.0, read).await?
    };
    let spread = ShardedSubmission {
        namespace: context.namespace.clone(),
        idempotency_key: idempotency_key.or(key_in_body),
        jobs,
    };
    let explain = |error| in_submission(error, &called, pointer);
    let submitted = submission::submit(&context, spread, true, explain).await?;
    let jobs = submitted.jobs.into_iter().zip(called);
    let view = SubmittedGraph {
        graph: submitted.graph.map(|graph| text(graph.as_bytes())),
        repeat: submitted.repeat,
        jobs: jobs
            .map(|((job, existed), called)| submitted_job(&job, existed, called))
            .collect(),
    };
    let status = if view.repeat {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(json::answer(status, &view))
}

fn submitted_job(job: &JobRef, existed: bool, called: MemberName) -> SubmittedJob {
    let name = called.text();
    let (mock_id, task_id) = match called {
        MemberName::Name(_) => (None, None),
        MemberName::Task(mock) => {
            let shard = job.shard.to_string();
            let id = text(job.id.as_bytes());
            (Some(mock), Some(TaskId { shard, id }))
        }
    };
    SubmittedJob {
        name,
        mock_id,
        task_id,
        enqueued: enqueued(job, existed),
    }
}

/// The problem of a refused submission. If one job is the cause, it contains the job's name in the submission.
fn in_submission(error: RouteError, called: &[MemberName], pointer: &str) -> Problem {
    let Some(index) = error.member() else {
        return error.into();
    };
    let name = called.get(index).and_then(MemberName::text);
    let mut problem = Problem::from(error).at(format!("{pointer}/{index}"));
    if let Some(name) = name {
        problem.detail = format!("{} (job {index} is {name:?})", problem.detail);
    }
    problem
}

pub(crate) async fn cancel(
    context: RequestContext,
    MaybeDoc(given): MaybeDoc<CancelIn>,
) -> Result<Response, Problem> {
    let command = Command::Cancel(Box::new(Cancel {
        namespace: context.namespace.clone(),
        jobs: Selection::Graph(context.name()?),
        reason: given.reason,
    }));
    match context.call(command).await? {
        Reply::Changed { count, .. } => Ok(json::ok(&Done { changed: count })),
        _ => Err(unexpected_reply()),
    }
}

/// Retries a graph. Members on other shards are retried once those shards have been reached.
pub(crate) async fn retry(context: RequestContext) -> Result<Response, Problem> {
    let (namespace, graph) = (context.namespace.clone(), context.name()?);
    let shard = context.shard();
    let done = shard
        .retry_graph(namespace, graph, None, context.now)
        .await?;
    Ok(json::ok(&bulk::changed(&context, done)))
}

pub(crate) async fn show_around(context: RequestContext) -> Result<Response, Problem> {
    let job = find(&context).await?;
    let mut view = Graph {
        graph: job
            .record
            .graph
            .as_ref()
            .map(|graph| text(graph.as_bytes())),
        ..Graph::default()
    };
    let jobs = match job.record.graph.clone() {
        Some(graph) => {
            let mut query = JobQuery {
                namespace: context.namespace.clone(),
                graph: Some(graph),
                limit: filter::limit(&context.arguments)?,
                ..JobQuery::default()
            };
            filter::go_on(&mut query, &context.arguments)?;
            let page = context.shard().list(query).await?;
            view.next = page.next.map(|place| place.to_string());
            view.more = view.next.is_some();
            page.jobs
        }
        None => neighbours(&context, job).await?,
    };
    let shard = context.shard().id();
    for job in jobs {
        let id = &job.record.id;
        let rows = context
            .shard()
            .inputs(job.record.key, 0, EDGES_SHOWN_MAX)
            .await?;
        if rows.len() == EDGES_SHOWN_MAX {
            view.more = true;
            view.edges_cut.push(full_name(shard, id));
        }
        let edges = rows.into_iter();
        view.edges
            .extend(edges.filter_map(|row| GraphEdge::new(shard, id, row)));
        view.jobs.push(GraphJob::new(shard, job));
    }
    Ok(json::ok(&view))
}

/// The job with its dependencies and its dependents.
async fn neighbours(context: &RequestContext, job: StoredJob) -> Result<Vec<StoredJob>, Problem> {
    let limit = filter::limit(&context.arguments)?;
    let rows = context.shard().inputs(job.record.key, 0, limit).await?;
    let mut keys: Vec<_> =
        rows.iter()
            .filter_map(|row| match row.state {
                InputState::Missing { dependency, .. }
                | InputState::Delivered { dependency, .. } => Some(dependency),
                InputState::Value(_)
                | InputState::Ignored { .. }
                | InputState::Remote { .. }
                | InputState::Received { .. } => None,
            })
            .collect();
    keys.extend(context.shard().dependents(job.record.key, limit).await?);
    keys.sort_unstable();
    keys.dedup();
    let mut jobs = vec![job];
    for key in keys {
        jobs.extend(context.shard().job_by_key(key).await?);
    }
    Ok(jobs)
}

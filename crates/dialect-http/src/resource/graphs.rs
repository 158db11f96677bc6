//! Graphs: submit, cancel, and show what surrounds a job.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use axum::response::Response;
use bytes::Bytes;
use ganger_access::Hold;
use ganger_document::names::full_name;
use ganger_document::names::{CalledName, GraphName, JobName, KindName, Named, show};
use ganger_document::one_of::{OneOf, PolicyWord};
use ganger_document::request::enq::TaskId;
use ganger_document::request::graph::{self, Called, Submission};
use ganger_engine::ShardedSubmission;
use ganger_router::RouteError;
use ganger_shard::StoredJob;
use ganger_types::FailurePolicy;
use ganger_types::command::{Cancel, Selection};
use ganger_types::query::JobQuery;
use ganger_types::{Command, InputRow, InputState, JobId, JobRef, Reply, ShardId};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::body;
use crate::filter;
use crate::json::{self, MaybeDoc, require_type};
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::act::CancelIn;
use crate::resource::bulk;
use crate::resource::jobs::find;
use crate::resource::numbers::Done;
use crate::resource::submission;

/// Edges shown of one job.
const EDGES_SHOWN_MAX: usize = 1_000;

/// The body of a submission, which may be larger than others.
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

/// Answer to the submission of a graph.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubmittedGraph)]
pub(crate) struct SubmittedView {
    /// The graph's name, for showing and cancelling it.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<GraphName>,
    /// Whether this is the answer of an earlier submission under the same key.
    repeat: bool,
    /// The jobs, in the order of the submission.
    jobs: Vec<MemberView>,
}

/// A job of a submission.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SubmittedJob)]
struct MemberView {
    /// How the submission called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its mock id, if the submission has enq's form.
    #[serde(skip_serializing_if = "Option::is_none")]
    mock_id: Option<TaskId>,
    /// Its final id in enq's form, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    /// Id of the job.
    id: JobName,
    /// Its global name, `shard/id`.
    r#ref: String,
    /// Whether it was there already.
    existed: bool,
}

pub(crate) async fn submit(ask: RequestContext, body: GraphBody) -> Result<Response, Problem> {
    let idempotency_key = ask.idempotency_key()?;
    let Submission {
        jobs,
        idempotency_key: key_in_body,
        called,
        pointer,
        ..
    } = {
        let api = ask.api.clone();
        let read = move |body: &[u8]| Ok(graph::read(&api, body)?);
        json::apart(&ask.api, body.1, body.0, read).await?
    };
    let spread = ShardedSubmission {
        namespace: ask.namespace.clone(),
        idempotency_key: idempotency_key.or(key_in_body),
        jobs,
    };
    let explain = |error| in_submission(error, &called, pointer);
    let submitted = submission::submit(&ask, spread, true, explain).await?;
    let jobs = submitted.jobs.into_iter().zip(called);
    let view = SubmittedView {
        graph: submitted.graph.map(Named),
        repeat: submitted.repeat,
        jobs: jobs
            .map(|((job, existed), called)| member(job, existed, called))
            .collect(),
    };
    let status = if view.repeat {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok(json::answer(status, &view))
}

fn member(job: JobRef, existed: bool, called: Called) -> MemberView {
    let name = called.text();
    let (mock_id, task_id) = match called {
        Called::Name(_) => (None, None),
        Called::Task(mock) => {
            let shard = job.shard.to_string();
            let id = show(job.id.as_bytes()).into_owned();
            (Some(mock), Some(TaskId { shard, id }))
        }
    };
    MemberView {
        name,
        mock_id,
        task_id,
        r#ref: full_name(&job.shard, &job.id),
        id: Named(job.id),
        existed,
    }
}

/// A refusal of the whole that is due to one job says which, by the name it has in the submission.
fn in_submission(error: RouteError, called: &[Called], pointer: &str) -> Problem {
    let Some(index) = error.member() else {
        return error.into();
    };
    let name = called.get(index).and_then(Called::text);
    let mut problem = Problem::from(error).at(format!("{pointer}/{index}"));
    if let Some(name) = name {
        problem.detail = format!("{} (job {index} is {name:?})", problem.detail);
    }
    problem
}

pub(crate) async fn cancel(
    ask: RequestContext,
    MaybeDoc(given): MaybeDoc<CancelIn>,
) -> Result<Response, Problem> {
    let command = Command::Cancel(Box::new(Cancel {
        namespace: ask.namespace.clone(),
        jobs: Selection::Graph(ask.name()?),
        reason: given.reason,
    }));
    match ask.call(command).await? {
        Reply::Changed { count, .. } => Ok(json::ok(&Done { changed: count })),
        _ => Err(unexpected_reply()),
    }
}

/// Members on other shards are put back there, once those have been reached.
pub(crate) async fn retry(ask: RequestContext) -> Result<Response, Problem> {
    let (namespace, graph) = (ask.namespace.clone(), ask.name()?);
    let shard = ask.shard();
    let done = shard.retry_graph(namespace, graph, None, ask.now).await?;
    Ok(json::ok(&bulk::changed(&ask, done)))
}

/// A graph, or the part of it around a job.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Graph)]
pub(crate) struct GraphView {
    /// Its name; absent if the job was not submitted with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    graph: Option<GraphName>,
    /// The jobs of this page.
    jobs: Vec<NodeView>,
    /// What those jobs wait for, or waited for.
    edges: Vec<EdgeView>,
    /// Give this as `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A job of a graph.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Node)]
struct NodeView {
    /// Global name of the job, `shard/id`.
    id: String,
    /// How its submission called it, if it had a name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<CalledName>,
    /// Kind of the job: the program that runs it.
    kind: KindName,
    /// State of the job.
    state: &'static str,
    /// Number of its last attempt.
    attempt: u32,
}

/// That one job waits for another.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Edge)]
struct EdgeView {
    /// The dependency job, as `shard/id`.
    from: String,
    /// The job that waits for it, likewise.
    to: String,
    /// Whether the result is an input.
    carries_data: bool,
    /// What the failure of the dependency means.
    policy: PolicyWord,
}

pub(crate) async fn show_around(ask: RequestContext) -> Result<Response, Problem> {
    let job = find(&ask).await?;
    let mut view = GraphView {
        graph: job.record.graph.clone().map(Named),
        ..GraphView::default()
    };
    let jobs = match job.record.graph.clone() {
        Some(graph) => {
            let mut query = JobQuery {
                namespace: ask.namespace.clone(),
                graph: Some(graph),
                limit: filter::limit(&ask.arguments)?,
                ..JobQuery::default()
            };
            filter::go_on(&mut query, &ask.arguments)?;
            let page = ask.shard().list(query).await?;
            view.next = page.next.map(|place| place.to_string());
            page.jobs
        }
        None => neighbours(&ask, job).await?,
    };
    let shard = ask.shard().id();
    for job in jobs {
        let rows = ask
            .shard()
            .inputs(job.record.key, 0, EDGES_SHOWN_MAX)
            .await?;
        view.edges.extend(
            rows.into_iter()
                .filter_map(|row| edge(shard, &job.record.id, row)),
        );
        view.jobs.push(NodeView {
            id: full_name(shard, &job.record.id),
            name: job.record.name.map(Named),
            kind: Named(job.record.kind),
            state: job.record.state.as_str(),
            attempt: job.record.attempt,
        });
    }
    Ok(json::ok(&view))
}

/// The job with those it waits for and those that wait for it.
async fn neighbours(ask: &RequestContext, job: StoredJob) -> Result<Vec<StoredJob>, Problem> {
    let limit = filter::limit(&ask.arguments)?;
    let rows = ask.shard().inputs(job.record.key, 0, limit).await?;
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
    keys.extend(ask.shard().dependents(job.record.key, limit).await?);
    keys.sort_unstable();
    keys.dedup();
    let mut jobs = vec![job];
    for key in keys {
        jobs.extend(ask.shard().job_by_key(key).await?);
    }
    Ok(jobs)
}

fn edge(shard: &ShardId, to: &JobId, row: InputRow) -> Option<EdgeView> {
    let carries_data = row.slot < InputRow::EDGE_FIRST;
    let (from, policy) = match row.state {
        InputState::Value(_) => return None,
        InputState::Missing {
            id, policy: means, ..
        }
        | InputState::Delivered {
            id, policy: means, ..
        } => (full_name(shard, &id), means),
        InputState::Ignored { id } => (full_name(shard, &id), FailurePolicy::Ignore),
        InputState::Remote {
            dependency,
            policy: means,
            ..
        }
        | InputState::Received {
            dependency,
            policy: means,
            ..
        } => (full_name(&dependency.shard, &dependency.id), means),
    };
    Some(EdgeView {
        from,
        to: full_name(shard, to),
        carries_data,
        policy: OneOf(policy),
    })
}

//! Operations on jobs and graphs.

use ganger_access::Right;
use ganger_document::request::bulk::BulkIn;
use ganger_document::request::graph::GraphIn;
use ganger_document::request::job::JobIn;
use ganger_document::view::change::Changed;
use ganger_document::view::graphs::{GraphLayout, GraphSummary, Graphs};
use ganger_document::view::job::{JobCount, Page};
use ganger_document::view::submission::{Enqueued, SubmittedGraph};
use http::Method;

use super::{NDJSON, Operation, PAGE, operation};
use crate::description::Content;
use crate::filter;
use crate::resource::act::CancelIn;
use crate::resource::bulk::BulkAnswer;
use crate::resource::numbers::Done;
use crate::resource::{batch, bulk, graph_views, graphs, jobs};

pub(super) fn about_jobs() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::POST,
            "/api/v1/jobs",
            "enqueueJob",
            Right::SUBMIT,
            "Enqueues a job.",
            jobs::enqueue,
        )
        .body::<JobIn>()
        .reply::<Enqueued>(),
        operation(
            M::GET,
            "/api/v1/jobs",
            "listJobs",
            Right::OBSERVE,
            "Lists jobs.",
            jobs::list,
        )
        .query(filter::PARAMETERS)
        .reply::<Page>(),
        operation(
            M::GET,
            "/api/v1/jobs/count",
            "countJobs",
            Right::OBSERVE,
            "Counts jobs.",
            jobs::count,
        )
        .query(filter::CONDITIONS)
        .reply::<JobCount>(),
        operation(
            M::POST,
            "/api/v1/jobs/batch",
            "enqueueJobs",
            Right::SUBMIT,
            "Enqueues many jobs, one per line, streamed both ways.",
            batch::enqueue,
        )
        .query(&[(
            "answers",
            "all (default), or errors: only lines that were refused, and the summary",
        )])
        .body_as(Content::without_schema(NDJSON))
        .reply_as(Content::without_schema(NDJSON)),
        operation(
            M::POST,
            "/api/v1/jobs/cancel",
            "cancelJobs",
            Right::CANCEL,
            "Cancels many jobs.",
            bulk::cancel,
        )
        .query(bulk::PARAMETERS)
        .body::<BulkIn>()
        .reply::<BulkAnswer>(),
        operation(
            M::POST,
            "/api/v1/jobs/retry",
            "retryJobs",
            Right::OPERATE,
            "Retries many finished jobs.",
            bulk::retry,
        )
        .query(bulk::PARAMETERS)
        .body::<BulkIn>()
        .reply::<BulkAnswer>(),
        operation(
            M::POST,
            "/api/v1/jobs/delete",
            "deleteJobs",
            Right::OPERATE,
            "Removes many jobs.",
            bulk::delete,
        )
        .query(bulk::PARAMETERS)
        .body::<BulkIn>()
        .reply::<BulkAnswer>(),
    ]
}

pub(super) fn about_graphs() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::POST,
            "/api/v1/graphs",
            "submitGraph",
            Right::SUBMIT,
            "Enqueues a graph: all or none. An array is read as enq's form.",
            graphs::submit,
        )
        .body::<GraphIn>()
        .reply::<SubmittedGraph>(),
        operation(
            M::GET,
            "/api/v1/graphs",
            "listGraphs",
            Right::OBSERVE,
            "Lists graphs, the newest first, over all shards.",
            graph_views::list,
        )
        .query(PAGE)
        .reply::<Graphs>(),
        operation(
            M::GET,
            "/api/v1/graphs/{graph}",
            "showGraph",
            Right::OBSERVE,
            "Shows how far a graph is and what holds it up, over all its shards.",
            graph_views::show,
        )
        .reply::<GraphSummary>(),
        operation(
            M::GET,
            "/api/v1/graphs/{graph}/layout",
            "getGraphLayout",
            Right::OBSERVE,
            "Returns a drawing of a graph, with at most 150 boxes and 300 lines.",
            graph_views::layout,
        )
        .query(graph_views::LAYOUT_PARAMETERS)
        .reply::<GraphLayout>(),
        operation(
            M::POST,
            "/api/v1/graphs/{graph}/retry",
            "retryGraph",
            Right::OPERATE,
            "Retries the jobs of a graph that failed or were cancelled, on all its shards.",
            graphs::retry,
        )
        .reply::<Changed>(),
        operation(
            M::POST,
            "/api/v1/graphs/{graph}/cancel",
            "cancelGraph",
            Right::CANCEL,
            "Cancels a graph.",
            graphs::cancel,
        )
        .maybe::<CancelIn>()
        .reply::<Done>(),
    ]
}

//! Every operation of the API in one table: the routes and `/openapi.json` are both made from it.

use std::borrow::Cow;
use std::sync::Arc;

use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::Method;
use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

use crate::api::Api;
use crate::inward::enq::TaskIn;
use crate::inward::filter::{self, BulkIn};
use crate::inward::graph::GraphIn;
use crate::inward::job::JobIn;
use crate::inward::lease::LeaseIn;
use crate::inward::report::{CompleteIn, FailIn, LogIn, ReleaseIn, RenewIn};
use crate::inward::schedule::ScheduleIn;
use crate::inward::settings::{NamespaceSettingsIn, QueueSettingsIn};
use crate::outward::delivery::{DeliveriesView, InputsView};
use crate::outward::event::EventView;
use crate::outward::job::{JobView, PageView};
use crate::outward::queue::{NamespaceDoc, NamespacesDoc, QueueDoc, QueuesDoc};
use crate::outward::reason::WhyView;
use crate::outward::schedule::{ScheduleView, SchedulesView};
use crate::outward::statistics::{
    GroupsView, StatisticsView, TagsView, TrackedListView, WorkersDoc,
};
use crate::resource::act::{ActedView, CancelIn, RetryJobIn};
use crate::resource::alter::{AlterIn, AlteredView, DependenciesIn, UndependIn};
use crate::resource::bulk::ChangedView;
use crate::resource::graphs::{GraphView, SubmittedView};
use crate::resource::health::{LiveView, ReadinessView, VersionView};
use crate::resource::jobs::EnqueuedView;
use crate::resource::leases::ReportedView;
use crate::resource::numbers::{AuditView, Done};
use crate::resource::{
    act, alter, batch, bulk, events, failures, graphs, health, jobs, leases, logs, metrics,
    namespaces, numbers, queues, schedules, workers,
};

/// The query parameters that an operation takes, beside the namespace.
#[derive(Clone)]
pub(crate) struct Known(pub(crate) Arc<[&'static str]>);

/// Schemas of an OpenAPI document, by name.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;
/// Adds a type's schemas to the document's, and refers to it.
pub(crate) type Described = fn(&mut Schemas) -> RefOr<Schema>;

/// What is sent or answered.
#[derive(Clone, Copy)]
pub(crate) struct Content {
    /// Its media type.
    pub(crate) media_type: &'static str,
    /// Its schema, if it has one.
    pub(crate) schema: Option<Described>,
    /// Whether it may be left out.
    pub(crate) is_optional: bool,
}

/// One operation.
pub(crate) struct Operation {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) id: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [(&'static str, &'static str)],
    pub(crate) body: Option<Content>,
    pub(crate) reply: Option<Content>,
    /// Whether a line of the audit log tells of it.
    pub(crate) is_audited: bool,
    pub(crate) route: MethodRouter<Api>,
}

fn describe<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    let name: Cow<'static, str> = T::name();
    schemas.push((name.clone().into_owned(), T::schema()));
    T::schemas(schemas);
    Ref::from_schema_name(name).into()
}

fn json<T: ToSchema>() -> Content {
    Content {
        media_type: "application/json",
        schema: Some(describe::<T>),
        is_optional: false,
    }
}

fn plain(media_type: &'static str) -> Content {
    Content {
        media_type,
        schema: None,
        is_optional: false,
    }
}

fn operation<H, T>(
    method: Method,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    handler: H,
) -> Operation
where
    H: Handler<T, Api>,
    T: 'static,
{
    let filter =
        MethodFilter::try_from(method.clone()).expect("only plain methods stand in the table");
    let route = on(filter, handler);
    Operation {
        method,
        path,
        id,
        summary,
        query: &[],
        body: None,
        reply: None,
        is_audited: false,
        route,
    }
}

impl Operation {
    fn query(mut self, query: &'static [(&'static str, &'static str)]) -> Self {
        self.query = query;
        self
    }

    fn body<T: ToSchema>(mut self) -> Self {
        self.body = Some(json::<T>());
        self
    }

    fn maybe<T: ToSchema>(mut self) -> Self {
        self.body = Some(Content {
            is_optional: true,
            ..json::<T>()
        });
        self
    }

    fn body_as(mut self, content: Content) -> Self {
        self.body = Some(content);
        self
    }

    fn reply<T: ToSchema>(mut self) -> Self {
        self.reply = Some(json::<T>());
        self
    }

    fn reply_as(mut self, content: Content) -> Self {
        self.reply = Some(content);
        self
    }

    fn audited(mut self) -> Self {
        self.is_audited = true;
        self
    }

    /// The names of the query parameters that it takes.
    pub(crate) fn known(&self) -> Known {
        let own = self.query.iter().map(|parameter| parameter.0);
        Known(own.chain(["namespace"]).collect())
    }
}

const WAIT: (&str, &str) = ("wait", "how long to wait for the job's end, such as 30s");
const PAGE: &[(&str, &str)] = &[
    (
        "after",
        "goes on where a page ended: the `next` of that page",
    ),
    ("limit", "on a page, 1 to 1000; 100 if absent"),
];
const NDJSON: &str = "application/x-ndjson";
const ANY: &str = "*/*";

/// Every operation there is.
pub(crate) fn all() -> Vec<Operation> {
    let mut all = about_jobs();
    all.extend(about_one_job());
    all.extend(about_leases());
    all.extend(about_queues());
    all.extend(about_the_rest());
    all.extend(about_the_server());
    all
}

fn about_jobs() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::POST,
            "/api/v1/jobs",
            "enqueueJob",
            "Enqueues a job.",
            jobs::enqueue,
        )
        .body::<JobIn>()
        .reply::<EnqueuedView>(),
        operation(
            M::GET,
            "/api/v1/jobs",
            "listJobs",
            "Lists jobs.",
            jobs::list,
        )
        .query(filter::PARAMETERS)
        .reply::<PageView>(),
        operation(
            M::POST,
            "/api/v1/jobs/batch",
            "enqueueJobs",
            "Enqueues many jobs, a line each, streamed both ways.",
            batch::enqueue,
        )
        .query(&[(
            "answers",
            "all (default), or errors: only lines that were refused, and the summary",
        )])
        .body_as(plain(NDJSON))
        .reply_as(plain(NDJSON)),
        operation(
            M::POST,
            "/api/v1/jobs/cancel",
            "cancelJobs",
            "Calls many jobs off.",
            bulk::cancel,
        )
        .body::<BulkIn>()
        .reply::<ChangedView>()
        .audited(),
        operation(
            M::POST,
            "/api/v1/jobs/retry",
            "retryJobs",
            "Puts many finished jobs back on their queues.",
            bulk::retry,
        )
        .body::<BulkIn>()
        .reply::<ChangedView>()
        .audited(),
        operation(
            M::POST,
            "/api/v1/jobs/delete",
            "deleteJobs",
            "Removes many jobs.",
            bulk::delete,
        )
        .body::<BulkIn>()
        .reply::<ChangedView>()
        .audited(),
        operation(
            M::POST,
            "/api/v1/graphs",
            "submitGraph",
            "Enqueues a graph: all or none. An array is read as enq's form.",
            graphs::submit,
        )
        .body::<GraphIn>()
        .reply::<SubmittedView>(),
        operation(
            M::POST,
            "/api/v1/graphs/{graph}/cancel",
            "cancelGraph",
            "Calls a graph off.",
            graphs::cancel,
        )
        .maybe::<CancelIn>()
        .reply::<Done>()
        .audited(),
    ]
}

fn about_one_job() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/jobs/{job}",
            "getJob",
            "Shows a job.",
            jobs::show,
        )
        .query(&[WAIT])
        .reply::<JobView>(),
        operation(
            M::PATCH,
            "/api/v1/jobs/{job}",
            "alterJob",
            "Changes a job.",
            alter::alter,
        )
        .body::<AlterIn>()
        .reply::<AlteredView>()
        .audited(),
        operation(
            M::DELETE,
            "/api/v1/jobs/{job}",
            "deleteJob",
            "Removes a job.",
            act::delete,
        )
        .reply::<ActedView>()
        .audited(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/result",
            "getResult",
            "The result, byte for byte.",
            jobs::result,
        )
        .query(&[WAIT])
        .reply_as(plain(ANY)),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/payload",
            "getPayload",
            "The payload, byte for byte.",
            jobs::payload,
        )
        .reply_as(plain(ANY)),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/inputs",
            "getInputs",
            "Lists inputs and dependencies.",
            jobs::inputs,
        )
        .query(&[
            ("from", "the first position"),
            ("limit", "on a page, 1 to 1000; 100 if absent"),
        ])
        .reply::<InputsView>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/graph",
            "getGraph",
            "Shows the graph around a job.",
            graphs::show_around,
        )
        .query(PAGE)
        .reply::<GraphView>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/why",
            "explainJob",
            "Says why a job is not running.",
            jobs::why,
        )
        .reply::<WhyView>(),
        operation(
            M::GET,
            "/api/v1/jobs/{job}/log",
            "getLog",
            "The log of a job's attempts.",
            logs::show,
        )
        .query(&[
            ("attempt", "only this attempt"),
            ("follow", "true: goes on until the job ends"),
            ("format", "text (default) or ndjson"),
        ])
        .reply_as(plain("text/plain")),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/cancel",
            "cancelJob",
            "Calls a job off.",
            act::cancel,
        )
        .maybe::<CancelIn>()
        .reply::<ActedView>()
        .audited(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/retry",
            "retryJob",
            "Puts a finished job back on its queue.",
            act::retry,
        )
        .maybe::<RetryJobIn>()
        .reply::<ActedView>()
        .audited(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/timeout",
            "timeOutJob",
            "Ends the running attempt by hand.",
            act::time_out,
        )
        .reply::<ActedView>()
        .audited(),
        operation(
            M::POST,
            "/api/v1/jobs/{job}/dependencies",
            "addDependencies",
            "Makes a blocked job wait for more jobs.",
            alter::depend,
        )
        .body::<DependenciesIn>()
        .reply::<AlteredView>()
        .audited(),
        operation(
            M::DELETE,
            "/api/v1/jobs/{job}/dependencies",
            "removeDependencies",
            "Makes a blocked job wait for fewer jobs.",
            alter::undepend,
        )
        .maybe::<UndependIn>()
        .reply::<AlteredView>()
        .audited(),
    ]
}

fn about_leases() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::POST,
            "/api/v1/leases",
            "lease",
            "Takes jobs under leases; waits for them if asked to.",
            leases::lease,
        )
        .body::<LeaseIn>()
        .reply::<DeliveriesView>(),
        operation(
            M::POST,
            "/api/v1/leases/renew",
            "renew",
            "Extends a lease, or each of a list.",
            leases::renew,
        )
        .body::<RenewIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/complete",
            "complete",
            "Reports success, or each of a list.",
            leases::complete,
        )
        .body::<CompleteIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/fail",
            "fail",
            "Reports a failure, or each of a list.",
            leases::fail,
        )
        .body::<FailIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/release",
            "release",
            "Gives a job back, or each of a list.",
            leases::release,
        )
        .body::<ReleaseIn>()
        .reply::<ReportedView>(),
        operation(
            M::POST,
            "/api/v1/leases/log",
            "appendLog",
            "Appends to the log of an attempt, or each of a list.",
            leases::log,
        )
        .body::<LogIn>()
        .reply::<ReportedView>(),
    ]
}

fn about_queues() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/queues",
            "listQueues",
            "Lists the queues.",
            queues::list,
        )
        .reply::<QueuesDoc>(),
        operation(
            M::GET,
            "/api/v1/queues/{queue}",
            "getQueue",
            "Shows a queue.",
            queues::show,
        )
        .reply::<QueueDoc>(),
        operation(
            M::PUT,
            "/api/v1/queues/{queue}",
            "setQueue",
            "Sets all settings of a queue.",
            queues::put,
        )
        .body::<QueueSettingsIn>()
        .reply::<QueueDoc>()
        .audited(),
        operation(
            M::DELETE,
            "/api/v1/queues/{queue}",
            "forgetQueue",
            "Drops a queue without jobs.",
            queues::forget,
        )
        .reply::<Done>()
        .audited(),
        operation(
            M::POST,
            "/api/v1/queues/{queue}/pause",
            "pauseQueue",
            "Stops leasing from a queue.",
            queues::pause,
        )
        .reply::<QueueDoc>()
        .audited(),
        operation(
            M::POST,
            "/api/v1/queues/{queue}/resume",
            "resumeQueue",
            "Leases from a queue again.",
            queues::resume,
        )
        .reply::<QueueDoc>()
        .audited(),
        operation(
            M::GET,
            "/api/v1/namespaces",
            "listNamespaces",
            "Lists the namespaces.",
            namespaces::list,
        )
        .reply::<NamespacesDoc>(),
        operation(
            M::PUT,
            "/api/v1/namespaces/{name}",
            "setNamespace",
            "Sets all settings of a namespace.",
            namespaces::put,
        )
        .body::<NamespaceSettingsIn>()
        .reply::<NamespaceDoc>()
        .audited(),
        operation(
            M::GET,
            "/api/v1/schedules",
            "listSchedules",
            "Lists the schedules.",
            schedules::list,
        )
        .reply::<SchedulesView>(),
        operation(
            M::GET,
            "/api/v1/schedules/{schedule}",
            "getSchedule",
            "Shows a schedule.",
            schedules::show,
        )
        .reply::<ScheduleView>(),
        operation(
            M::PUT,
            "/api/v1/schedules/{schedule}",
            "setSchedule",
            "Makes or replaces a schedule.",
            schedules::put,
        )
        .body::<ScheduleIn>()
        .reply::<ScheduleView>()
        .audited(),
        operation(
            M::DELETE,
            "/api/v1/schedules/{schedule}",
            "deleteSchedule",
            "Removes a schedule; its jobs stay.",
            schedules::delete,
        )
        .reply::<Done>()
        .audited(),
    ]
}

fn about_the_rest() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/failures",
            "listFailures",
            "Lists the failure groups.",
            failures::list,
        )
        .reply::<GroupsView>(),
        operation(
            M::GET,
            "/api/v1/failures/{group}/jobs",
            "listFailedJobs",
            "Lists the failed jobs of a group.",
            failures::jobs,
        )
        .query(PAGE)
        .reply::<PageView>(),
        operation(
            M::POST,
            "/api/v1/failures/{group}/retry",
            "retryFailedJobs",
            "Puts all failed jobs of a group back.",
            failures::retry,
        )
        .reply::<Done>()
        .audited(),
        operation(
            M::GET,
            "/api/v1/workers",
            "listWorkers",
            "Lists the workers.",
            workers::list,
        )
        .reply::<WorkersDoc>(),
        operation(
            M::DELETE,
            "/api/v1/workers/{worker}",
            "goodbye",
            "Says goodbye for a worker: its leases end as released.",
            workers::goodbye,
        )
        .reply::<Done>()
        .audited(),
        operation(
            M::GET,
            "/api/v1/tags",
            "listTags",
            "Lists the most used tags.",
            numbers::tags,
        )
        .query(&[
            ("skip", "leaves out so many"),
            ("limit", "1 to 1000; 100 if absent"),
        ])
        .reply::<TagsView>(),
        operation(
            M::GET,
            "/api/v1/tracked",
            "listTracked",
            "Lists the tracked jobs.",
            numbers::tracked,
        )
        .reply::<TrackedListView>(),
        operation(
            M::GET,
            "/api/v1/stats",
            "getStatistics",
            "Statistics of a queue and a day.",
            numbers::statistics,
        )
        .query(&[
            ("queue", "default if absent"),
            ("day", "YYYY-MM-DD in UTC; today if absent"),
        ])
        .reply::<StatisticsView>(),
        operation(
            M::GET,
            "/api/v1/events",
            "followEvents",
            "Events as they happen, as server-sent events.",
            events::follow,
        )
        .query(&[
            ("queue", "of this queue"),
            ("job", "of this job"),
            ("event", "of these kinds, with commas between"),
            (
                "after",
                "goes on after this position, as the header Last-Event-ID",
            ),
        ])
        .reply_as(Content {
            schema: Some(describe::<EventView>),
            ..plain("text/event-stream")
        }),
        operation(
            M::GET,
            "/api/v1/audit",
            "audit",
            "Recomputes every index and compares.",
            numbers::audit,
        )
        .reply::<AuditView>(),
    ]
}

fn about_the_server() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/healthz",
            "live",
            "Whether the process answers.",
            health::live,
        )
        .reply::<LiveView>(),
        operation(
            M::GET,
            "/readyz",
            "ready",
            "Whether the shard can work.",
            health::ready,
        )
        .reply::<ReadinessView>(),
        operation(
            M::GET,
            "/version",
            "version",
            "What the server is.",
            health::version,
        )
        .reply::<VersionView>(),
        operation(
            M::GET,
            "/metrics",
            "metrics",
            "Numbers in the Prometheus text format.",
            metrics::show_all,
        )
        .reply_as(plain("text/plain")),
        operation(
            M::GET,
            "/openapi.json",
            "openapi",
            "This document.",
            health::describe,
        )
        .reply_as(plain("application/json")),
    ]
}

/// enq's form of a submission, for the document.
pub(crate) fn enq_form() -> Described {
    describe::<TaskIn>
}

/// The problem document, likewise.
pub(crate) fn problem_form() -> Described {
    describe::<crate::problem::ProblemView<'static>>
}

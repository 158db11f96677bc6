//! Operations for events, statistics, failures and workers.

use ganger_access::Right;
use ganger_document::view::event::Event;
use ganger_document::view::job::Page;
use ganger_document::view::names::{Labels, Names};
use ganger_document::view::statistics::{GroupsView, Statistics, TagsView, TrackedListView};
use ganger_document::view::worker::WorkersDoc;
use http::Method;

use super::{Operation, PAGE, operation};
use crate::description::Content;
use crate::resource::numbers::{AuditView, Done};
use crate::resource::{events, failures, names, numbers, workers};

#[expect(clippy::too_many_lines, reason = "a table")]
pub(super) fn about_the_rest() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/failures",
            "listFailures",
            Right::OBSERVE,
            "Lists the failure groups, the last failure first.",
            failures::list,
        )
        .query(PAGE)
        .reply::<GroupsView>(),
        operation(
            M::GET,
            "/api/v1/failures/{group}/jobs",
            "listFailedJobs",
            Right::OBSERVE,
            "Lists the failed jobs of a group.",
            failures::jobs,
        )
        .query(PAGE)
        .reply::<Page>(),
        operation(
            M::POST,
            "/api/v1/failures/{group}/retry",
            "retryFailedJobs",
            Right::OPERATE,
            "Retries all failed jobs of a group.",
            failures::retry,
        )
        .reply::<Done>(),
        operation(
            M::GET,
            "/api/v1/workers",
            "listWorkers",
            Right::OBSERVE,
            "Lists the workers.",
            workers::list,
        )
        .query(PAGE)
        .reply::<WorkersDoc>(),
        operation(
            M::DELETE,
            "/api/v1/workers/{worker}",
            "deregisterWorker",
            Right::WORK,
            "Deregisters a worker: its leases end as released.",
            workers::deregister,
        )
        .reply::<Done>(),
        operation(
            M::POST,
            "/api/v1/workers/{worker}/release",
            "releaseWorker",
            Right::OPERATE,
            "Deregisters a worker for an operator: its leases end as released; `changed` is their number.",
            workers::release,
        )
        .reply::<Done>(),
        operation(
            M::GET,
            "/api/v1/tags",
            "listTags",
            Right::OBSERVE,
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
            Right::OBSERVE,
            "Lists the tracked jobs.",
            numbers::tracked,
        )
        .query(PAGE)
        .reply::<TrackedListView>(),
        operation(
            M::GET,
            "/api/v1/stats",
            "getStatistics",
            Right::OBSERVE,
            "Shows the statistics of a queue and a day.",
            numbers::statistics,
        )
        .query(&[
            ("queue", "default if absent"),
            ("day", "YYYY-MM-DD in UTC; today if absent"),
        ])
        .reply::<Statistics>(),
        operation(
            M::GET,
            "/api/v1/events",
            "followEvents",
            Right::OBSERVE,
            "Streams events as they happen, as server-sent events; with limit or before, reads back what is kept.",
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
            (
                "every",
                "sums by queue and change instead of single events, so often: 1s to 60s",
            ),
            (
                "limit",
                "reads back so many events, 1 to 1000, the newest first (Events)",
            ),
            ("before", "reads back the events before this position"),
        ])
        .reply_as(Content::of::<Event>("text/event-stream")),
        operation(
            M::GET,
            "/api/v1/audit",
            "audit",
            Right::OPERATE.on_server(),
            "Recomputes every index and compares it with the stored one.",
            numbers::audit,
        )
        .reply::<AuditView>(),
    ]
}

/// Operations on names and labels that are in use.
pub(super) fn about_names() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/names",
            "listNames",
            Right::OBSERVE,
            "Lists names that are in use and begin alike.",
            names::names,
        )
        .query(&[
            ("of", "queue, kind, tag, worker, schedule, graph or group"),
            ("prefix", "what the names begin with"),
            ("limit", "1 to 999; 20 if absent"),
        ])
        .reply::<Names>(),
        operation(
            M::GET,
            "/api/v1/labels",
            "listLabels",
            Right::OBSERVE,
            "Lists the keys of labels, or the values of one key, with their numbers of jobs.",
            names::labels,
        )
        .query(&[
            ("key", "the key whose values are listed; the keys if absent"),
            ("prefix", "what they begin with"),
            ("after", "goes on where a page ended"),
            ("limit", "1 to 100; 20 if absent"),
        ])
        .reply::<Labels>(),
    ]
}

//! Listings.

use std::time::Duration;

use ganger_proto::v1;
use ganger_types::cursor::read_ready_place;
use ganger_types::query::{Budget, JobQuery, ReadyPlace};
use ganger_types::{
    Graph, Group, Kind, Namespace, PageCursor, Queue, ScheduleId, Timestamp, UniqueKey, Worker,
    limits,
};

use super::{At, at_most, bounded, labels, maybe, queue, states, tags};
use crate::problem::Problem;

/// Jobs on a page unless asked otherwise.
const PAGE_JOBS_DEFAULT: u32 = 100;

/// Longest time that a request may let the server look.
const BUDGET_MAX: Duration = Duration::from_secs(10);

/// The order of a listing, with the place where a page goes on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// By number, the oldest or the newest first; the query has the place.
    Number,
    /// The latest end first, after the end with this number.
    End(Option<u64>),
    /// The ready jobs of this queue in the order in which they are leased, after this place.
    Next(Queue, Option<ReadyPlace>),
}

/// Reads a listing: the conditions on the jobs, and their order.
pub(crate) fn listing(mut wire: v1::ListRequest) -> Result<(JobQuery, Order), Problem> {
    let order = wire.order();
    if order == v1::ListOrder::Unspecified {
        return Ok((job_query(wire)?, Order::Number));
    }
    let after = Some(std::mem::take(&mut wire.cursor)).filter(|text| !text.is_empty());
    let query = job_query(wire)?;
    let order = if order == v1::ListOrder::FinishedNewest {
        let place = after.map(|text| text.parse().map_err(|_| no_place(&text)));
        Order::End(place.transpose()?)
    } else {
        let queue = query.queue.clone().ok_or_else(|| {
            Problem::missing(At::top("queue"), "RUNS_NEXT is the order of one queue")
        })?;
        let place = after.map(|text| read_ready_place(&text).ok_or_else(|| no_place(&text)));
        Order::Next(queue, place.transpose()?)
    };
    Ok((query, order))
}

/// Reads the conditions on the jobs to list.
pub(crate) fn job_query(wire: v1::ListRequest) -> Result<JobQuery, Problem> {
    if let Some(text) = &wire.failure_text {
        at_most(
            At::top("failure_text"),
            text.len(),
            limits::MESSAGE_BYTES_MAX,
        )?;
    }
    for (field, values) in [("tag", wire.tag.len()), ("label", wire.label.len())] {
        at_most(At::top(field), values, limits::CONDITION_VALUES_MAX)?;
    }
    let page_max = u32::try_from(limits::PAGE_JOBS_MAX).expect("a page is small");
    let limit = bounded(At::top("limit"), wire.limit, PAGE_JOBS_DEFAULT, page_max)?;
    let mut query = JobQuery {
        namespace: super::namespace(&wire.namespace)?,
        queue: wire
            .queue
            .map(|text| queue(At::top("queue"), &text))
            .transpose()?,
        states: states(At::top("state"), &wire.state)?,
        kind: maybe(At::top("kind"), wire.kind.as_deref(), Kind::new)?,
        kind_prefix: prefix("kind_prefix", wire.kind_prefix)?,
        id_prefix: prefix("id_prefix", wire.id_prefix)?,
        tags: tags(At::top("tag"), &wire.tag)?,
        labels: labels(At::top("label"), &wire.label)?,
        graph: maybe(At::top("graph"), wire.graph.as_deref(), Graph::new)?,
        schedule: maybe(
            At::top("schedule"),
            wire.schedule.as_deref(),
            ScheduleId::new,
        )?,
        group: maybe(At::top("group"), wire.group.as_deref(), Group::new)?,
        failure_text: wire.failure_text,
        worker: maybe(At::top("worker"), wire.worker.as_deref(), Worker::new)?,
        unique_key: maybe(
            At::top("unique_key"),
            wire.unique_key.as_deref(),
            UniqueKey::new,
        )?,
        tracked: wire.tracked,
        attempt_min: wire.attempt_min,
        created_from: wire.created_from_us.map(Timestamp),
        created_before: wire.created_before_us.map(Timestamp),
        finished_from: wire.finished_from_us.map(Timestamp),
        finished_before: wire.finished_before_us.map(Timestamp),
        newest_first: wire.newest_first,
        limit: usize::try_from(limit).unwrap_or(limits::PAGE_JOBS_MAX),
        budget: budget(wire.budget_ms)?,
        ..JobQuery::default()
    };
    if let Some(place) = cursor(&wire.cursor)? {
        query.go_on(place);
    }
    Ok(query)
}

/// Conditions on the jobs that a bulk action is for. Without any it would mean every job: refused.
pub(crate) fn matching_query(
    namespace: Namespace,
    wire: v1::ListRequest,
) -> Result<JobQuery, Problem> {
    let mut query = job_query(v1::ListRequest {
        namespace: namespace.to_text().into_owned(),
        newest_first: false,
        limit: 0,
        budget_ms: None,
        ..wire
    })?;
    query.namespace = namespace;
    let nothing = JobQuery {
        namespace: query.namespace.clone(),
        after: query.after,
        after_external_job: query.after_external_job.clone(),
        limit: query.limit,
        ..JobQuery::default()
    };
    if query == nothing {
        let reason = "without conditions it would mean every job: give at least one";
        return Err(Problem::invalid(At::top("filter"), reason));
    }
    Ok(query)
}

/// The first bytes of names, at most as many as a name has; an empty prefix is none.
fn prefix(field: &str, text: Option<String>) -> Result<Option<Vec<u8>>, Problem> {
    let prefix = text.map(String::into_bytes);
    let prefix = prefix.filter(|prefix| !prefix.is_empty());
    let bytes = prefix.as_ref().map_or(0, Vec::len);
    at_most(At::top(field), bytes, limits::NAME_BYTES_MAX)?;
    Ok(prefix)
}

fn cursor(text: &str) -> Result<Option<PageCursor>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    Ok(Some(text.parse().map_err(|_| no_place(text))?))
}

fn no_place(text: &str) -> Problem {
    let reason = format_args!("{text:?} is not the `next` of a page in this order");
    Problem::invalid(At::top("cursor"), reason)
}

/// How much a request lets the server look at; all of it if the request does not say.
fn budget(budget_ms: Option<u64>) -> Result<Budget, Problem> {
    let Some(time) = budget_ms.map(Duration::from_millis) else {
        return Ok(Budget::default());
    };
    if time.is_zero() || time > BUDGET_MAX {
        let reason = format_args!(
            "{} is out of range: 1 to {}",
            time.as_millis(),
            BUDGET_MAX.as_millis()
        );
        return Err(Problem::invalid(At::top("budget_ms"), reason));
    }
    Ok(Budget::of_page(time))
}

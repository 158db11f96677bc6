//! Failure groups: list groups, list the jobs of one, retry all its jobs.

use std::cmp::Reverse;

use axum::response::Response;
use ganger_document::names::{self, text};
use ganger_document::time::calendar;
use ganger_document::view::job;
use ganger_document::view::statistics::{FailureGroup, FailuresOf, GroupsView};
use ganger_shard::GroupView;
use ganger_types::command::Retry;
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{Command, Group, JobState, Kind, Queue, Reply, Timestamp};

use crate::arguments::refused;
use crate::filter;
use crate::json;
use crate::problem::Problem;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

/// Queues, and kinds, of a group that an answer names.
const NAMES_SHOWN: usize = 5;

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let limit = filter::limit(&context.arguments)?;
    let after = after(&context)?;
    let shard = context.shard();
    let mut groups = shard.failure_groups(&context.namespace).await?;
    if let Some((last_at, group)) = &after {
        groups.retain(|view| view.place() > (Reverse(*last_at), group));
    }
    let has_more = groups.len() > limit;
    groups.truncate(limit);
    let now = shard.wall_time();
    let next = groups.last().filter(|_| has_more).map(|view| {
        let Reverse(last_at) = view.place().0;
        format!("{}.{}", last_at.0, text(view.group.as_bytes()))
    });
    Ok(json::ok(&GroupsView {
        groups: groups.into_iter().map(|view| show(view, now)).collect(),
        next,
    }))
}

/// The time and name of the group after which a page begins.
fn after(context: &RequestContext) -> Result<Option<(Timestamp, Group)>, Problem> {
    let Some(text) = context.arguments.text("after")? else {
        return Ok(None);
    };
    let place = text.split_once('.').and_then(|(at, group)| {
        let group = Group::new(names::read(group.as_bytes())).ok()?;
        Some((Timestamp(at.parse().ok()?), group))
    });
    let reason = || format!("{text:?} is not the `next` of a page: send that unchanged");
    place.map(Some).ok_or_else(|| refused("after", &reason()))
}

fn show(view: GroupView, now: Timestamp) -> FailureGroup {
    let facts = view.facts.unwrap_or_default();
    let is_known = facts.last_at > Timestamp::default();
    FailureGroup {
        group: text(view.group.as_bytes()),
        jobs: view.jobs,
        first_at: is_known.then(|| calendar(facts.first_at)),
        last_at: is_known.then(|| calendar(facts.last_at)),
        last_hour: facts.last_hour(now),
        by_queue: failures_of(facts.queues_with_most(NAMES_SHOWN), Queue::as_bytes),
        by_kind: failures_of(facts.kinds_with_most(NAMES_SHOWN), Kind::as_bytes),
        message: is_known.then_some(facts.message),
        shard: None,
    }
}

fn failures_of<N>(counts: Vec<(&N, u64)>, bytes: impl Fn(&N) -> &[u8]) -> Vec<FailuresOf> {
    let failures = counts.into_iter().map(|(name, count)| FailuresOf {
        name: text(bytes(name)),
        count,
    });
    failures.collect()
}

pub(crate) async fn jobs(context: RequestContext) -> Result<Response, Problem> {
    let mut query = JobQuery {
        limit: filter::limit(&context.arguments)?,
        ..failed_in_group(&context)?
    };
    filter::go_on(&mut query, &context.arguments)?;
    let page = context.shard().list(query).await?;
    Ok(json::ok(&job::Page::new(
        context.shard().id(),
        page.jobs,
        page.next,
    )))
}

pub(crate) async fn retry(context: RequestContext) -> Result<Response, Problem> {
    let mut query = failed_in_group(&context)?;
    let mut done = Done { changed: 0 };
    loop {
        let page = context.shard().list(query.clone()).await?;
        let jobs: Vec<_> = page.jobs.into_iter().map(|job| job.record.id).collect();
        if !jobs.is_empty() {
            let command = Retry {
                namespace: context.namespace.clone(),
                jobs,
                queue: None,
                dependents: false,
                graph: None,
            };
            if let Reply::Changed { count, .. } =
                context.call(Command::Retry(Box::new(command))).await?
            {
                done.changed += count;
            }
        }
        match page.next {
            Some(next) => query.go_on(next),
            None => return Ok(json::ok(&done)),
        }
    }
}

fn failed_in_group(context: &RequestContext) -> Result<JobQuery, Problem> {
    Ok(JobQuery {
        namespace: context.namespace.clone(),
        states: JobState::Failed.into(),
        group: Some(context.name()?),
        limit: PAGE_JOBS_MAX,
        ..JobQuery::default()
    })
}

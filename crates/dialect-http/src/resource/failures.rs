//! Failure groups: list groups, list the jobs of one, retry all its jobs.

use std::cmp::Reverse;

use axum::response::Response;
use ganger_document::names::{self, Named, text};
use ganger_document::time::Moment;
use ganger_document::view::job;
use ganger_document::view::statistics::{FailuresOf, GroupView as GroupDocument, GroupsView};
use ganger_shard::GroupView;
use ganger_types::command::Retry;
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{Command, Group, JobState, Reply, Timestamp};

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

fn show(view: GroupView, now: Timestamp) -> GroupDocument {
    let facts = view.facts.unwrap_or_default();
    let is_known = facts.last_at > Timestamp::default();
    GroupDocument {
        group: Named(view.group),
        count: view.jobs,
        first_at: is_known.then_some(Moment(facts.first_at)),
        last_at: is_known.then_some(Moment(facts.last_at)),
        last_hour: facts.last_hour(now),
        by_queue: most(
            facts
                .by_queue
                .iter()
                .map(|(it, count)| (it.as_bytes(), *count)),
        ),
        by_kind: most(
            facts
                .by_kind
                .iter()
                .map(|(it, count)| (it.as_bytes(), *count)),
        ),
        message: is_known.then_some(facts.message),
    }
}

/// The names with the most failures.
fn most<'a>(counts: impl Iterator<Item = (&'a [u8], u64)>) -> Vec<FailuresOf> {
    let mut counts: Vec<_> = counts.collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    counts.truncate(NAMES_SHOWN);
    let failures = counts.into_iter().map(|(name, count)| FailuresOf {
        name: text(name),
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

//! Failure groups: list groups, list the jobs of one, retry all its jobs.

use axum::response::Response;
use ganger_document::names::Named;
use ganger_document::view::job;
use ganger_document::view::statistics::{GroupView, GroupsView};
use ganger_types::command::Retry;
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::{JobQuery, Query};
use ganger_types::{Command, JobState, Reply};

use crate::filter;
use crate::json;
use crate::problem::Problem;
use crate::refusal::unexpected_reply;
use crate::request_context::RequestContext;
use crate::resource::numbers::Done;

pub(crate) async fn list(context: RequestContext) -> Result<Response, Problem> {
    let query = Query::FailureGroups(context.namespace.clone());
    match context.call(Command::Query(Box::new(query))).await? {
        Reply::FailureGroups(groups) => {
            let view = |(group, count)| GroupView {
                group: Named(group),
                count,
            };
            Ok(json::ok(&GroupsView {
                groups: groups.into_iter().map(view).collect(),
            }))
        }
        _ => Err(unexpected_reply()),
    }
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

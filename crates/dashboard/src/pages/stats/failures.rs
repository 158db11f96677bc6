//! Failures of a time by group, among the failed jobs that were looked at.

use std::collections::BTreeMap;

use ganger_types::query::JobQuery;
use ganger_types::{Group, JobState};
use maud::{Markup, html};

use crate::data::jobs;
use crate::data::series::{Which, Window};
use crate::fault::Fault;
use crate::format::counted;
use crate::view::View;
use crate::widgets::{columns, named_link, table};

/// Failed jobs that are looked at.
const LOOKED: usize = 1_000;
/// Groups that are shown.
const GROUPS: usize = 20;

pub(super) async fn show(view: &View, which: &Which, window: Window) -> Result<Markup, Fault> {
    let query = JobQuery {
        namespace: view.namespace().clone(),
        states: JobState::Failed.into(),
        queue: which.queue.clone(),
        kind: which.kind.clone(),
        newest_first: true,
        limit: LOOKED,
        ..JobQuery::default()
    };
    let listing = jobs::list(view, &query, None).await?;
    let from = window.from(view.clock.now);
    let mut groups: BTreeMap<Group, u64> = BTreeMap::new();
    for (_, job) in &listing.jobs {
        if let Some(failure) = job.record.failure.as_ref().filter(|it| it.at >= from) {
            *groups.entry(failure.group.clone()).or_default() += 1;
        }
    }
    let mut rows: Vec<_> = groups.into_iter().collect();
    rows.sort_by_key(|(_, jobs)| std::cmp::Reverse(*jobs));
    let head = columns(&["Group", "#Jobs"]);
    let body = html! {
        @for (group, jobs) in rows.iter().take(GROUPS) {
            tr data-row {
                th scope="row" { (named_link(&view.links.to("/failure").name("group", group.as_bytes()), group.as_bytes())) }
                td.number { (counted(*jobs)) }
            }
        }
    };
    Ok(html! {
        h2 { "Failures by group" }
        @if rows.is_empty() { p.empty { "No kept job failed in this time." } }
        @else { (table("Failures by group", &head, &body)) }
        @if listing.next.is_some() { p.remark { "Among the " (LOOKED) " failed jobs that were created last." } }
    })
}

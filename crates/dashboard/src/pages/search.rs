//! Jumps: an id opens its job, a name its page. Payloads are never searched.

use ganger_document::names::{read, show};
use ganger_types::query::Query;
use ganger_types::{Reply, Tag};
use maud::{Markup, html};

use crate::data::{jobs, queues};
use crate::fault::Fault;
use crate::frame::kept_scope;
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::text::{isolated, plain};
use crate::view::View;

/// Names of each sort that are offered.
const OFFERED: usize = 20;
/// Tags that are looked at.
const TAGS: usize = 1_000;
/// Kinds are not listed by the server yet: a link searches for the one that was typed.
const KIND: &str = "kind";

/// Names of one sort, with the address of each.
struct Names {
    sort: &'static str,
    found: Vec<(Vec<u8>, Address)>,
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["q"])?;
    let given = params.bytes("q").unwrap_or_default();
    let wanted = read(given.trim_ascii());
    view.rights.check("listJobs")?;
    if !wanted.is_empty()
        && let Ok(found) = super::job::find(view, &wanted).await
    {
        let address = view.links.job(found.shard.id(), &found.job.record.id);
        return Err(Stop::Elsewhere(address.as_str().to_owned()));
    }
    let names = if wanted.is_empty() {
        Vec::new()
    } else {
        names(view).await?
    };
    Ok(show_page(view, &wanted, names))
}

/// Names that match, of one sort, and whether there are more.
type Group = (&'static str, Vec<(Vec<u8>, Address)>, bool);

/// All names of the view, by sort.
async fn names(view: &View) -> Result<Vec<Names>, Fault> {
    let links = &view.links;
    let (rows, _) = queues::all(view).await?;
    let mut all = vec![Names {
        sort: "Queue",
        found: rows
            .iter()
            .map(|row| {
                (
                    row.queue.queue.as_bytes().to_vec(),
                    crate::widgets::queue_address(view, row.shard.id(), &row.queue.queue),
                )
            })
            .collect(),
    }];
    if view.rights.may_read("listTags") {
        let tags = view.gather(|shard| tags(view, shard)).await?;
        let tags = tags.found.into_iter().flat_map(|(_, tags)| tags);
        all.push(Names {
            sort: "Tag",
            found: tags
                .map(|tag| {
                    (
                        tag.as_bytes().to_vec(),
                        links.to("/jobs").name("tag", tag.as_bytes()),
                    )
                })
                .collect(),
        });
    }
    if view.rights.may_read("listFailures") {
        let groups = jobs::groups(view).await?.into_iter();
        all.push(Names {
            sort: "Failure group",
            found: groups
                .map(|(group, _)| {
                    (
                        group.as_bytes().to_vec(),
                        links.to("/failure").name("group", group.as_bytes()),
                    )
                })
                .collect(),
        });
    }
    if view.rights.may_read("listSchedules") {
        let found = super::schedules::all(view).await?.0.into_iter();
        all.push(Names {
            sort: "Schedule",
            found: found
                .map(|(shard, schedule)| {
                    (
                        schedule.id.as_bytes().to_vec(),
                        links
                            .on(shard.id(), "/schedule")
                            .name("id", schedule.id.as_bytes()),
                    )
                })
                .collect(),
        });
    }
    if view.rights.may_read("listWorkers") {
        let found = super::workers::all(view).await?.0.into_iter();
        all.push(Names {
            sort: "Worker",
            found: found
                .map(|(_, worker)| {
                    (
                        worker.worker.as_bytes().to_vec(),
                        links.to("/worker").name("name", worker.worker.as_bytes()),
                    )
                })
                .collect(),
        });
    }
    Ok(all)
}

async fn tags(view: &View, shard: &ganger_shard::Handle) -> Result<Vec<Tag>, Fault> {
    let query = Query::TopTags(view.namespace().clone(), 0, TAGS);
    match view.ask(shard, query).await? {
        Reply::Tags(tags) => Ok(tags.into_iter().map(|(tag, _)| tag).collect()),
        _ => Err(Fault::unexpected_reply()),
    }
}

fn show_page(view: &View, wanted: &[u8], names: Vec<Names>) -> Page {
    let text = show(wanted);
    let head = html! {
        h1 { "Search" }
        form.filter role="search" aria-label="Search again" action=(view.links.bare("/search")) {
            label { "Job id, queue, tag, schedule, worker or failure group " input type="search" name="q" value=(plain(&text)) maxlength="320"; }
            (kept_scope(view))
            button { "Search" }
        }
        p.soft { "Ids and names are searched, payloads are not." }
    };
    let page = Page::new("Search", "", head).still();
    if wanted.is_empty() {
        return page;
    }
    let groups: Vec<Group> = names
        .into_iter()
        .map(|names| {
            let (exact, beginning): (Vec<_>, Vec<_>) = names
                .found
                .into_iter()
                .filter(|(name, _)| name.starts_with(wanted))
                .partition(|(name, _)| name == wanted);
            let is_cut = beginning.len() > OFFERED;
            let found = exact.into_iter().chain(beginning).take(OFFERED).collect();
            (names.sort, found, is_cut)
        })
        .filter(|(_, found, _): &(_, Vec<_>, _)| !found.is_empty())
        .collect();
    let kind = view.links.to("/jobs").name(KIND, wanted);
    page.part("part-found", html! {
        @if groups.is_empty() {
            p.empty { "No job has the id " (isolated(&text)) ", and no queue, tag, failure group, schedule or worker begins with it." }
        }
        @for (sort, found, is_cut) in &groups { (group(sort, found, *is_cut)) }
        p { a href=(kind) { "Jobs of the kind " (isolated(&text)) } }
    })
}

fn group(sort: &str, found: &[(Vec<u8>, Address)], is_cut: bool) -> Markup {
    html! {
        h2 { (sort) }
        ul { @for (name, address) in found { li { (crate::widgets::named_link(address, name)) } } }
        @if is_cut { p.remark { "The first " (OFFERED) " are shown." } }
    }
}

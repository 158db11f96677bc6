//! Jumps: an id opens its job, a name its page. Payloads are never searched.

use ganger_document::names::{read, show};
use ganger_shard::{Handle, NamesOf};
use ganger_types::ShardId;
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::frame::kept_scope;
use crate::links::Address;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Question;
use crate::text::{isolated, plain};
use crate::view::View;

/// Names of each sort that are offered.
const OFFERED: usize = 20;
/// Names of one sort that a shard is asked for at most.
const NAMES_MAX: usize = 100;

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
        names(view, &wanted).await?
    };
    Ok(show_page(view, &wanted, names))
}

/// Names that match, of one sort, and whether there are more.
type Group = (&'static str, Vec<(Vec<u8>, Address)>, bool);

/// What is searched: the heading, what the names name, and the operation whose right is needed.
const SORTS: [(&str, NamesOf, &str); 7] = [
    ("Queue", NamesOf::Queue, "listQueues"),
    ("Kind", NamesOf::Kind, "listKinds"),
    ("Tag", NamesOf::Tag, "listTags"),
    ("Failure group", NamesOf::Group, "listFailures"),
    ("Schedule", NamesOf::Schedule, "listSchedules"),
    ("Worker", NamesOf::Worker, "listWorkers"),
    ("Graph", NamesOf::Graph, "listJobs"),
];

/// Names of a shard that begin so.
#[derive(Serialize, Deserialize)]
pub(crate) struct Beginning {
    pub(crate) of: NamesOf,
    pub(crate) wanted: Vec<u8>,
    pub(crate) limit: usize,
}

impl Question for Beginning {
    const NAME: &'static str = "names";
    type Answer = Vec<Vec<u8>>;

    fn operation(&self) -> &'static str {
        let sort = SORTS.iter().find(|(_, of, _)| *of == self.of);
        sort.map_or("listNames", |(_, _, operation)| *operation)
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let limit = self.limit.min(NAMES_MAX);
        let names = shard.names(view.namespace(), self.of, &self.wanted, limit);
        Ok(names.await?)
    }
}

/// The names of the view that begin so, by sort.
async fn names(view: &View, wanted: &[u8]) -> Result<Vec<Names>, Fault> {
    let mut all = Vec::new();
    for (sort, of, operation) in SORTS {
        if !view.rights.may_read(operation) {
            continue;
        }
        let question = Beginning {
            of,
            wanted: wanted.to_vec(),
            limit: OFFERED + 1,
        };
        let gathered = view.gather(&question).await?;
        let mut found = Vec::new();
        for (shard, names) in gathered.found {
            found.extend(names.into_iter().map(|name| {
                let address = address(view, &shard, of, &name);
                (name, address)
            }));
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        if !matches!(of, NamesOf::Queue | NamesOf::Schedule) {
            found.dedup_by(|a, b| a.0 == b.0);
        }
        all.push(Names { sort, found });
    }
    Ok(all)
}

/// The page of a name.
fn address(view: &View, shard: &ShardId, of: NamesOf, name: &[u8]) -> Address {
    let links = &view.links;
    match of {
        NamesOf::Queue => links.on(shard, "/queue").name("name", name),
        NamesOf::Kind => links.to("/jobs").name("kind", name),
        NamesOf::Tag => links.to("/jobs").name("tag", name),
        NamesOf::Group => links.to("/failure").name("group", name),
        NamesOf::Schedule => links.on(shard, "/schedule").name("id", name),
        NamesOf::Worker => links.to("/worker").name("name", name),
        NamesOf::Graph => links.to("/jobs").name("graph", name),
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
    let kind = view.links.to("/jobs").name("kind", wanted);
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

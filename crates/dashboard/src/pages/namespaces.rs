//! Namespaces: their settings, their counts, and how much of their limits they use.

use std::collections::BTreeMap;

use ganger_document::names::text;
use ganger_document::settings::NamespaceSettingsDocument;
use ganger_shard::Handle;
use ganger_types::limits::PAGE_QUEUES_MAX;
use ganger_types::query::Query;
use ganger_types::{Namespace, NamespaceRecord, NamespaceSettings, Queue, QueueCounts, Reply};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fault::Fault;
use crate::format::{bytes, count, counted, span};
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Question;
use crate::text::{isolated, name};
use crate::view::{Missing, View};
use crate::widgets::{self, columns, table};
use crate::wire::Stored;

/// Namespaces on the page.
const SHOWN: usize = 200;
/// Pages of queues that are added up for the counts of a namespace.
const QUEUE_PAGES_MAX: usize = 10;

/// The records of the namespaces of a shard that the viewer may list.
#[derive(Serialize, Deserialize)]
pub(crate) struct Records;

impl Question for Records {
    const NAME: &'static str = "namespaces";
    type Answer = Vec<Stored<NamespaceRecord>>;

    fn operation(&self) -> &'static str {
        "listNamespaces"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let Reply::Namespaces(mut records) = view.ask(shard, Query::Namespaces).await? else {
            return Err(Fault::unexpected_reply());
        };
        records.retain(|record| view.rights.lists(&record.namespace));
        Ok(records.into_iter().map(Stored).collect())
    }
}

/// The records of the namespaces that the viewer may list, of all shards of the view together.
async fn records(view: &View) -> Result<(BTreeMap<Namespace, NamespaceSettings>, Missing), Fault> {
    let gathered = view.gather(&Records).await?;
    let mut all = BTreeMap::new();
    all.insert(Namespace::default(), NamespaceSettings::default());
    for (_, records) in gathered.found {
        for Stored(NamespaceRecord {
            namespace,
            settings,
        }) in records
        {
            // A shard that never had settings for it has the defaults.
            let is_default = settings == NamespaceSettings::default();
            if !(is_default && all.contains_key(&namespace)) {
                all.insert(namespace, settings);
            }
        }
    }
    all.retain(|namespace, _| view.rights.lists(namespace));
    Ok((all, gathered.missing))
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["name"])?;
    view.rights.check("listNamespaces")?;
    let (all, missing) = records(view).await?;
    if let Some(namespace) = params.name::<Namespace>("name")? {
        let settings = all.get(&namespace).ok_or_else(|| {
            let shown = text(namespace.as_bytes());
            Fault::new(
                "path_not_found",
                format!("There is no namespace {shown}"),
                "It was never used or configured, or you may not see it.",
            )
        })?;
        return one(view, &namespace, settings).await;
    }
    let head = html! { div.heading { h1 { "Namespaces" } } };
    let body = html! {
        @for (namespace, settings) in all.iter().take(SHOWN) {
            tr data-row {
                th scope="row" { a href=(view.links.bare("/namespaces").name("ns", namespace.as_bytes()).name("name", namespace.as_bytes())) { (name(namespace.as_bytes())) } }
                td.number { (limit(settings.live_max)) }
                td.number { (count(settings.queues_max)) }
                td.number { (bytes(settings.payload_bytes_max)) }
                td { (settings.clock.as_str()) }
            }
        }
    };
    let head_row = columns(&[
        "Namespace",
        "#Live jobs at most",
        "#Queues at most",
        "#Payload at most",
        "Clock",
    ]);
    let page = Page::new("Namespaces", "", head).still();
    Ok(page.part(
        "part-namespaces",
        html! {
            (table("Namespaces", &head_row, &body))
            @if all.len() > SHOWN { p.remark { "The first " (SHOWN) " of " (all.len()) "." } }
            (widgets::missing(&missing))
        },
    ))
}

fn limit(most: Option<u64>) -> Markup {
    match most {
        Some(most) => counted(most),
        None => html! { "no limit" },
    }
}

async fn one(
    view: &View,
    namespace: &Namespace,
    settings: &NamespaceSettings,
) -> Result<Page, Stop> {
    let (counts, queues, is_all) = counts(view, namespace).await?;
    let shown = text(namespace.as_bytes());
    let may_edit = view.rights.may_govern(namespace);
    let edit = view.links.bare("/namespaces/settings");
    let edit = edit.name("ns", namespace.as_bytes());
    let head = html! {
        div.heading {
            h1 { "Namespace " (name(namespace.as_bytes())) }
            div.actions { @if may_edit { a.button href=(edit) { "Edit settings" } } }
        }
    };
    let bound = if is_all { "" } else { "more than " };
    let live = counts.live();
    let page = Page::new(format!("Namespace {shown}"), "", head).still();
    let document = NamespaceSettingsDocument::from(settings);
    let fields = serde_json::to_value(document).unwrap_or_default();
    Ok(page
        .part("part-counts", html! {
            h2 { "Counts" }
            dl.facts {
                div { dt { "Queues" } dd { (bound) (count(queues)) } }
                @for (word, number) in [("Ready", counts.ready), ("Running", counts.running), ("Scheduled", counts.scheduled), ("Blocked", counts.blocked), ("Failed (kept)", counts.failed), ("Succeeded (kept)", counts.succeeded)] {
                    div { dt { (word) } dd { (bound) (counted(number)) } }
                }
            }
            h2 { "Quota" }
            dl.facts {
                div { dt { "Live jobs" } dd { (bound) (counted(live)) " of " (limit(settings.live_max)) } }
                div { dt { "Queues" } dd { (bound) (count(queues)) " of " (count(settings.queues_max)) } }
            }
        })
        .part("part-settings", html! {
            h2 { "Settings" }
            dl.facts {
                div { dt { "Length of leases" } dd { (span(settings.lease_for)) } }
                @if let Value::Object(fields) = &fields { @for (field, value) in fields {
                    div { dt { (isolated(field)) } dd { code { (isolated(&value.to_string())) } } }
                } }
            }
        }))
}

/// Jobs by state and number of queues of the namespace on a shard, and whether all queues were counted.
#[derive(Serialize, Deserialize)]
pub(crate) struct Sum;

impl Question for Sum {
    const NAME: &'static str = "sum_of_queues";
    type Answer = (QueueCounts, u64, bool);

    fn operation(&self) -> &'static str {
        "listNamespaces"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        if !view.rights.lists(view.namespace()) {
            return Ok(Self::Answer::default());
        }
        let (mut sum, mut queues) = (QueueCounts::default(), 0);
        let mut after: Option<Queue> = None;
        for _ in 0..QUEUE_PAGES_MAX {
            let query = Query::Queues(view.namespace().clone(), after.take(), PAGE_QUEUES_MAX);
            let Reply::Queues(page) = view.ask(shard, query).await? else {
                return Err(Fault::unexpected_reply());
            };
            for queue in &page {
                add(&mut sum, &queue.counts);
            }
            queues += u64::try_from(page.len()).unwrap_or(u64::MAX);
            if page.len() < PAGE_QUEUES_MAX {
                return Ok((sum, queues, true));
            }
            after = page.last().map(|queue| queue.queue.clone());
        }
        Ok((sum, queues, false))
    }
}

/// Jobs by state and number of queues of a namespace, over all shards of the view, and whether all queues were counted.
async fn counts(view: &View, namespace: &Namespace) -> Result<(QueueCounts, u64, bool), Fault> {
    let gathered = view.in_namespace(namespace.clone()).gather(&Sum).await?;
    let mut all = (
        QueueCounts::default(),
        0,
        gathered.missing == Missing::default(),
    );
    for (_, (counts, queues, is_all)) in gathered.found {
        add(&mut all.0, &counts);
        all.1 += queues;
        all.2 &= is_all;
    }
    Ok(all)
}

fn add(sum: &mut QueueCounts, counts: &QueueCounts) {
    for state in ganger_types::JobState::ALL {
        *sum.of_mut(state) += counts.of(state);
    }
}

//! Audit: who did what, when, from where, and how it ended.

use ganger_shard::Handle;
use ganger_types::Reply;
use ganger_types::audit::{AuditQuery, AuditRecord};
use ganger_types::limits::AUDIT_KEPT_MAX;
use ganger_types::query::Query;
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::count;
use crate::frame::kept_scope;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::isolated;
use crate::view::View;
use crate::widgets::{columns, empty, table};

/// Records on a page.
const SHOWN: usize = 100;
/// How an action can end.
const OUTCOMES: [&str; 3] = ["done", "refused", "denied"];

/// What the page looks for.
struct Asked {
    who: Option<String>,
    what: Option<String>,
    outcome: Option<&'static str>,
    before: Option<u64>,
}

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["who", "what", "outcome", "after"])?;
    view.rights.check("listAuditLog")?;
    let text = |name| Ok::<_, Fault>(params.text(name)?.filter(|text| !text.is_empty()));
    let outcome = match text("outcome")? {
        None => None,
        Some(given) => {
            let known = OUTCOMES.into_iter().find(|word| *word == given);
            let wrong = || Fault::value("outcome", "must be done, refused or denied");
            Some(known.ok_or_else(wrong)?)
        }
    };
    let asked = Asked {
        who: text("who")?.map(str::to_owned),
        what: text("what")?.map(str::to_owned),
        outcome,
        before: params.number("after", 0, u64::MAX)?,
    };
    let shard = home(view);
    let (records, next) = records(view, shard, &asked).await?;
    let head = html! {
        div.heading { h1 { "Audit" } }
        p.soft { "The newest " (count(u64::try_from(AUDIT_KEPT_MAX).unwrap_or(0))) " records, which the store of shard " (shard.id())
            " keeps. The full log is in the file that the setting " code { "audit_log" } " names, or in the log of the server." }
        (filter_form(view, &asked))
    };
    let page = Page::new("Audit", "Audit", head).still();
    Ok(page.part(
        "part-records",
        html! { (list(view, &records, &asked)) (older(view, &asked, next)) },
    ))
}

/// The shard that keeps the records of the server.
fn home(view: &View) -> &Handle {
    view.home()
}

async fn records(
    view: &View,
    shard: &Handle,
    asked: &Asked,
) -> Result<(Vec<AuditRecord>, Option<u64>), Fault> {
    let query = AuditQuery {
        before: asked.before,
        who: asked.who.clone(),
        what: asked.what.clone(),
        outcome: asked.outcome.map(str::to_owned),
        limit: SHOWN,
    };
    match view.ask(shard, Query::AuditLog(query)).await? {
        Reply::AuditLog(records, next) => Ok((records, next)),
        _ => Err(Fault::unexpected_reply()),
    }
}

fn filter_form(view: &View, asked: &Asked) -> Markup {
    html! {
        form.filter role="search" aria-label="Filter the audit log" action=(view.links.bare("/audit")) {
            (kept_scope(view))
            label { "Who " input name="who" value=[asked.who.as_deref()] maxlength="255"; }
            label { "What " input name="what" value=[asked.what.as_deref()] maxlength="255"; }
            label { "Outcome "
                select name="outcome" {
                    option value="" { "any" }
                    @for word in OUTCOMES { option value=(word) selected[asked.outcome == Some(word)] { (word) } }
                }
            }
            button { "Apply" }
            a href=(view.links.to("/audit")) { "Clear" }
        }
    }
}

fn list(view: &View, records: &[AuditRecord], asked: &Asked) -> Markup {
    if records.is_empty() {
        let is_filtered = asked.who.is_some() || asked.what.is_some() || asked.outcome.is_some();
        let sentence = if is_filtered {
            "No record matches."
        } else {
            "No record is kept yet."
        };
        let clear = html! { p { a href=(view.links.to("/audit")) { "Clear filters" } } };
        return empty(
            sentence,
            &if is_filtered {
                clear
            } else {
                html! {}
            },
        );
    }
    let head = columns(&[
        "Time",
        "Who",
        "What",
        "On",
        "Namespace",
        "From",
        "Outcome",
        "Detail",
        "Via",
    ]);
    let some = |text: &Option<String>| html! { @if let Some(text) = text { (isolated(text)) } };
    let body = html! {
        @for record in records {
            tr data-row {
                th scope="row" { (view.clock.time(record.at)) }
                td { (isolated(&record.who)) }
                td { (isolated(&record.what)) }
                td.message { (some(&record.on)) }
                td { (some(&record.namespace)) }
                td { (some(&record.from)) }
                td { (outcome(&record.outcome)) }
                td.message { (some(&record.detail)) }
                td { (some(&record.via)) }
            }
        }
    };
    table("Audit log", &head, &body)
}

fn outcome(word: &str) -> Markup {
    match word {
        "done" => svg::badge("good", "Done"),
        "refused" => svg::badge("warn", "Refused"),
        "denied" => svg::badge("bad", "Denied"),
        other => isolated(other),
    }
}

fn older(view: &View, asked: &Asked, next: Option<u64>) -> Markup {
    let address = |after: Option<u64>| {
        let after = after.map(|number| number.to_string());
        let page = view.links.to("/audit");
        page.with_if("who", asked.who.as_deref())
            .with_if("what", asked.what.as_deref())
            .with_if("outcome", asked.outcome)
            .with_if("after", after.as_deref())
    };
    html! {
        nav.pages aria-label="Pages" {
            @if asked.before.is_some() { a href=(address(None)) { "Newest" } }
            @if next.is_some() { a href=(address(next)) rel="next" { "Older" } }
        }
    }
}

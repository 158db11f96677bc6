//! Audit: who did what, when, from where, and how it ended.

use ganger_shard::Handle;
use ganger_types::audit::{AuditQuery, AuditRecord};
use ganger_types::limits::AUDIT_KEPT_MAX;
use ganger_types::query::Query;
use ganger_types::{Reply, ShardId};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::format::count;
use crate::frame::kept_scope;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Question;
use crate::svg;
use crate::text::isolated;
use crate::view::{Missing, View};
use crate::widgets::{self, columns, empty, table};
use crate::wire::Stored;

/// Records on a page.
const SHOWN: usize = 100;
/// How an action can end.
const OUTCOMES: [&str; 3] = ["done", "refused", "denied"];

/// What the page looks for.
struct Asked {
    who: Option<String>,
    what: Option<String>,
    outcome: Option<&'static str>,
    after: Option<Place>,
}

/// The record of each shard behind which a page begins. Shards that are not in it have no more.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place(Vec<(ShardId, u64)>);

impl Place {
    /// Reads `1=17,2=40`, or the number alone for the shard that answers where none is named.
    fn read(text: &str, home: &ShardId) -> Result<Self, Fault> {
        let wrong = || {
            let reason = "is not the place of a page: follow the links Newest and Older";
            Fault::value("after", reason)
        };
        if let Ok(number) = text.parse() {
            return Ok(Self(vec![(home.clone(), number)]));
        }
        let pairs = text.split(',').map(|pair| {
            let (shard, number) = pair.split_once('=').ok_or_else(wrong)?;
            let shard = ShardId::new(shard).ok_or_else(wrong)?;
            Ok((shard, number.parse().map_err(|_| wrong())?))
        });
        pairs.collect::<Result<_, Fault>>().map(Self)
    }

    fn text(&self) -> String {
        let pairs = self
            .0
            .iter()
            .map(|(shard, number)| format!("{shard}={number}"));
        pairs.collect::<Vec<_>>().join(",")
    }

    fn of(&self, shard: &ShardId) -> Option<u64> {
        let mut places = self.0.iter();
        places
            .find(|(of, _)| of == shard)
            .map(|(_, number)| *number)
    }
}

/// A page of the records that a shard keeps, newest first.
#[derive(Serialize, Deserialize)]
pub(crate) struct Records {
    before: Option<u64>,
    who: Option<String>,
    what: Option<String>,
    outcome: Option<String>,
}

impl Question for Records {
    const NAME: &'static str = "audit_log";
    /// The records, and whether there may be more.
    type Answer = (Vec<Stored<AuditRecord>>, bool);

    fn operation(&self) -> &'static str {
        "listAuditLog"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let query = AuditQuery {
            before: self.before,
            who: self.who.clone(),
            what: self.what.clone(),
            outcome: self.outcome.clone(),
            limit: SHOWN,
        };
        match view.ask(shard, Query::AuditLog(query)).await? {
            Reply::AuditLog(records, next) => {
                Ok((records.into_iter().map(Stored).collect(), next.is_some()))
            }
            _ => Err(Fault::unexpected_reply()),
        }
    }
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
        after: match text("after")? {
            Some(text) => Some(Place::read(text, view.home().id())?),
            None => None,
        },
    };
    let (records, next, missing) = records(view, &asked).await?;
    let head = html! {
        div.heading { h1 { "Audit" } }
        p.soft { "The newest " (count(u64::try_from(AUDIT_KEPT_MAX).unwrap_or(0))) " records, which the store of "
            @if view.is_of_many() { "each server" } @else { "shard " (view.home().id()) }
            " keeps. The full log is in the file that the setting " code { "audit_log" } " names, or in the log of the server." }
        (filter_form(view, &asked))
    };
    let page = Page::new("Audit", "Audit", head).still();
    Ok(page.part(
        "part-records",
        html! { (list(view, &records, &asked)) (older(view, &asked, next.as_ref())) (widgets::missing(&missing)) },
    ))
}

/// The records of all shards of the view together, and where the next page begins.
async fn records(
    view: &View,
    asked: &Asked,
) -> Result<(Vec<AuditRecord>, Option<Place>, Missing), Fault> {
    let question = |shard: &ShardId| {
        let before = match &asked.after {
            None => None,
            // A shard that is not in the place had no more before.
            Some(place) => Some(place.of(shard)?),
        };
        Some(Records {
            before,
            who: asked.who.clone(),
            what: asked.what.clone(),
            outcome: asked.outcome.map(str::to_owned),
        })
    };
    let gathered = view.gather_each(question).await?;
    let mut all: Vec<(&ShardId, &AuditRecord)> = Vec::new();
    for (shard, (records, _)) in &gathered.found {
        all.extend(records.iter().map(|Stored(record)| (shard, record)));
    }
    // A stable order: records of one shard stay in theirs.
    all.sort_by_key(|(_, record)| std::cmp::Reverse(record.at));
    all.truncate(SHOWN);
    let mut next = Vec::new();
    for (shard, (records, has_more)) in &gathered.found {
        let last = all.iter().rev().find(|(of, _)| *of == shard);
        let taken = all.iter().filter(|(of, _)| *of == shard).count();
        let place = match last {
            _ if taken == records.len() && !has_more => None,
            Some((_, last)) => Some(last.number),
            None => asked
                .after
                .as_ref()
                .and_then(|place| place.of(shard))
                .or(Some(u64::MAX)),
        };
        next.extend(place.map(|number| (shard.clone(), number)));
    }
    // A shard that did not answer is asked again for the next page.
    next.extend(gathered.missing.silent.iter().map(|shard| {
        let place = asked.after.as_ref().and_then(|place| place.of(shard));
        (shard.clone(), place.unwrap_or(u64::MAX))
    }));
    let records = all.into_iter().map(|(_, record)| record.clone()).collect();
    let next = (!next.is_empty()).then_some(Place(next));
    Ok((records, next, gathered.missing))
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

fn older(view: &View, asked: &Asked, next: Option<&Place>) -> Markup {
    let address = |after: Option<&Place>| {
        let after = after.map(Place::text);
        let page = view.links.to("/audit");
        page.with_if("who", asked.who.as_deref())
            .with_if("what", asked.what.as_deref())
            .with_if("outcome", asked.outcome)
            .with_if("after", after.as_deref())
    };
    html! {
        nav.pages aria-label="Pages" {
            @if asked.after.is_some() { a href=(address(None)) { "Newest" } }
            @if next.is_some() { a href=(address(next)) rel="next" { "Older" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back() {
        let home = ShardId::new("1").expect("a shard");
        let other = ShardId::new("b").expect("a shard");
        let place = Place(vec![(home.clone(), 17), (other, u64::MAX)]);
        assert_eq!(Place::read(&place.text(), &home), Ok(place));
        assert_eq!(Place::read("5", &home), Ok(Place(vec![(home.clone(), 5)])));
        for wrong in ["x", "1=", "=3", "1=2,"] {
            assert!(Place::read(wrong, &home).is_err(), "{wrong:?}");
        }
    }
}

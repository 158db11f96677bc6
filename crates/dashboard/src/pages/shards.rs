//! Shards: is every part there, and do messages between them get through.

use std::time::Duration;

use ganger_shard::Handle;
use ganger_types::query::Query;
use ganger_types::reply::PeerView;
use ganger_types::{OutboxRecord, Reply, ShardId, Timestamp};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::format::{bytes, counted, span, whole};
use crate::frame::health;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::question::Question;
use crate::svg;
use crate::text::isolated;
use crate::view::View;
use crate::widgets::{self, button, columns, table};

/// Messages of one peer on a page.
const MESSAGES: usize = 100;

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["to", "after"])?;
    view.rights.check("listPeers")?;
    let gathered = view.gather(&Ask).await?;
    let head = html! { div.heading { h1 { "Shards" } } };
    let page = Page::new("Shards", "Shards", head)
        .part(
            "part-cards",
            html! { (cards(view, &gathered.found)) (widgets::missing(&gathered.missing)) },
        )
        .part(
            "part-outbox",
            html! { h2 { "Outbox" } (outbox(view, &gathered.found)) },
        );
    let page = page.part("part-alerts", alerts(view));
    let Some(to) = params.text("to")? else {
        return Ok(page);
    };
    let to = ShardId::new(to).ok_or_else(|| Fault::value("to", "is not the name of a shard"))?;
    let after: u64 = params.number("after", 0, u64::MAX)?.unwrap_or(0);
    let mut messages = Vec::new();
    for shard in view.shards() {
        let query = Query::Outbox(to.clone(), after, MESSAGES);
        let Reply::Outbox(found) = view.ask(shard, query).await? else {
            return Err(Fault::unexpected_reply().into());
        };
        messages.push((shard.id().clone(), found));
    }
    Ok(page.part(
        "part-messages",
        html! { h2 { "Messages for shard " (to) } (message_list(&messages)) },
    ))
}

/// What the page shows of a shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct Card {
    is_good: bool,
    /// Its health, in words.
    health: String,
    live_jobs: u64,
    enqueued: u64,
    commits: u64,
    waiting_workers: u64,
    /// What only those may see who may see the server.
    facts: Option<Facts>,
    peers: Vec<Peer>,
}

/// Numbers of the server and the store of a shard.
#[derive(Serialize, Deserialize)]
struct Facts {
    commits_per_second: f64,
    commit_p99: Option<Duration>,
    store_bytes: Option<u64>,
    free_bytes: Option<u64>,
    reserve_bytes: u64,
    durability: Option<String>,
    uptime: Duration,
    version: String,
}

/// Another shard, as a shard sees it.
#[derive(Serialize, Deserialize)]
struct Peer {
    shard: ShardId,
    /// Number of messages that wait for it.
    waiting: u64,
    /// Time at which the oldest of them was written.
    oldest_at: Option<Timestamp>,
    /// Why nothing is sent to it; `None`: it is.
    stopped: Option<String>,
}

impl From<PeerView> for Peer {
    fn from(peer: PeerView) -> Self {
        Self {
            shard: peer.record.shard,
            waiting: peer.waiting,
            oldest_at: peer.oldest_at,
            stopped: peer.record.stopped,
        }
    }
}

impl Facts {
    fn of(view: &View, shard: &Handle) -> Self {
        let numbers = shard.numbers();
        Self {
            commits_per_second: numbers.commits_per_second,
            commit_p99: numbers.commit_p99,
            store_bytes: numbers.store_bytes,
            free_bytes: numbers.free_bytes,
            reserve_bytes: numbers.reserve_bytes,
            durability: numbers.durability.map(|mode| mode.name().to_owned()),
            uptime: numbers.uptime,
            version: view.site.settings.version.to_owned(),
        }
    }
}

/// The question for the card of a shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct Ask;

impl Question for Ask {
    const NAME: &'static str = "shard";
    type Answer = Card;

    fn operation(&self) -> &'static str {
        "listPeers"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Card, Fault> {
        let Reply::Peers(peers) = view.ask(shard, Query::Peers).await? else {
            return Err(Fault::unexpected_reply());
        };
        let (numbers, state) = (shard.metrics(), shard.health());
        let sees_server = view.rights.may_read("getServer");
        Ok(Card {
            is_good: state == ganger_shard::Health::Ready,
            health: health(&state),
            live_jobs: named(&numbers.gauges, "live_jobs"),
            enqueued: named(&numbers.counters, "jobs_enqueued_total"),
            commits: named(&numbers.counters, "commits_total"),
            waiting_workers: named(&numbers.gauges, "waiting_workers"),
            facts: sees_server.then(|| Facts::of(view, shard)),
            peers: peers.into_iter().map(Peer::from).collect(),
        })
    }
}

type Found = (ShardId, Card);

fn cards(view: &View, shards: &[Found]) -> Markup {
    html! {
        div.cards {
            @for (shard, card) in shards {
                section.card aria-label={ "Shard " (shard) } {
                    h2 { "Shard " (shard) }
                    p { (svg::badge(if card.is_good { "good" } else { "bad" }, &card.health)) }
                    dl.facts {
                        @if let Some(more) = &card.facts {
                            div { dt { "Commits" } dd { (rate(more.commits_per_second)) "/s" } }
                            div { dt { "Commit p99" } dd { (some(more.commit_p99.map(span))) } }
                            div { dt { "Store size" } dd { (some(more.store_bytes.map(bytes))) } }
                            div { dt { "Free disk" } dd { (some(more.free_bytes.map(bytes))) } }
                            div { dt { "Reserve" } dd { (bytes(more.reserve_bytes)) } }
                            @if let Some(durability) = &more.durability {
                                div { dt { "Durability" } dd { (durability) } }
                            }
                            div { dt { "Uptime" } dd { (span(whole(more.uptime))) } }
                            div { dt { "Version" } dd { (isolated(&more.version)) } }
                        }
                        div { dt { "Live jobs" } dd { (counted(card.live_jobs)) } }
                        div { dt { "Jobs enqueued since the start" } dd { (counted(card.enqueued)) } }
                        div { dt { "Commits since the start" } dd { (counted(card.commits)) } }
                        div { dt { "Waiting workers" } dd { (counted(card.waiting_workers)) } }
                    }
                    @if view.rights.may_do("audit") {
                        (button(view, "Check store", "audit", &[("shard", shard.as_str())]))
                    }
                }
            }
        }
    }
}

/// A number of at most 1,000 with one decimal, larger ones whole.
fn rate(per_second: f64) -> String {
    if per_second < 1_000.0 {
        format!("{per_second:.1}")
    } else {
        format!("{per_second:.0}")
    }
}

fn some(text: Option<String>) -> String {
    text.unwrap_or_else(|| "\u{2013}".to_owned())
}

fn named(numbers: &[(&'static str, u64)], name: &str) -> u64 {
    let found = numbers.iter().find(|(known, _)| *known == name);
    found.map_or(0, |(_, number)| *number)
}

fn outbox(view: &View, shards: &[Found]) -> Markup {
    let rows: Vec<(&ShardId, &Peer)> = shards
        .iter()
        .flat_map(|(shard, card)| card.peers.iter().map(move |peer| (shard, peer)))
        .collect();
    if rows.is_empty() {
        return html! { p.empty { "No messages have been sent to other shards." } };
    }
    let head = columns(&[
        "To", "From", "#Waiting", "#Oldest", "State", "Reason", "Actions",
    ]);
    let body = html! {
        @for (shard, peer) in rows {
            @let to = peer.shard.as_str();
            tr data-row {
                th scope="row" { a href=(view.links.on(shard, "/shards").with("to", to)) { (to) } }
                td { (shard) }
                td.number { (counted(peer.waiting)) }
                td.number { @match peer.oldest_at { Some(at) => (span(whole(view.clock.now.since(at)))), None => "\u{2013}" } }
                td { (state(peer)) }
                td.message { @if let Some(reason) = &peer.stopped { (isolated(reason)) } }
                td { @if peer.stopped.is_some() { (button(view, "Reconcile", "reconcilePeer", &[("shard", shard.as_str()), ("peer", to)])) } }
            }
        }
    };
    table("Outbox", &head, &body)
}

/// The alerts of the configuration, with a button that tries whether messages arrive.
fn alerts(view: &View) -> Markup {
    let alerts = view.site.settings.attention.alerts().documents();
    if alerts.is_empty() {
        return html! {};
    }
    let head = columns(&["Alert", "State", "Condition", "Found", "Webhook", "Actions"]);
    let body = html! {
        @for alert in &alerts {
            tr data-row {
                th scope="row" { (alert.name) }
                td { @if alert.firing { (svg::badge("bad", "Firing")) } @else { (svg::badge("good", "Quiet")) } }
                td { (isolated(&alert.condition)) }
                td.message { @if alert.firing { (isolated(&alert.text)) } }
                td.message {
                    @match (&alert.last_error, alert.webhook) {
                        (_, false) => "none",
                        (None, true) => { (counted(alert.delivered)) " delivered" }
                        (Some(error), true) => (isolated(error)),
                    }
                }
                td { @if alert.webhook { (button(view, "Send test message", "testAlert", &[("alert", &alert.name)])) } }
            }
        }
    };
    html! { h2 { "Alerts" } (table("Alerts", &head, &body)) }
}

fn state(peer: &Peer) -> Markup {
    if peer.stopped.is_some() {
        svg::badge("bad", "Stopped")
    } else if peer.waiting > 0 {
        svg::badge("warn", "Waits")
    } else {
        svg::badge("good", "Flows")
    }
}

fn message_list(messages: &[(ShardId, Vec<OutboxRecord>)]) -> Markup {
    let is_empty = messages.iter().all(|(_, found)| found.is_empty());
    if is_empty {
        return html! { p.empty { "No message waits." } };
    }
    let head = columns(&["#Number", "From"]);
    let body = html! {
        @for (shard, found) in messages { @for message in found { tr { th.number scope="row" { (message.number) } td { (shard) } } } }
    };
    table("Messages", &head, &body)
}

//! Shards: is every part there, and do messages between them get through.

use ganger_shard::{Handle, MetricsSnapshot};
use ganger_types::query::Query;
use ganger_types::reply::PeerView;
use ganger_types::{OutboxRecord, Reply, ShardId};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::{bytes, counted, span, whole};
use crate::frame::health;
use crate::page::{Page, Stop};
use crate::params::Params;
use crate::svg;
use crate::text::isolated;
use crate::view::View;
use crate::widgets::{self, button, columns, table};

/// Messages of one peer on a page.
const MESSAGES: usize = 100;

pub(super) async fn page(view: &View, query: &str) -> Result<Page, Stop> {
    let params = Params::read(query, &["to", "after"])?;
    view.rights.check("listPeers")?;
    let gathered = view
        .gather(|shard| async move {
            match view.ask(shard, Query::Peers).await? {
                Reply::Peers(peers) => Ok((peers, shard.metrics())),
                _ => Err(Fault::unexpected_reply()),
            }
        })
        .await?;
    let head = html! { div.heading { h1 { "Shards" } } };
    let page = Page::new("Shards", "Shards", head)
        .part(
            "part-cards",
            html! { (cards(view, &gathered.found)) (widgets::missing(view, "/shards", &gathered.missing)) },
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

type Found = (Handle, (Vec<PeerView>, MetricsSnapshot));

fn cards(view: &View, shards: &[Found]) -> Markup {
    html! {
        div.cards {
            @for (shard, (_, numbers)) in shards {
                @let state = shard.health();
                @let is_good = state == ganger_shard::Health::Ready;
                section.card aria-label={ "Shard " (shard.id()) } {
                    h2 { "Shard " (shard.id()) }
                    p { (svg::badge(if is_good { "good" } else { "bad" }, &health(&state))) }
                    dl.facts {
                        @let more = shard.numbers();
                        @if view.rights.may_read("getServer") {
                            div { dt { "Commits" } dd { (rate(more.commits_per_second)) "/s" } }
                            div { dt { "Commit p99" } dd { (some(more.commit_p99.map(span))) } }
                            div { dt { "Store size" } dd { (some(more.store_bytes.map(bytes))) } }
                            div { dt { "Free disk" } dd { (some(more.free_bytes.map(bytes))) } }
                            div { dt { "Reserve" } dd { (bytes(more.reserve_bytes)) } }
                            div { dt { "Uptime" } dd { (span(whole(more.uptime))) } }
                            div { dt { "Version" } dd { (view.site.settings.version) } }
                        }
                        div { dt { "Live jobs" } dd { (counted(named(&numbers.gauges, "live_jobs"))) } }
                        div { dt { "Jobs enqueued since the start" } dd { (counted(named(&numbers.counters, "jobs_enqueued_total"))) } }
                        div { dt { "Commits since the start" } dd { (counted(named(&numbers.counters, "commits_total"))) } }
                        div { dt { "Waiting workers" } dd { (counted(named(&numbers.gauges, "waiting_workers"))) } }
                    }
                    @if view.rights.may_do("audit") {
                        (button(view, "Check store", "audit", &[("shard", shard.id().as_str())]))
                    }
                }
            }
            @for shard in view.site.elsewhere() {
                section.card aria-label={ "Shard " (shard) } {
                    h2 { "Shard " (shard) }
                    p { "On another server. " a href=(view.links.on(&shard, "/shards")) { "Show shard " (shard) } }
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
    let rows: Vec<(&Handle, &PeerView)> = shards
        .iter()
        .flat_map(|(shard, (peers, _))| peers.iter().map(move |peer| (shard, peer)))
        .collect();
    if rows.is_empty() {
        return html! { p.empty { "No messages have been sent to other shards." } };
    }
    let head = columns(&[
        "To", "From", "#Waiting", "#Oldest", "State", "Reason", "Actions",
    ]);
    let body = html! {
        @for (shard, peer) in rows {
            @let to = peer.record.shard.as_str();
            tr data-row {
                th scope="row" { a href=(view.links.on(shard.id(), "/shards").with("to", to)) { (to) } }
                td { (shard.id()) }
                td.number { (counted(peer.waiting)) }
                td.number { @match peer.oldest_at { Some(at) => (span(whole(view.clock.now.since(at)))), None => "\u{2013}" } }
                td { (state(peer)) }
                td.message { @if let Some(reason) = &peer.record.stopped { (isolated(reason)) } }
                td { @if peer.record.stopped.is_some() { (button(view, "Reconcile", "reconcilePeer", &[("shard", shard.id().as_str()), ("peer", to)])) } }
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

fn state(peer: &PeerView) -> Markup {
    if peer.record.stopped.is_some() {
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

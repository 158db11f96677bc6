//! What needs attention, for a view: the list of the API with links.

use ganger_attention::{Gravity, Item, Scope};
use ganger_document::names::read;
use ganger_types::ShardId;
use maud::{Markup, html};

use crate::format::{plural, span, whole};
use crate::links::Address;
use crate::svg;
use crate::text::isolated;
use crate::view::View;

/// Items that the line of the frame names.
const NAMED_MAX: usize = 2;

/// What needs attention in a view, the worst first. A view of one shard has the items of that shard and of servers.
pub(crate) async fn items(view: &View) -> Vec<Item> {
    items_of(view, view.rights.may_read("listPeers")).await
}

/// Likewise, with or without the items of servers.
pub(crate) async fn items_of(view: &View, sees_server: bool) -> Vec<Item> {
    let attention = &view.site.settings.attention;
    let items = attention.items(view.namespace(), sees_server, Scope::All);
    let mut items = items.await;
    if let Some(shard) = view.links.shard() {
        let is_of = |name: &String| *name == shard.as_str();
        items.retain(|item| item.shard.as_ref().is_none_or(is_of));
    }
    items
}

/// Words and address of the link to an item; `None` if there is no page about it that the viewer may read.
pub(crate) fn link(view: &View, item: &Item) -> Option<(String, Address)> {
    let shard = item.shard.as_deref().and_then(ShardId::new);
    let on = |path: &str| match &shard {
        Some(shard) if view.is_of_many() => view.links.on(shard, path),
        _ => view.links.to(path),
    };
    if let Some(queue) = &item.queue {
        let name = read(queue.as_bytes());
        return Some(match item.code.as_str() {
            "no_worker" if view.rights.may_read("listWorkers") => (
                format!("Workers of {queue}"),
                view.links.to("/workers").name("queue", &name),
            ),
            "failing" if view.rights.may_read("listFailures") => (
                format!("Failures of {queue}"),
                view.links.to("/failures").name("queue", &name),
            ),
            _ => (format!("Queue {queue}"), on("/queue").name("name", &name)),
        });
    }
    if let Some(schedule) = &item.schedule {
        let id = read(schedule.as_bytes());
        return Some(("Schedule".to_owned(), on("/schedule").name("id", &id)));
    }
    let is_shard = shard.is_some() && view.rights.may_read("listPeers");
    is_shard.then(|| ("Shards".to_owned(), view.links.to("/shards")))
}

/// The list of Overview.
pub(crate) fn list(view: &View, items: &[Item], shown: usize) -> Markup {
    if items.is_empty() {
        return html! { p.all-well { (svg::badge("good", "Nothing needs attention.")) } };
    }
    html! {
        ul.attention {
            @for item in items.iter().take(shown) {
                li class=(item.gravity.as_str()) {
                    @if item.gravity == Gravity::Error { (svg::badge("bad", "Error:")) } @else { (svg::badge("warn", "Warning:")) }
                    " " (isolated(&item.text)) "."
                    @if let Some((words, address)) = link(view, item) { " " a href=(address) { (isolated(&words)) } }
                }
            }
        }
        @if items.len() > shown { p { (items.len() - shown) " more" } }
    }
}

/// The line above every page but Overview; empty if all is well.
pub(crate) fn line(view: &View, items: &[Item]) -> Markup {
    let Some(worst) = items.first() else {
        return html! {};
    };
    let number = u64::try_from(items.len()).unwrap_or(u64::MAX);
    let needs = if number == 1 { "needs" } else { "need" };
    let class = if worst.gravity == Gravity::Error {
        "bad"
    } else {
        "warn"
    };
    html! {
        p.attention-line {
            (svg::badge(class, &format!("{} {needs} attention:", plural(number, "thing"))))
            @for (place, item) in items.iter().take(NAMED_MAX).enumerate() {
                @if place > 0 { " \u{2013} " } @else { " " }
                @match link(view, item) {
                    Some((_, address)) => a href=(address) { (isolated(&item.text)) },
                    None => (isolated(&item.text)),
                }
            }
            @if items.len() > NAMED_MAX { " \u{2013} " a href=(view.links.to("/")) { (items.len() - NAMED_MAX) " more" } }
        }
    }
}

/// How long no worker has asked, for a sentence; `None` if one has lately.
pub(crate) fn silence(asked: crate::data::queues::Asked) -> Option<String> {
    use crate::data::queues::Asked;
    match asked {
        Asked::Lately => None,
        Asked::Never => Some("since the server started".to_owned()),
        Asked::Silent(silent) => Some(format!("for {}", span(whole(silent)))),
    }
}

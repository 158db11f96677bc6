//! Pieces that many pages have: links to things, buttons, tables, sentences for what is not there.

use ganger_types::{JobId, Kind, Queue, ShardId};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::links::{Address, job_name};
use crate::text::{isolated, name};
use crate::view::{Missing, View};

/// The form of the frame that buttons anywhere on a page belong to. Its hidden fields are of the session, so that parts
/// are the same for all who look.
pub(crate) const ACTIONS_FORM: &str = "actions";

/// A link with an id or a name of any bytes as its text.
pub(crate) fn named_link(address: &Address, bytes: &[u8]) -> Markup {
    html! { a href=(address) { (name(bytes)) } }
}

pub(crate) fn job_link(view: &View, shard: &ShardId, id: &JobId) -> Markup {
    html! { a.id href=(view.links.job(shard, id)) { (isolated(&job_name(shard, id))) } }
}

pub(crate) fn queue_link(view: &View, shard: &ShardId, queue: &Queue) -> Markup {
    named_link(&queue_address(view, shard, queue), queue.as_bytes())
}

/// The page of a queue of a shard. A view of the only shard does not name it.
pub(crate) fn queue_address(view: &View, shard: &ShardId, queue: &Queue) -> Address {
    let address = if view.is_of_many() {
        view.links.on(shard, "/queue")
    } else {
        view.links.to("/queue")
    };
    address.name("name", queue.as_bytes())
}

pub(crate) fn kind_link(view: &View, kind: &Kind) -> Markup {
    let address = view.links.to("/jobs").name("kind", kind.as_bytes());
    named_link(&address, kind.as_bytes())
}

/// What a button sends: the encoded fields of its action, with the namespace of the view.
pub(crate) fn fields(view: &View, pairs: &[(&str, &str)]) -> String {
    let mut address = view.links.bare("");
    address = address.name("ns", view.namespace().as_bytes());
    for (name, value) in pairs {
        address = address.with(name, value);
    }
    let text = address.as_str();
    text.split_once('?')
        .map_or("", |(_, query)| query)
        .to_owned()
}

/// A button that does something, or asks first. Nothing if the viewer may not do it.
pub(crate) fn button(
    view: &View,
    label: &str,
    action: &'static str,
    pairs: &[(&str, &str)],
) -> Markup {
    styled_button(view, label, action, pairs, "")
}

/// Likewise for what cannot be taken back.
pub(crate) fn danger(
    view: &View,
    label: &str,
    action: &'static str,
    pairs: &[(&str, &str)],
) -> Markup {
    styled_button(view, label, action, pairs, "danger")
}

fn styled_button(
    view: &View,
    label: &str,
    action: &'static str,
    pairs: &[(&str, &str)],
    class: &str,
) -> Markup {
    if !view.rights.may_do(action) {
        return html! {};
    }
    html! {
        button class=(class) form=(ACTIONS_FORM) formaction=(do_address(view, action))
            name="with" value=(fields(view, pairs)) { (label) }
    }
}

/// Where the form of an action is sent.
pub(crate) fn do_address(view: &View, action: &str) -> Address {
    view.links.bare(&format!("/do/{action}"))
}

/// What the numbers of a page do not have.
pub(crate) fn missing(missing: &Missing) -> Markup {
    html! {
        @if missing.namespaces > 0 {
            p.remark { (missing.namespaces) " more namespaces are not in these numbers." }
        }
        @for shard in &missing.silent {
            p.remark { "Shard " (shard) " cannot be reached; its jobs are not in these numbers." }
        }
    }
}

/// A list without entries: a sentence and the next step.
pub(crate) fn empty(sentence: &str, next: &Markup) -> Markup {
    html! {
        div.empty { p { (sentence) } (next) }
    }
}

/// A table that scrolls by itself if it is wider than the page; the keyboard reaches it.
pub(crate) fn table(caption: &str, head: &Markup, rows: &Markup) -> Markup {
    html! {
        div.wide role="region" aria-label=(caption) tabindex="0" {
            table {
                caption { (caption) }
                thead { tr { (head) } }
                tbody { (rows) }
            }
        }
    }
}

/// Headings of columns; those that begin with `#` are of numbers.
pub(crate) fn columns(names: &[&str]) -> Markup {
    html! {
        @for name in names {
            @match name.strip_prefix('#') {
                Some(name) => th.number scope="col" { (name) },
                None => th scope="col" { (name) },
            }
        }
    }
}

/// A command line to copy. The button appears where there is a module to copy with.
pub(crate) fn command(text: &str) -> Markup {
    html! {
        div.command { code { (isolated(text)) } button.with-module type="button" data-copy=(text) { "Copy" } }
    }
}

/// Links to views of one thing, the present one marked.
pub(crate) fn tabs(label: &str, entries: &[(&str, Address, bool)]) -> Markup {
    html! {
        nav.tabs aria-label=(label) {
            @for (word, address, is_current) in entries {
                a href=(address) aria-current=[is_current.then_some("page")] { (word) }
            }
        }
    }
}

/// A refusal within a page whose other parts stand.
pub(crate) fn refused(fault: &Fault) -> Markup {
    html! {
        div.alert role="alert" { p { (isolated(&fault.detail)) " " span.code { "(" (fault.code) ")" } } }
    }
}

//! The frame around every page: navigation, search, who is signed in, the state of the stream, notices.

use std::fmt::Write as _;

use std::time::Duration;

use ganger_document::names::show;
use ganger_shard::Health;
use ganger_types::Namespace;
use maud::{DOCTYPE, Markup, html};

use crate::actions::ASK_FORM;
use crate::assets;
use crate::links::{ALL_NAMESPACES, Links, OF_ALL_NAMESPACES};
use crate::notice::Notice;
use crate::page::Page;
use crate::session::Nonce;
use crate::svg;
use crate::text::{isolated, name, plain};
use crate::view::View;
use crate::widgets::ACTIONS_FORM;

/// Entries of the navigation: word, path, the operation that lets a viewer in, and the key that leads there after `g`.
const SECTIONS: &[(&str, &str, &str, &str)] = &[
    ("Overview", "/", "listQueues", "o"),
    ("Queues", "/queues", "listQueues", "q"),
    ("Jobs", "/jobs", "listJobs", "j"),
    ("Graphs", "/graphs", "listGraphs", "g"),
    ("Failures", "/failures", "listFailures", "f"),
    ("Schedules", "/schedules", "listSchedules", "s"),
    ("Workers", "/workers", "listWorkers", "w"),
    ("Statistics", "/stats", "getSeries", "t"),
    ("Events", "/events", "followEvents", "e"),
    ("Shards", "/shards", "listPeers", "h"),
    ("Audit", "/audit", "listAuditLog", "a"),
];

/// What the frame needs besides the page.
pub(crate) struct Surroundings<'a> {
    pub(crate) view: &'a View,
    pub(crate) namespaces: &'a [Namespace],
    /// The address of the page itself, with its query.
    pub(crate) here: &'a str,
    pub(crate) notice: Option<&'a Notice>,
    /// Whether the server asks nobody for credentials.
    pub(crate) is_open: bool,
    /// Whether the viewer has a session that can be ended.
    pub(crate) has_session: bool,
    /// Token that ends the session at the server that forwarded the request; `None` if none did, or without a session.
    pub(crate) sign_out_elsewhere: Option<&'a str>,
    pub(crate) made_in: Duration,
}

/// Field of a form with the token of a session of another server, whose page this is.
pub(crate) const SESSION_TOKEN: &str = "session_csrf";

/// A page with its head, navigation and foot: the whole HTML document.
pub(crate) fn document(page: &Page, around: &Surroundings<'_>) -> Markup {
    let view = around.view;
    let namespace = if view.is_of_all_namespaces() {
        "all namespaces".to_owned()
    } else {
        plain(&show(view.namespace().as_bytes()))
    };
    let title = format!("{} \u{b7} {namespace} \u{b7} ganger", plain(&page.title));
    let live = page.is_live.then(|| {
        let mut followed = around.here.to_owned();
        if let Some((name, value)) = &page.live_with {
            let before = if followed.contains('?') { '&' } else { '?' };
            write!(followed, "{before}{name}={value}").expect("strings take everything");
        }
        view.links.bare("/live").with("view", &followed)
    });
    let body = html! {
        a.skip href="#main" { "Skip to content" }
        (banner(page, around))
        div.columns {
            (navigation(page, view))
            main #main tabindex="-1" {
                p #stale.remark hidden {}
                @if let Some(notice) = around.notice { (notice_box(view, notice)) }
                @for part in &page.parts {
                    div.part id=(part.id) data-print=(format!("{:x}", part.fingerprint())) { (part.html) }
                }
            }
        }
        (footer(around))
        (forms(page, around))
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&view.links, &title, page.refresh_after.map(|seconds| (seconds, around.here))))
            body data-base=(view.links.bare("")) data-live=[live] data-assets=(assets::VERSION)
                data-now=(crate::format::exact(view.clock.now)) {
                (body)
            }
        }
    }
}

/// The forms that buttons of the page belong to.
fn forms(page: &Page, around: &Surroundings<'_>) -> Markup {
    let view = around.view;
    let back = page.asks_at.as_deref().unwrap_or(around.here);
    html! {
        form #(ACTIONS_FORM) method="post" action=(view.links.bare("/do/none")) {
            (Hidden::new(view, back.to_owned()).markup())
        }
        @if page.asks_at.is_some() {
            form #(ASK_FORM) method="post" action=(view.links.bare("/do/none")) {
                (Hidden::new(view, back.to_owned()).markup())
                input type="hidden" name="confirmed" value="1";
            }
        }
    }
}

/// The hidden fields of every form: the token, the key under which a repeat is the same action, and where to go back.
pub(crate) struct Hidden {
    token: Option<String>,
    back: String,
}

impl Hidden {
    pub(crate) fn new(view: &View, back: String) -> Self {
        Self {
            token: view.form_token(),
            back,
        }
    }

    /// Those of a form that is shown again.
    pub(crate) fn again(view: &View, form: &crate::actions::Form) -> Self {
        let back = form.back().map(str::to_owned);
        Self::new(
            view,
            back.unwrap_or_else(|| view.links.to("/").as_str().to_owned()),
        )
    }

    pub(crate) fn markup(&self) -> Markup {
        html! {
            @if let Some(token) = &self.token { input type="hidden" name="csrf" value=(token); }
            input type="hidden" name="key" value=(Nonce::random());
            input type="hidden" name="back" value=(self.back);
        }
    }
}

/// The head of a document.
fn head(links: &Links, title: &str, refresh: Option<(u64, &str)>) -> Markup {
    let asset = |file: &str| links.bare(&format!("/assets/{file}"));
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex, nofollow";
            @if let Some((seconds, address)) = refresh {
                meta http-equiv="refresh" content={ (seconds) "; url=" (address) };
            }
            title { (title) }
            link rel="icon" type="image/svg+xml" href=(asset(assets::ICON.file));
            link rel="stylesheet" href=(asset(assets::STYLE.file));
            script defer src=(asset(assets::IDIOMORPH.file)) {}
            script type="module" src=(asset(assets::LIVE.file)) {}
        }
    }
}

fn banner(page: &Page, around: &Surroundings<'_>) -> Markup {
    let view = around.view;
    html! {
        header.banner {
            a.brand href=(view.links.to("/")) { (svg::brand()) "ganger" }
            (scope(page, around))
            form.search role="search" action=(view.links.bare("/search")) {
                label.visually-hidden for="search" { "Search" }
                input #search type="search" name="q" placeholder="Job id, queue, kind \u{2026}" autocomplete="off" maxlength="320";
                (kept_scope(view))
                button.visually-hidden { "Search" }
            }
            div.live-state {
                span #live-state role="status" { "Not live" }
                a #live-reload href=(around.here) { "Reload" }
                button #live-pause.with-module type="button" hidden { "Pause live" }
            }
            (viewer(around))
        }
    }
}

/// The menus of namespaces and shards.
fn scope(page: &Page, around: &Surroundings<'_>) -> Markup {
    let view = around.view;
    let shards = view.known();
    let path = SECTIONS.iter().find(|entry| entry.0 == page.section);
    let path = path.map_or("/", |entry| entry.1);
    if around.namespaces.len() < 2 && shards.len() < 2 {
        return html! { span.scope { "namespace: " (name(view.namespace().as_bytes())) } };
    }
    html! {
        form.scope action=(view.links.bare(path)) {
            label { "namespace: "
                select name="ns" data-submit {
                    @if OF_ALL_NAMESPACES.contains(&path) && view.may_see_all_namespaces() {
                        option value=(ALL_NAMESPACES) selected[view.is_of_all_namespaces()] { "All namespaces" }
                    }
                    @for namespace in around.namespaces {
                        option value=(show(namespace.as_bytes())) selected[namespace == view.namespace()] {
                            (plain(&show(namespace.as_bytes())))
                        }
                    }
                }
            }
            @if shards.len() > 1 {
                label { "shard: "
                    select name="shard" data-submit {
                        option value="all" selected[view.links.shard().is_none()] { "all" }
                        @for shard in &shards {
                            option value=(shard) selected[view.links.shard() == Some(shard)] { (shard) }
                        }
                    }
                }
            }
            button.without-module { "Show" }
        }
    }
}

/// Hidden fields that keep namespace and shard in a form that is sent by GET.
pub(crate) fn kept_scope(view: &View) -> Markup {
    html! {
        @if *view.namespace() != Namespace::default() {
            input type="hidden" name="ns" value=(show(view.namespace().as_bytes()));
        }
        @if let Some(shard) = view.links.shard() { input type="hidden" name="shard" value=(shard); }
    }
}

fn viewer(around: &Surroundings<'_>) -> Markup {
    let view = around.view;
    let (who, roles) = view.rights.who();
    html! {
        div.viewer {
            @if view.rights.is_read_only() { span.tag { "Read only" } }
            @if around.is_open {
                span.tag title="The server asks nobody for credentials" { "Open: anyone on this machine may act" }
            } @else {
                span { (isolated(&who)) @if !roles.is_empty() { span.soft { " (" (isolated(&roles)) ")" } } }
            }
            @if around.has_session {
                button form=(ACTIONS_FORM) formaction=(view.links.bare("/do/signOut")) { "Sign out" }
            } @else if let Some(token) = around.sign_out_elsewhere {
                button form=(ACTIONS_FORM) formaction=(view.links.bare("/do/signOut")) name=(SESSION_TOKEN) value=(token) { "Sign out" }
            }
        }
    }
}

fn navigation(page: &Page, view: &View) -> Markup {
    let entries = SECTIONS
        .iter()
        .filter(|entry| view.rights.may_read(entry.2));
    let list = html! {
        ul {
            @for (word, path, _, key) in entries {
                li {
                    a href=(view.links.to(path)) data-key=(key) aria-current=[(*word == page.section).then_some("page")] { (word) }
                }
            }
        }
    };
    html! {
        nav.main-navigation aria-label="Main" {
            details.menu { summary { "Menu" } (list) }
            div.side { (list) }
        }
    }
}

fn notice_box(view: &View, notice: &Notice) -> Markup {
    let role = if notice.is_done { "status" } else { "alert" };
    let class = if notice.is_done { "notice" } else { "alert" };
    html! {
        div #notice class=(class) role=(role) tabindex="-1" data-focus {
            p { (isolated(&notice.text))
                @if let Some((words, address)) = &notice.link { " " a href=(address) { (isolated(words)) } }
                @if let Some((words, action, fields)) = &notice.undo {
                    " " button form=(ACTIONS_FORM) formaction=(crate::widgets::do_address(view, action)) name="with" value=(fields) { (words) }
                }
            }
            button.with-module type="button" data-dismiss { "Dismiss" }
        }
    }
}

fn footer(around: &Surroundings<'_>) -> Markup {
    let view = around.view;
    html! {
        footer {
            span { "ganger " (view.site.settings.version) }
            @for shard in view.shards() {
                span { "shard " (shard.id()) " " (health(&shard.health())) }
            }
            span { "times in " span #zone { (view.clock.zone_name()) } }
            span { "made in " (crate::format::span(around.made_in)) }
            button #help-button.with-module type="button" { "Help (?)" }
            label.with-module { "Theme "
                select #theme { option value="system" { "system" } option value="light" { "light" } option value="dark" { "dark" } }
            }
            a href=(view.links.bare("/about")) { "About" }
            a href="/openapi.json" { "API" }
        }
    }
}

/// The state of a shard in a few words.
pub(crate) fn health(health: &Health) -> String {
    match health {
        Health::Ready => "ready".to_owned(),
        Health::Full => "takes no new work: its disk is nearly full".to_owned(),
        Health::Starting { jobs } => {
            format!("starting, {} jobs so far", crate::format::count(*jobs))
        }
        Health::Unreachable { .. } => "waits for its store, which does not answer".to_owned(),
        Health::Stopped { .. } => "stopped: see the log of the server".to_owned(),
    }
}

/// A document without navigation, for those who are not signed in.
pub(crate) fn outside(
    links: &Links,
    title: &str,
    refresh: Option<(u64, &str)>,
    content: &Markup,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(links, &format!("{title} \u{b7} ganger"), refresh))
            body.outside data-base=(links.bare("")) data-assets=(assets::VERSION) {
                header.banner { span.brand { (svg::brand()) "ganger" } }
                main #main tabindex="-1" { (content) }
            }
        }
    }
}

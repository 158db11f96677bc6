//! About: version, what is vendored, limits, and where the machines' faces are.

use ganger_types::limits;
use maud::html;

use crate::fault::Fault;
use crate::format::{bytes, count};
use crate::page::Page;
use crate::params::Params;
use crate::text::isolated;
use crate::view::View;
use crate::widgets::{columns, table};

/// The licence of the module that keeps focus and selection when a part is replaced.
const IDIOMORPH: &str = include_str!("../../assets/idiomorph.LICENSE");

pub(super) fn page(view: &View, query: &str) -> Result<Page, Fault> {
    Params::read(query, &[])?;
    view.rights.check("version")?;
    let size = |bytes_max: usize| bytes(u64::try_from(bytes_max).unwrap_or(u64::MAX));
    let rows = [
        (
            "Name of a queue, kind, tag or worker",
            size(limits::NAME_BYTES_MAX),
        ),
        ("Payload, by default", size(limits::PAYLOAD_BYTES_MAX)),
        ("Log of an attempt", bytes(limits::LOG_BYTES_MAX)),
        (
            "Jobs in one bulk command",
            count(u64::try_from(limits::BULK_JOBS_MAX).unwrap_or(0)),
        ),
        (
            "Jobs in a graph",
            count(u64::try_from(limits::GRAPH_JOBS_MAX).unwrap_or(0)),
        ),
        (
            "Queues of a namespace, by default",
            count(limits::QUEUES_MAX),
        ),
    ];
    let head = html! { h1 { "About" } p { "ganger " (view.site.settings.version) ", a durable job queue and task-graph server." } };
    let page = Page::new("About", "", head).still();
    Ok(page.part("part-about", html! {
        h2 { "For programs" }
        ul {
            li { a href="/openapi.json" { "/openapi.json" } ": the HTTP API" }
            li { a href="/metrics" { "/metrics" } ": numbers for Prometheus" }
            li { a href="/readyz" { "/readyz" } ": whether the server can work" }
        }
        h2 { "Limits" }
        (table("Limits", &columns(&["What", "At most"]), &html! {
            @for (what, most) in rows { tr { th scope="row" { (what) } td { (most) } } }
        }))
        @if view.rights.may_read("getServer") {
            h2 { "Settings" }
            (table("Settings", &columns(&["Setting", "Value"]), &html! {
                @for (setting, value) in &view.site.settings.shown_settings { tr { th scope="row" { code { (setting) } } td { (isolated(value)) } } }
            }))
        }
        p { a href=(view.links.to("/namespaces")) { "Namespaces" } ", " a href=(view.links.to("/operations")) { "operations" } "." }
        h2 { "Licences" }
        p { "ganger: MIT or Apache-2.0, at your choice. The dashboard contains idiomorph 0.8.0:" }
        pre.block tabindex="0" { (IDIOMORPH) }
    }))
}

//! Refusals as pages: the same frame, the heading in words, the code, and what to do.

use http::StatusCode;
use maud::{Markup, html};

use crate::fault::Fault;
use crate::page::Page;
use crate::text::{isolated, plain};

/// A page with the frame.
pub(crate) fn fault_page(fault: &Fault, status: StatusCode, home: &str) -> Page {
    let mut page = Page::new(plain(&fault.heading), "", content(fault, home)).still();
    page.refresh_after = (fault.code == "unavailable")
        .then_some(fault.retry_after)
        .flatten()
        .map(|after| after.as_secs().max(1));
    page.status(status)
}

/// What a page without a frame shows.
pub(crate) fn plain_fault(fault: &Fault, home: &str) -> Markup {
    content(fault, home)
}

fn content(fault: &Fault, home: &str) -> Markup {
    html! {
        h1 { (isolated(&fault.heading)) }
        p { (isolated(&fault.detail)) }
        @if !fault.near.is_empty() {
            p { "Did you mean:" }
            ul { @for (name, address) in &fault.near { li { a href=(address) { (isolated(name)) } } } }
        }
        @if let Some(after) = fault.retry_after { p { "Try again in " (crate::format::span(after)) "." } }
        p.soft { "Code: " code { (fault.code) } }
        p { a href=(home) { "Overview" } }
    }
}

//! The log of an attempt: its last part, earlier parts on demand, with the colours of terminals.

use ganger_types::limits::LOG_BYTES_MAX;
use maud::{Markup, html};

use crate::ansi;
use crate::data::log::{PAGE_BYTES, Piece, piece};
use crate::fault::Fault;
use crate::format::bytes;
use crate::page::Page;
use crate::params::Params;
use crate::view::View;
use crate::widgets::tabs;

use super::Found;

/// Lines of a page; each is two elements.
const LINES_MAX: usize = 1_000;
/// Attempts that have a link of their own.
const ATTEMPTS_SHOWN: u32 = 10;

pub(super) async fn add(
    view: &View,
    found: &Found,
    params: &Params,
    page: Page,
) -> Result<Page, Fault> {
    view.rights.check("getLog")?;
    let last = found.job.record.attempt;
    let attempt: u32 = params
        .number("attempt", 1, u32::MAX)?
        .unwrap_or(last.max(1));
    let from: Option<u64> = params.number("from", 0, u64::MAX)?;
    let wraps = params
        .word("wrap", &[("1", true), ("0", false)])?
        .unwrap_or(false);
    if !view.rights.sees_payloads() {
        return Ok(page.part(
            "part-log",
            html! {
                p { "Logs are shown to operators only (" code { "ui.payloads" } ")." }
            },
        ));
    }
    let piece = piece(&found.shard, found.job.record.key, attempt, from).await?;
    Ok(page
        .part("part-log-head", head(view, found, attempt, wraps, &piece))
        .part("part-log", lines(view, found, attempt, wraps, &piece)))
}

fn head(view: &View, found: &Found, attempt: u32, wraps: bool, piece: &Piece) -> Markup {
    let to = |attempt: u32| {
        let address = found.address(view).with("view", "log");
        address.with("attempt", &attempt.to_string())
    };
    let last = found.job.record.attempt.max(1);
    let words: Vec<(u32, String)> = (last.saturating_sub(ATTEMPTS_SHOWN - 1).max(1)..=last)
        .map(|number| (number, format!("Attempt {number}")))
        .collect();
    let entries: Vec<_> = words
        .iter()
        .map(|(number, word)| (word.as_str(), to(*number), *number == attempt))
        .collect();
    let raw = view
        .links
        .to("/raw")
        .with("id", &found.full_name())
        .with("part", "log");
    html! {
        div.heading {
            h2 { "Log" } span.soft { "attempt " (attempt) ", " (bytes(piece.total)) }
            @if piece.total >= LOG_BYTES_MAX { span.soft { "This is the most that is kept: later lines were dropped." } }
            div.actions {
                a.button href=(to(attempt).with("wrap", if wraps { "0" } else { "1" })) { @if wraps { "Do not wrap lines" } @else { "Wrap lines" } }
                a.button href=(raw.with("attempt", &attempt.to_string())) download { "Download" }
            }
        }
        @if entries.len() > 1 { (tabs("Attempts", &entries)) }
    }
}

fn lines(view: &View, found: &Found, attempt: u32, wraps: bool, piece: &Piece) -> Markup {
    if piece.bytes.is_empty() {
        return html! { p.empty { "This attempt has written nothing" @if !found.job.record.state.is_terminal() { " yet" } "." } };
    }
    let text = ansi::lines(&piece.bytes);
    let skipped = text.len().saturating_sub(LINES_MAX);
    let to = |from: u64| {
        let address = found
            .address(view)
            .with("view", "log")
            .with("attempt", &attempt.to_string());
        address.with("from", &from.to_string())
    };
    let end = piece.from + u64::try_from(piece.bytes.len()).unwrap_or(0);
    let numbered = (skipped + 1..).zip(text.iter().skip(skipped));
    html! {
        nav.pages aria-label="Parts of the log" {
            @if piece.from > 0 { a.button href=(to(piece.from.saturating_sub(PAGE_BYTES))) { "Earlier" } }
            @if end < piece.total { a.button href=(found.address(view).with("view", "log").with("attempt", &attempt.to_string())) { "Latest" } }
            span.soft { "bytes " (piece.from) " to " (end) " of " (piece.total) }
            @if skipped > 0 { span.soft { "the last " (LINES_MAX) " lines of them" } }
        }
        div.log.wraps[wraps] role="region" aria-label="Log" tabindex="0" data-follow[end >= piece.total] {
            @for (number, line) in numbered {
                div id={ "L" (number) } { a href={ "#L" (number) } aria-label={ "Line " (number) } { (number) } span { (line) } }
            }
        }
    }
}

//! Payload, inputs and result. JSON is indented without a way through numbers, so that 64-bit numbers stay exact.

use std::fmt::Write as _;

use ganger_document::names::text;
use ganger_types::{InputRow, InputState};
use maud::{Markup, html};

use crate::fault::Fault;
use crate::format::bytes;
use crate::page::Page;
use crate::params::Params;
use crate::text::{Lines, isolated};
use crate::view::View;
use crate::widgets::{columns, job_link, table};

use super::Found;

/// Bytes of a payload, an input or a result that are shown.
const SHOWN_BYTES: usize = 64 << 10;
/// Bytes that are no text are shown as so many at most.
const HEX_BYTES: usize = 1 << 10;
/// Bytes of a value in the table of inputs.
const INPUT_BYTES: usize = 400;
/// Inputs on a page.
const INPUTS: usize = 100;

pub(super) async fn add(
    view: &View,
    found: &Found,
    params: &Params,
    page: Page,
) -> Result<Page, Fault> {
    let record = &found.job.record;
    view.rights.check("getPayload")?;
    if !view.rights.sees_payloads() {
        return Ok(page.part("part-data", html! {
            p { "Payloads are shown to operators only (" code { "ui.payloads" } "). The payload has " (bytes(record.payload_bytes)) "." }
        }));
    }
    let payload = found.shard.payload_of(record).await?.unwrap_or_default();
    let result = found.shard.result_of(record).await?;
    let from: u32 = params.number("from", 0, u32::MAX)?.unwrap_or(0);
    let inputs = if record.inputs > 0 || from > 0 {
        found.shard.inputs(record.key, from, INPUTS).await?
    } else {
        Vec::new()
    };
    let page = page.part(
        "part-payload",
        block(view, found, "Payload", "payload", &payload),
    );
    let page = if record.inputs > 0 {
        page.part(
            "part-inputs",
            html! { h2 { "Inputs" } (input_table(view, found, &inputs)) },
        )
    } else {
        page
    };
    Ok(page.part("part-result", match &result {
        Some(result) => block(view, found, "Result", "result", result),
        None => html! { h2 { "Result" } p.empty { "There is none" @if !record.state.is_terminal() { " yet" } "." } },
    }))
}

fn block(view: &View, found: &Found, heading: &str, part: &str, data: &[u8]) -> Markup {
    let address = view
        .links
        .to("/raw")
        .with("id", &found.full_name())
        .with("part", part);
    let size = u64::try_from(data.len()).unwrap_or(u64::MAX);
    html! {
        div.heading {
            h2 { (heading) } span.soft { (bytes(size)) }
            div.actions {
                @if !data.is_empty() {
                    button.with-module type="button" data-copy-from={ "shown-" (part) } { "Copy" }
                    a.button href=(address) download { "Download" }
                }
            }
        }
        div id={ "shown-" (part) } { (shown(data, SHOWN_BYTES)) }
        @if data.len() > SHOWN_BYTES { p.remark { "The first " (bytes(u64::try_from(SHOWN_BYTES).unwrap_or(0))) " are shown." } }
    }
}

/// Bytes as what they are: JSON indented, other text as it is, anything else as hexadecimal numbers.
pub(super) fn shown(data: &[u8], most: usize) -> Markup {
    if data.is_empty() {
        return html! { p.empty { "Empty." } };
    }
    let is_whole = data.len() <= most;
    let part = &data[..data.len().min(most)];
    let valid = match std::str::from_utf8(part) {
        Ok(text) => Some(text),
        // The cut may be within a character.
        Err(error) if !is_whole && error.error_len().is_none() => {
            std::str::from_utf8(&part[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match valid {
        Some(text) if is_whole && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => {
            html! { pre.block tabindex="0" { code { (Lines(&indented(text))) } } }
        }
        Some(text) => html! { pre.block dir="auto" tabindex="0" { (Lines(text)) } },
        None => html! {
            p.soft { "Bytes that are no text:" }
            pre.block tabindex="0" { code { (hex(&data[..data.len().min(HEX_BYTES)])) } }
        },
    }
}

/// Indents JSON text by its punctuation alone: every number and string stays as it was written.
fn indented(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let (mut in_string, mut escaped) = (false, false);
    let mut characters = text.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth.min(64)));
    };
    while let Some(character) = characters.next() {
        if in_string {
            out.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match character {
            '"' => {
                in_string = true;
                out.push('"');
            }
            '{' | '[' => {
                out.push(character);
                while characters.next_if(char::is_ascii_whitespace).is_some() {}
                if let Some(close) = characters.next_if(|next| matches!(next, '}' | ']')) {
                    out.push(close);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(character);
            }
            ',' => {
                out.push(',');
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            other if other.is_ascii_whitespace() => {}
            other => out.push(other),
        }
    }
    out
}

/// Lines of sixteen bytes, each with its offset.
fn hex(data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len() * 4);
    for (line, bytes) in data.chunks(16).enumerate() {
        write!(out, "{:08x} ", line * 16).expect("strings take everything");
        for byte in bytes {
            write!(out, " {byte:02x}").expect("strings take everything");
        }
        out.push('\n');
    }
    out
}

fn input_table(view: &View, found: &Found, rows: &[InputRow]) -> Markup {
    let head = columns(&["Position", "Value", "From job"]);
    let body = html! { @for row in rows { (input_row(view, found, row)) } };
    let last = rows.last().filter(|_| rows.len() == INPUTS);
    html! {
        (table("Inputs", &head, &body))
        @if let Some(last) = last {
            nav.pages aria-label="Pages of inputs" {
                a.button href=(found.address(view).with("view", "data").with("from", &(last.slot + 1).to_string())) { "Further inputs" }
            }
        }
    }
}

fn input_row(view: &View, found: &Found, row: &InputRow) -> Markup {
    let shard = found.shard.id();
    let (value, source) = match &row.state {
        InputState::Value(value) => (
            html! { code { (isolated(&short(value))) } },
            html! { "\u{2013}" },
        ),
        InputState::Missing { id, .. } => (html! { "not there yet" }, job_link(view, shard, id)),
        InputState::Delivered { id, .. } => (html! { "its result" }, job_link(view, shard, id)),
        InputState::Remote { dependency, .. } => (
            html! { "not there yet" },
            job_link(view, &dependency.shard, &dependency.id),
        ),
        InputState::Received { .. } => (
            html! { "the result of a job of another shard" },
            html! { "\u{2013}" },
        ),
        InputState::Ignored { .. } => (
            html! { "null: its job ended without success" },
            html! { "\u{2013}" },
        ),
    };
    let position = row
        .position()
        .map_or_else(|| "order only".to_owned(), |position| position.to_string());
    html! { tr { th scope="row" { (position) } td { (value) } td { (source) } } }
}

fn short(value: &[u8]) -> String {
    let part = &value[..value.len().min(INPUT_BYTES)];
    let mut out = text(part);
    if part.len() < value.len() {
        out.push('\u{2026}');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_indented_and_its_numbers_and_strings_stay_as_written() {
        let text = r#"{"a":[1,18446744073709551615.10e2,{}],"b":"x:{,\"","c":[ ]}"#;
        let wanted = "{\n  \"a\": [\n    1,\n    18446744073709551615.10e2,\n    {}\n  ],\n  \"b\": \"x:{,\\\"\",\n  \"c\": []\n}";
        assert_eq!(indented(text), wanted);
        assert_eq!(indented("7"), "7");
    }

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        let html = |data: &[u8], most| shown(data, most).into_string();
        assert!(html(b"{\"a\":1}", 99).contains("&quot;a&quot;: 1"));
        assert!(html(b"<script>", 99).contains("&lt;script&gt;"));
        assert!(html(b"\xff\x00", 99).contains("00000000  ff 00"));
        assert!(
            html("a\u{e4}".as_bytes(), 2).contains(">a<"),
            "cut within a character"
        );
    }
}

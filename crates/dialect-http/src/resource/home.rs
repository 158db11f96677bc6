//! `GET /`: a page for a browser, and a few words for programs.
//!
//! The page has no script, no style and no form. It shows queues of namespaces that the caller may observe, from the
//! same count as `/metrics`; who may observe nothing sees how to get in.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use ganger_access::Identity;
use ganger_shard::Health;
use ganger_types::{Namespace, Queue, QueueCounts};
use http::{HeaderMap, HeaderValue, header};
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::json;
use crate::names::show;

/// Queues that the page lists.
const QUEUES_MAX: usize = 200;
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What this server is.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Home)]
pub(crate) struct HomeView {
    /// What it is.
    what: &'static str,
    /// Its version, for callers that are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'static str>,
    /// Where the API begins.
    api: &'static str,
    /// Its description.
    openapi: &'static str,
    /// Whether it lives.
    health: &'static str,
    /// Whether it can work.
    ready: &'static str,
    /// Its numbers.
    metrics: &'static str,
}

/// A queue of the page.
type Row = (String, Namespace, Queue, QueueCounts);

pub(crate) async fn show_home(
    State(api): State<Api>,
    Extension(identity): Extension<Identity>,
    headers: HeaderMap,
) -> Response {
    let version = identity.may("version", None).is_ok();
    let version = version.then(|| api.settings().version);
    let mut response = if is_for_browser(&headers) {
        let html = HeaderValue::from_static("text/html; charset=utf-8");
        let page = page(&api, &identity, version);
        ([(header::CONTENT_TYPE, html)], page).into_response()
    } else {
        json::ok(&HomeView {
            what: "ganger, a durable queue of jobs",
            version,
            api: "/api/v1",
            openapi: "/openapi.json",
            health: "/healthz",
            ready: "/readyz",
            metrics: "/metrics",
        })
    };
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    );
    headers.insert(header::VARY, HeaderValue::from_static("accept"));
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    response
}

fn is_for_browser(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::ACCEPT).iter();
    given
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("text/html"))
}

fn page(api: &Api, identity: &Identity, version: Option<&str>) -> String {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>ganger</title>\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\"></head><body>\n<h1>ganger</h1>\n",
    );
    let version = version.map_or_else(String::new, |version| format!(" {}", escape(version)));
    line(
        &mut out,
        &format!("A durable queue of jobs. This server{version} is up."),
    );
    if identity.may("version", None).is_ok() {
        shards(api, &mut out);
    }
    if may_observe_some(api, identity) {
        failures(api, identity, &mut out);
        queues(rows(api, identity), &mut out);
    } else {
        line(
            &mut out,
            "To see queues, show a token: <code>curl -H 'Authorization: Bearer ...'</code>, or \
             <code>GANGER_TOKEN=... ganger queue list</code>. The server's operator makes one with <code>ganger token</code>.",
        );
    }
    line(
        &mut out,
        "<a href=\"/openapi.json\">API</a> | <a href=\"/metrics\">metrics</a> | <a href=\"/readyz\">readiness</a> | \
         <a href=\"/healthz\">health</a>. The documents are in the folder <code>docs</code> of the sources; \
         <code>ganger --help</code> lists the commands.",
    );
    out.push_str("</body></html>\n");
    out
}

fn line(out: &mut String, html: &str) {
    writeln!(out, "<p>{html}</p>").expect("strings take everything");
}

fn shards(api: &Api, out: &mut String) {
    for shard in api.shards() {
        let word = match shard.health() {
            Health::Ready => "ready",
            Health::Full => "takes no new work: its device is nearly full",
            Health::Starting { .. } => "starting",
            Health::Stopped { .. } => "stopped: see the log",
        };
        line(
            out,
            &format!("Shard {}: {word}.", escape(shard.id().as_str())),
        );
    }
}

fn may_observe_some(api: &Api, identity: &Identity) -> bool {
    let may = |namespace: &Namespace| {
        identity
            .may("listQueues", Some(namespace.as_bytes()))
            .is_ok()
    };
    may(&Namespace::default()) || !rows(api, identity).is_empty()
}

/// The queues that the caller may see.
fn rows(api: &Api, identity: &Identity) -> Vec<Row> {
    let mut rows = Vec::new();
    for shard in api.shards() {
        for (namespace, queue, counts, _) in shard.metrics().queues {
            let allowed = identity.may("listQueues", Some(namespace.as_bytes()));
            if allowed.is_ok() {
                rows.push((shard.id().to_string(), namespace, queue, counts));
            }
        }
    }
    rows
}

/// Failures of all namespaces, for those who may see the numbers of the server.
fn failures(api: &Api, identity: &Identity, out: &mut String) {
    if identity.may("metrics", None).is_err() {
        return;
    }
    let counters = api
        .shards()
        .iter()
        .flat_map(|shard| shard.metrics().counters);
    let failed: u64 = counters
        .filter(|(name, _)| *name == "jobs_failed_total")
        .map(|(_, count)| count)
        .sum();
    line(
        out,
        &format!(
            "{failed} jobs have failed since the start: <code>ganger failures</code> groups those that are kept."
        ),
    );
}

fn queues(mut rows: Vec<Row>, out: &mut String) {
    if rows.is_empty() {
        line(out, "No queue has live jobs.");
        return;
    }
    rows.sort_by_key(|(_, _, _, counts)| std::cmp::Reverse(counts.live()));
    let more = rows.len().saturating_sub(QUEUES_MAX);
    out.push_str(
        "<table border=\"1\" cellpadding=\"4\"><tr><th>shard<th>namespace<th>queue<th>ready<th>running<th>scheduled\
         <th>blocked<th>failed<th>succeeded</tr>\n",
    );
    for (shard, namespace, queue, counts) in rows.into_iter().take(QUEUES_MAX) {
        writeln!(
            out,
            "<tr><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
            escape(&shard),
            escape(&show(namespace.as_bytes())),
            escape(&show(queue.as_bytes())),
            counts.ready,
            counts.running,
            counts.scheduled,
            counts.blocked,
            counts.failed,
            counts.succeeded,
        )
        .expect("strings take everything");
    }
    out.push_str("</table>\n");
    if more > 0 {
        line(
            out,
            &format!("{more} further queues: <code>ganger queue list</code>."),
        );
    }
}

/// Text that can stand in an element or an attribute. Control characters are shown, not sent.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            control if control.is_control() => out.extend(control.escape_default()),
            other => out.push(other),
        }
    }
    out
}

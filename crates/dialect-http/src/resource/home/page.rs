//! The page for browsers: one document with its style, without scripts, forms and external resources.

use std::fmt::Write as _;
use std::time::Duration;

use ganger_access::Identity;
use ganger_document::names::show;
use ganger_shard::{Handle, Health, MetricsSnapshot};
use ganger_types::{JobState, Namespace, Queue, QueueCounts};

use crate::api::Api;

/// Maximum number of queues on the page.
const QUEUES_MAX: usize = 200;
/// Maximum time to wait until a shard has counted its queues; after that the page shows the last count.
const COUNT_WAIT: Duration = Duration::from_secs(1);
/// Style of the page, whose hash is in the policy.
const STYLE: &str = include_str!("../home.css");
/// Content security policy of the page, with the SHA-256 of its style.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'sha256-cS8Tkt88rJMB5ofLW6TtuKYrrsbrAlO3m44p4JvcIDI='; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A queue on the page.
struct Row {
    shard: String,
    namespace: Namespace,
    queue: Queue,
    counts: QueueCounts,
}

/// The content of the page for a caller: only what the caller may see.
struct PageContent {
    /// Health of each shard; empty for an unauthenticated caller.
    shards: Vec<(String, Health)>,
    /// Queues with live jobs, longest first; `None` if the caller may see none.
    queues: Option<Vec<Row>>,
    /// Number of jobs that failed since the start in all namespaces; `None` if the caller may not see metrics.
    failed: Option<u64>,
}

/// The whole start page as HTML.
pub(super) async fn page(api: &Api, identity: &Identity, version: Option<&str>) -> String {
    let seen = PageContent::by(api, identity, version.is_some()).await;
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>ganger</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<style>{STYLE}</style>\n</head>\n<body>\n"
    );
    head(&mut out, version, &seen.shards);
    out.push_str("<main>\n");
    match seen.queues {
        Some(rows) => {
            totals(&mut out, &rows, seen.failed);
            queues(&mut out, rows);
        }
        None => how_to_get_in(&mut out),
    }
    next_steps(&mut out, api, identity);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

impl PageContent {
    async fn by(api: &Api, identity: &Identity, is_known: bool) -> Self {
        if *identity == Identity::Anonymous {
            return Self {
                shards: Vec::new(),
                queues: None,
                failed: None,
            };
        }
        let listing = api.access("listQueues");
        let may = |namespace: &Namespace| {
            let namespace = Some(namespace.as_bytes());
            identity.may(listing, namespace).is_ok()
        };
        let mut rows = Vec::new();
        let mut failed = 0;
        for shard in &*api.shards() {
            let numbers = numbers(shard).await;
            let counter = |(name, _): &&(&str, u64)| *name == "jobs_failed_total";
            failed += numbers.counters.iter().find(counter).map_or(0, |row| row.1);
            let queues = numbers.queues.into_iter();
            rows.extend(queues.filter(|(namespace, ..)| may(namespace)).map(
                |(namespace, queue, counts, _)| Row {
                    shard: shard.id().to_string(),
                    namespace,
                    queue,
                    counts,
                },
            ));
        }
        rows.sort_by_key(|row| std::cmp::Reverse(row.counts.live()));
        let health = |shard: &Handle| (shard.id().to_string(), shard.health());
        Self {
            shards: if is_known {
                api.shards().iter().map(health).collect()
            } else {
                Vec::new()
            },
            queues: (may(&Namespace::default()) || !rows.is_empty()).then_some(rows),
            failed: identity
                .may(api.access("metrics"), None)
                .is_ok()
                .then_some(failed),
        }
    }
}

/// The metrics of a shard, up to date if the shard answers soon.
async fn numbers(shard: &Handle) -> MetricsSnapshot {
    match tokio::time::timeout(COUNT_WAIT, shard.metrics_now()).await {
        Ok(Ok(numbers)) => numbers,
        Ok(Err(_)) | Err(_) => shard.metrics(),
    }
}

fn put(out: &mut String, html: std::fmt::Arguments<'_>) {
    out.write_fmt(html).expect("strings take everything");
}

fn head(out: &mut String, version: Option<&str>, shards: &[(String, Health)]) {
    out.push_str(
        "<header>\n<h1>ganger</h1>\n<p class=\"soft\">A durable job queue and task-graph server.",
    );
    if let Some(version) = version {
        put(out, format_args!(" Version {}.", escape(version)));
    }
    out.push_str("</p>\n");
    if shards.is_empty() {
        out.push_str("<p>This server is up.</p>\n");
    }
    for (shard, health) in shards {
        let (class, word) = match health {
            Health::Ready => ("good", "ready".to_owned()),
            Health::Full => (
                "bad",
                "takes no new work: its device is nearly full".to_owned(),
            ),
            Health::Starting { jobs } => ("bad", format!("starting, {jobs} jobs loaded so far")),
            Health::Unreachable { .. } => (
                "bad",
                "waits for its store, which does not answer".to_owned(),
            ),
            Health::Stopped { .. } => ("bad", "stopped: see the server's log".to_owned()),
        };
        let shard = escape(shard);
        put(
            out,
            format_args!("<p>Shard {shard}: <span class=\"{class}\">{word}</span></p>\n"),
        );
    }
    out.push_str("</header>\n");
}

/// Writes the number of jobs in each state, over all queues that the caller may see.
fn totals(out: &mut String, rows: &[Row], failed: Option<u64>) {
    out.push_str("<h2>Live jobs</h2>\n<dl>\n");
    for state in LIVE {
        let count: u64 = rows.iter().map(|row| row.counts.of(state)).sum();
        let state = state.as_str();
        put(
            out,
            format_args!("<div><dt>{state}</dt><dd>{count}</dd></div>\n"),
        );
    }
    if let Some(failed) = failed {
        put(
            out,
            format_args!("<div><dt>failed since the start</dt><dd>{failed}</dd></div>\n"),
        );
    }
    out.push_str("</dl>\n");
}

/// States of jobs that have not ended.
const LIVE: [JobState; 4] = [
    JobState::Ready,
    JobState::Running,
    JobState::Scheduled,
    JobState::Blocked,
];
/// States in the table of queues, in order.
const SHOWN: [JobState; 6] = [
    JobState::Ready,
    JobState::Running,
    JobState::Scheduled,
    JobState::Blocked,
    JobState::Failed,
    JobState::Succeeded,
];

fn queues(out: &mut String, rows: Vec<Row>) {
    out.push_str("<h2 id=\"queues\">Queues</h2>\n");
    if rows.is_empty() {
        out.push_str("<p>No queue has live jobs.</p>\n");
        return;
    }
    let more = rows.len().saturating_sub(QUEUES_MAX);
    // A table that is wider than the screen scrolls, for which the keyboard must be able to focus it.
    out.push_str(
        "<div class=\"wide\" role=\"region\" aria-labelledby=\"queues\" tabindex=\"0\">\n<table>\n<thead><tr>\
         <th scope=\"col\">queue</th><th scope=\"col\">namespace</th><th scope=\"col\">shard</th>",
    );
    for state in SHOWN {
        let state = state.as_str();
        put(
            out,
            format_args!("<th scope=\"col\" class=\"number\">{state}</th>"),
        );
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in rows.into_iter().take(QUEUES_MAX) {
        let queue = escape(&show(row.queue.as_bytes()));
        let namespace = escape(&show(row.namespace.as_bytes()));
        let shard = escape(&row.shard);
        put(
            out,
            format_args!("<tr><th scope=\"row\">{queue}</th><td>{namespace}</td><td>{shard}</td>"),
        );
        for state in SHOWN {
            let count = row.counts.of(state);
            put(out, format_args!("<td class=\"number\">{count}</td>"));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
    if more > 0 {
        put(
            out,
            format_args!("<p>{more} further queues: <code>ganger queue list</code>.</p>\n"),
        );
    }
}

fn how_to_get_in(out: &mut String) {
    out.push_str(
        "<h2>Sign in</h2>\n<p>To see queues, show a token: <code>curl -H 'Authorization: Bearer TOKEN' URL/api/v1/queues</code>, \
         or <code>GANGER_TOKEN=TOKEN ganger queue list</code>. \
         The server's operator makes one with <code>ganger token</code>.</p>\n",
    );
}

/// Writes the links to what the caller may access.
fn next_steps(out: &mut String, api: &Api, identity: &Identity) {
    out.push_str("<h2>Next</h2>\n<ul>\n");
    let links = [
        (
            "openapi",
            "/openapi.json",
            "the HTTP API as OpenAPI 3.1, for Swagger UI and code generators",
        ),
        ("metrics", "/metrics", "numbers for Prometheus"),
        ("ready", "/readyz", "whether the server can work"),
        ("live", "/healthz", "whether the process answers"),
    ];
    for (operation, path, what) in links {
        if identity.may(api.access(operation), None).is_ok() {
            put(
                out,
                format_args!("<li><a href=\"{path}\">{path}</a>: {what}</li>\n"),
            );
        }
    }
    let commands = [
        ("ganger --help", "all commands"),
        ("ganger job list", "the newest jobs"),
        ("ganger job why ID", "why a job does not run"),
        ("ganger failures list", "failed jobs by cause"),
    ];
    for (command, what) in commands {
        put(
            out,
            format_args!("<li><code>{command}</code>: {what}</li>\n"),
        );
    }
    out.push_str(
        "<li><code>docs/http.md</code> and <code>docs/cli.md</code> of the sources: calls and commands, with examples</li>\n</ul>\n",
    );
}

/// Escapes text for an element or an attribute. Control characters are made visible.
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

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest as _, Sha256};

    #[test]
    fn the_policy_names_the_style_and_allows_nothing_else() {
        let hash = STANDARD.encode(Sha256::digest(STYLE));
        let expected = format!("default-src 'none'; style-src 'sha256-{hash}'; ");
        assert!(POLICY.starts_with(&expected), "it must begin {expected}");
        assert!(!POLICY.contains("unsafe"), "{POLICY}");
        for outside in ["http", "//", "url(", "@import", "</"] {
            assert!(!STYLE.contains(outside), "{outside}");
        }
    }
}

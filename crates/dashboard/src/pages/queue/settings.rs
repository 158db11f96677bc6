//! The settings of a queue, and where each comes from.

use std::time::Duration;

use ganger_types::NamespaceSettings;
use maud::{Markup, html};

use crate::format::{count, span};
use crate::widgets::{columns, table};

use super::QueuePage;

/// Each setting with its value and where that comes from.
pub(super) fn show_settings(page: &QueuePage) -> Markup {
    let own = &page.row.queue.settings;
    let namespace = &page.namespace;
    let default = NamespaceSettings::default();
    let inherited = |is_default: bool| if is_default { "default" } else { "namespace" };
    let duration = |own: Option<Duration>, of: Duration, default: Duration| match own {
        Some(own) => (span(own), "queue"),
        None => (span(of), inherited(of == default)),
    };
    let lease = duration(own.lease_for, namespace.lease_for, default.lease_for);
    let retries = match &own.retry {
        Some(retry) => (retry.retries_max.to_string(), "queue"),
        None => (
            namespace.retry.retries_max.to_string(),
            inherited(namespace.retry == default.retry),
        ),
    };
    let retention = own.retention.as_ref().unwrap_or(&namespace.retention);
    let from = if own.retention.is_some() {
        "queue"
    } else {
        inherited(namespace.retention == default.retention)
    };
    let keep = |keep: &ganger_types::Keep| {
        let age = keep.age.map_or_else(|| "any age".to_owned(), span);
        match keep.count {
            Some(most) => format!("{age}, newest {}", count(most)),
            None => age,
        }
    };
    let limit = |limit: Option<u64>| match limit {
        Some(limit) => (count(limit), "queue"),
        None => ("no limit".to_owned(), "default"),
    };
    let rows = [
        (
            "Jobs running at once",
            limit(own.running_max.map(u64::from)),
        ),
        ("Live jobs taken", limit(own.live_max)),
        ("Length of leases", lease),
        (
            "Warning before a lease is taken away",
            own.grace_for
                .map_or(("none".to_owned(), "default"), |grace| {
                    (span(grace), "queue")
                }),
        ),
        ("Retries", retries),
        ("Keeps succeeded jobs", (keep(&retention.succeeded), from)),
        ("Keeps failed jobs", (keep(&retention.failed), from)),
        ("Keeps cancelled jobs", (keep(&retention.cancelled), from)),
    ];
    let head = columns(&["Setting", "Value", "From"]);
    let body = html! { @for (word, (value, from)) in rows { tr { th scope="row" { (word) } td { (value) } td { (from) } } } };
    table("Settings", &head, &body)
}

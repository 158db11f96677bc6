//! Queues and namespaces: to messages from the shard's replies, and to the documents of HTTP and the SDK.

use std::time::Duration;

use ganger_document::view::queue::{NamespaceView, QueueView};
use ganger_types::{NamespaceRecord, reply};

use super::{At, FieldError, calendar, ms, namespace_settings, queue_counts, queue_settings};
use crate::v1;

impl From<&reply::QueueView> for v1::QueueView {
    fn from(view: &reply::QueueView) -> Self {
        Self {
            queue: view.queue.to_text().into_owned(),
            settings: Some((&view.settings).into()),
            counts: Some(view.counts.into()),
            schedules: view.schedules,
            oldest_ready_ms: view.oldest_ready_for.map(ms),
            created_at_us: view.created_at.0,
            enqueued_total: view.enqueued_total,
            finished_total: view.finished_total,
        }
    }
}

/// The document of a queue.
///
/// # Errors
/// If a setting has a value that this version does not know.
pub fn queue(view: v1::QueueView) -> Result<QueueView, FieldError> {
    let settings = view.settings.unwrap_or_default();
    Ok(QueueView {
        queue: view.queue,
        settings: queue_settings(At::top("settings"), settings)?,
        counts: queue_counts(view.counts.unwrap_or_default()),
        schedules: view.schedules,
        oldest_ready_for: view.oldest_ready_ms.map(Duration::from_millis),
        created_at: calendar(view.created_at_us),
        enqueued_total: view.enqueued_total,
        finished_total: view.finished_total,
    })
}

impl From<&NamespaceRecord> for v1::NamespaceView {
    fn from(record: &NamespaceRecord) -> Self {
        Self {
            namespace: record.namespace.to_text().into_owned(),
            settings: Some((&record.settings).into()),
        }
    }
}

/// The document of a namespace.
///
/// # Errors
/// If a setting has a value that this version does not know.
pub fn namespace(view: v1::NamespaceView) -> Result<NamespaceView, FieldError> {
    let settings = view.settings.unwrap_or_default();
    Ok(NamespaceView {
        namespace: view.namespace,
        settings: namespace_settings(At::top("settings"), settings)?,
    })
}

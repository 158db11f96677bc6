//! Queues and namespaces.

use std::time::Duration;

use ganger_proto::convert::{self, At};
use ganger_proto::v1;

use super::at;
use crate::error::Error;
use crate::model::{NamespaceView, QueueView};

impl TryFrom<v1::QueueView> for QueueView {
    type Error = Error;

    fn try_from(view: v1::QueueView) -> Result<Self, Error> {
        let settings = view.settings.unwrap_or_default();
        Ok(Self {
            queue: view.queue,
            settings: convert::queue_settings(At::top("settings"), settings)?,
            counts: convert::queue_counts(view.counts.unwrap_or_default()),
            schedules: view.schedules,
            oldest_ready_for: view.oldest_ready_ms.map(Duration::from_millis),
            created_at: at(view.created_at_us),
            enqueued_total: view.enqueued_total,
            finished_total: view.finished_total,
        })
    }
}

impl TryFrom<v1::NamespaceView> for NamespaceView {
    type Error = Error;

    fn try_from(view: v1::NamespaceView) -> Result<Self, Error> {
        let settings = view.settings.unwrap_or_default();
        Ok(Self {
            namespace: view.namespace,
            settings: convert::namespace_settings(At::top("settings"), settings)?,
        })
    }
}

//! Queues and namespaces: to messages from the shard's replies, and to the documents of HTTP and the SDK.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_document::view::queue::{
    Asker, EffectiveSetting, NamespaceView, QueuePace, QueueReason, QueueView, QueueWhy,
};
use ganger_types::observed::ObservedQueue;
use ganger_types::{NamespaceRecord, reply};

use super::{
    At, FieldError, calendar, ms, namespace_settings, non_empty, queue_counts, queue_settings,
};
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
            ..Self::default()
        }
    }
}

impl From<&ObservedQueue> for v1::QueueView {
    fn from(observed: &ObservedQueue) -> Self {
        let askers = observed.askers.iter().flatten().map(|asker| v1::Asker {
            worker: asker.worker.to_text().into_owned(),
            slots: asker.slots,
            asked_at_us: asker.asked_at.0,
        });
        let version = || format!("{:016x}", observed.view.settings.version());
        Self {
            pace: observed.pace.map(|pace| v1::QueuePace {
                arrivals_per_minute: pace.arrivals_per_minute,
                completions_per_minute: pace.completions_per_minute,
                time_to_empty_ms: pace.time_to_empty.map(ms),
            }),
            version: observed.askers.as_ref().map(|_| version()),
            askers: askers.collect(),
            ..Self::from(&observed.view)
        }
    }
}

/// The document of a queue.
///
/// # Errors
/// If a setting has a value that this version does not know.
pub fn queue(view: v1::QueueView) -> Result<QueueView, FieldError> {
    let settings = view.settings.unwrap_or_default();
    let effective = view.effective.into_iter().map(effective_setting);
    let effective: BTreeMap<_, _> = effective.collect::<Result<_, FieldError>>()?;
    let askers = view.askers.into_iter().map(|asker| Asker {
        worker: asker.worker,
        slots: asker.slots,
        asked_at: calendar(asker.asked_at_us),
    });
    Ok(QueueView {
        queue: view.queue,
        settings: queue_settings(At::top("settings"), settings)?,
        counts: queue_counts(view.counts.unwrap_or_default()),
        schedules: view.schedules,
        oldest_ready_for: view.oldest_ready_ms.map(Duration::from_millis),
        created_at: calendar(view.created_at_us),
        enqueued_total: view.enqueued_total,
        finished_total: view.finished_total,
        pace: view.pace.map_or_else(QueuePace::default, |pace| QueuePace {
            arrivals_per_minute: Some(pace.arrivals_per_minute),
            completions_per_minute: Some(pace.completions_per_minute),
            time_to_empty: pace.time_to_empty_ms.map(Duration::from_millis),
        }),
        askers: view.version.is_some().then(|| askers.collect()),
        version: view.version,
        effective: Some(effective).filter(|all| !all.is_empty()),
        shard: non_empty(view.shard),
    })
}

fn effective_setting(wire: v1::EffectiveSetting) -> Result<(String, EffectiveSetting), FieldError> {
    let setting = EffectiveSetting::read(&wire.value, wire.from);
    let setting = setting.map_err(|reason| FieldError::invalid(At::top("effective"), reason))?;
    Ok((wire.setting, setting))
}

/// The messages of the settings that apply to a queue.
pub fn effective_messages(all: BTreeMap<String, EffectiveSetting>) -> Vec<v1::EffectiveSetting> {
    let all = all.into_iter();
    let all = all.map(|(setting, effective)| v1::EffectiveSetting {
        setting,
        value: effective.value.to_string(),
        from: effective.from,
    });
    all.collect()
}

impl From<QueueWhy> for v1::QueueExplanation {
    fn from(why: QueueWhy) -> Self {
        let reasons = why.reasons.into_iter().map(|reason| v1::QueueReason {
            code: reason.code,
            text: reason.text,
            jobs: reason.jobs,
        });
        Self {
            queue: why.queue,
            reasons: reasons.collect(),
        }
    }
}

impl From<v1::QueueExplanation> for QueueWhy {
    fn from(wire: v1::QueueExplanation) -> Self {
        let reasons = wire.reasons.into_iter().map(|reason| QueueReason {
            code: reason.code,
            text: reason.text,
            jobs: reason.jobs,
        });
        Self {
            queue: wire.queue,
            reasons: reasons.collect(),
        }
    }
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

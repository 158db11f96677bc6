//! Queues and namespaces. Their settings have the same form as in requests.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use ganger_types::observed::ObservedQueue;
use ganger_types::why::QueueWait;
use ganger_types::{NamespaceRecord, NamespaceSettings, Queue, QueueCounts, QueueSettings, reply};
use serde::{Serialize, Serializer};
use utoipa::ToSchema;

use crate::names::{QueueName, text};
use crate::settings::{NamespaceSettingsDocument, QueueSettingsDocument};
use crate::time::{Moment, calendar, moment, seconds_if_any};

/// Number of jobs in each state.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = QueueCounts)]
struct CountsView {
    blocked: u64,
    scheduled: u64,
    ready: u64,
    running: u64,
    succeeded: u64,
    failed: u64,
    cancelled: u64,
}

impl From<QueueCounts> for CountsView {
    fn from(counts: QueueCounts) -> Self {
        Self {
            blocked: counts.blocked,
            scheduled: counts.scheduled,
            ready: counts.ready,
            running: counts.running,
            succeeded: counts.succeeded,
            failed: counts.failed,
            cancelled: counts.cancelled,
        }
    }
}

/// Queue, its settings and its counts.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Queue)]
pub struct QueueView {
    /// Name of the queue.
    pub queue: String,
    /// Number of jobs in each state; finished ones count while they are kept.
    #[serde(serialize_with = "counts")]
    #[schema(value_type = CountsView)]
    pub counts: QueueCounts,
    /// Time for which the oldest ready job has waited, in documents in seconds; absent if no job is ready.
    #[serde(
        rename = "oldest_ready_seconds",
        serialize_with = "seconds_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub oldest_ready_for: Option<Duration>,
    /// Number of schedules that make jobs for the queue.
    pub schedules: u64,
    /// Time of the queue's first use.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub created_at: SystemTime,
    /// Number of jobs ever enqueued in the queue.
    pub enqueued_total: u64,
    /// Number of jobs of the queue that ever ended.
    pub finished_total: u64,
    /// Settings of the queue, as configured.
    #[serde(serialize_with = "queue_settings")]
    #[schema(value_type = QueueSettingsDocument)]
    pub settings: QueueSettings,
    /// How fast it fills and empties; in answers to changes unknown.
    #[serde(flatten)]
    pub pace: QueuePace,
    /// Version of the settings, for `If-Match`; absent in lists and in answers to changes. Also in the header `ETag`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Workers that asked the queue for jobs within the last minute, at most 100; absent as the version is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub askers: Option<Vec<Asker>>,
    /// Settings that apply, each with where it comes from; absent unless `effective` was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective: Option<BTreeMap<String, EffectiveSetting>>,
    /// Shard that has it; absent unless the list is of all shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
}

/// How fast a queue fills and empties. Fields are absent while that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ToSchema)]
#[schema(as = QueuePace)]
pub struct QueuePace {
    /// Jobs enqueued a minute, over the last five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrivals_per_minute: Option<f64>,
    /// Jobs that ended a minute, over the last five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions_per_minute: Option<f64>,
    /// Time until the ready jobs are done at these rates, in documents in seconds; absent if they grow or stay.
    #[serde(
        rename = "seconds_to_empty",
        serialize_with = "seconds_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<f64>)]
    pub time_to_empty: Option<Duration>,
}

/// Worker that asks a queue for jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Asker {
    /// Name of the worker.
    pub worker: String,
    /// Maximum number of jobs that its last request asked for.
    pub slots: u32,
    /// Time of its last request.
    #[serde(serialize_with = "moment")]
    #[schema(value_type = Moment)]
    pub asked_at: SystemTime,
}

/// A setting that applies to a queue.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct EffectiveSetting {
    /// Value of the setting, in the same form as in requests; null: no limit, or none.
    #[schema(value_type = Object)]
    pub value: serde_json::Value,
    /// Where the value comes from: `queue`, `namespace` or `default`.
    pub from: String,
}

impl EffectiveSetting {
    /// A setting whose value is given as JSON text.
    ///
    /// # Errors
    /// The reason, for people, if the text is not JSON.
    pub fn read(value: &str, from: String) -> Result<Self, String> {
        let value = serde_json::from_str(value).map_err(|error| error.to_string())?;
        Ok(Self { value, from })
    }
}

/// Returns the settings that apply to a queue, each with where it comes from.
pub fn effective(
    queue: &QueueSettings,
    namespace: &NamespaceSettings,
) -> BTreeMap<String, EffectiveSetting> {
    let fields = |document: Result<serde_json::Value, serde_json::Error>| match document {
        Ok(serde_json::Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    };
    let own = fields(serde_json::to_value(QueueSettingsDocument::from(queue)));
    let space = fields(serde_json::to_value(NamespaceSettingsDocument::from(
        namespace,
    )));
    let default = NamespaceSettings::default();
    let default = fields(serde_json::to_value(NamespaceSettingsDocument::from(
        &default,
    )));
    let unset = fields(serde_json::to_value(QueueSettingsDocument::from(
        &QueueSettings::default(),
    )));
    let of = |name: &'static str| {
        let null = serde_json::Value::Null;
        let value = own.get(name).unwrap_or(&null);
        if Some(value) != unset.get(name) {
            return (value.clone(), "queue");
        }
        match space.get(name) {
            Some(inherited) if default.get(name) == Some(inherited) => {
                (inherited.clone(), "default")
            }
            Some(inherited) => (inherited.clone(), "namespace"),
            None => (value.clone(), "default"),
        }
    };
    let setting = |name: &'static str| {
        let (value, from) = of(name);
        let from = from.to_owned();
        (name.to_owned(), EffectiveSetting { value, from })
    };
    QUEUE_SETTINGS.into_iter().map(setting).collect()
}

/// Names of the settings of a queue.
const QUEUE_SETTINGS: [&str; 9] = [
    "paused",
    "running_max",
    "live_max",
    "lease_for",
    "grace_for",
    "retry",
    "retention",
    "due_order",
    "alert_age",
];

/// Causes why the jobs of a queue are not running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = QueueWhy)]
pub struct QueueWhy {
    /// Name of the queue.
    pub queue: String,
    /// Causes with the number of jobs that wait for each, most important first; empty if no job waits.
    pub reasons: Vec<QueueReason>,
}

/// A cause why jobs of a queue are not running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct QueueReason {
    /// Stable code: `store_held_up`, `queue_paused`, `queue_limit`, `no_worker`, `next`, `not_before` or `waits_for`.
    pub code: String,
    /// The cause as a sentence for people.
    pub text: String,
    /// Number of jobs that wait for this.
    pub jobs: u64,
}

impl QueueWhy {
    /// The causes of a queue.
    pub fn new(queue: &Queue, waits: &[QueueWait]) -> Self {
        let reasons = waits.iter().map(|wait| QueueReason {
            code: wait.cause.code().to_owned(),
            text: wait.cause.text(queue),
            jobs: wait.jobs,
        });
        Self {
            queue: text(queue.as_bytes()),
            reasons: reasons.collect(),
        }
    }
}

/// One page of the queues.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Queues)]
pub struct QueuesDoc {
    /// Queues of this page, by name.
    pub queues: Vec<QueueView>,
    /// Value of `after` for the next page; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<QueueName>,
}

impl From<reply::QueueView> for QueueView {
    fn from(view: reply::QueueView) -> Self {
        Self {
            queue: text(view.queue.as_bytes()),
            counts: view.counts,
            oldest_ready_for: view.oldest_ready_for,
            schedules: view.schedules,
            created_at: calendar(view.created_at),
            enqueued_total: view.enqueued_total,
            finished_total: view.finished_total,
            settings: view.settings,
            pace: QueuePace::default(),
            version: None,
            askers: None,
            effective: None,
            shard: None,
        }
    }
}

impl From<ObservedQueue> for QueueView {
    fn from(observed: ObservedQueue) -> Self {
        let version = format!("{:016x}", observed.view.settings.version());
        let askers = observed.askers.map(|askers| {
            let askers = askers.into_iter().map(|asker| Asker {
                worker: text(asker.worker.as_bytes()),
                slots: asker.slots,
                asked_at: calendar(asker.asked_at),
            });
            askers.collect()
        });
        Self {
            pace: observed
                .pace
                .map_or_else(QueuePace::default, |pace| QueuePace {
                    arrivals_per_minute: Some(pace.arrivals_per_minute),
                    completions_per_minute: Some(pace.completions_per_minute),
                    time_to_empty: pace.time_to_empty,
                }),
            version: askers.is_some().then_some(version),
            askers,
            ..Self::from(observed.view)
        }
    }
}

/// Namespace and its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Namespace)]
pub struct NamespaceView {
    /// Name of the namespace.
    pub namespace: String,
    /// Settings of the namespace, as configured.
    #[serde(serialize_with = "namespace_settings")]
    #[schema(value_type = NamespaceSettingsDocument)]
    pub settings: NamespaceSettings,
}

/// List of the namespaces.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Namespaces)]
pub struct NamespacesDoc {
    /// Namespaces in the order of their names.
    pub namespaces: Vec<NamespaceView>,
}

impl From<NamespaceRecord> for NamespaceView {
    fn from(record: NamespaceRecord) -> Self {
        Self {
            namespace: text(record.namespace.as_bytes()),
            settings: record.settings,
        }
    }
}

fn counts<S: Serializer>(counts: &QueueCounts, serializer: S) -> Result<S::Ok, S::Error> {
    CountsView::from(*counts).serialize(serializer)
}

fn queue_settings<S: Serializer>(
    settings: &QueueSettings,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    QueueSettingsDocument::from(settings).serialize(serializer)
}

fn namespace_settings<S: Serializer>(
    settings: &NamespaceSettings,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    NamespaceSettingsDocument::from(settings).serialize(serializer)
}

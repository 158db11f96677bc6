//! What all handlers share: the shard, the settings, the sessions with the database, the numbers.

use std::sync::Arc;

use axum::Router;
use ganger_access::{Audit, Identity};
use ganger_ngsi::environment::Environment;
use ganger_ngsi::telemetry::Sampler;
use ganger_shard::Handle;
use ganger_types::Namespace;
use tokio::sync::Semaphore;

use crate::health::DatabaseHealth;
use crate::inline_insert::InlineInsert;
use crate::metrics::Metrics;
use crate::routes;

/// What the server may set.
#[derive(Clone)]
pub struct Settings {
    /// The version that `/version` shows.
    pub version: &'static str,
    /// Whose jobs the tasks are.
    pub namespace: Namespace,
    /// What QuantumLeap's own variables say.
    pub environment: Environment,
    /// Bytes of a request's body; more are taken if a payload of the namespace may be larger.
    pub body_bytes_max: usize,
    /// Lists that may be written at once.
    pub lists_max: usize,
    /// Who asks when the server in front has put no identity into the request; nobody by default, who may nothing.
    pub stranger: Identity,
    /// Where the audit log goes.
    pub audit: Audit,
    /// Takes the durations of requests.
    pub durations: Option<Arc<Sampler>>,
}

impl Settings {
    /// Usual limits, for an environment.
    pub fn new(environment: Environment) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            namespace: Namespace::default(),
            environment,
            body_bytes_max: 32 << 20,
            lists_max: 1_000,
            stranger: Identity::Anonymous,
            audit: Audit::to_log(),
            durations: None,
        }
    }
}

/// The interface over one shard. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    api: Api,
}

impl Service {
    /// Over a shard. Nothing is connected yet.
    pub fn new(shard: Handle, settings: Settings) -> Self {
        Self {
            api: Api::new(shard, settings),
        }
    }

    /// Routes of the QuantumLeap API.
    pub fn routes(&self) -> Router {
        routes::routes(&self.api)
    }

    /// Appends its numbers in the Prometheus text format.
    pub fn metrics(&self, out: &mut String) {
        self.api.counters().write(out);
        crate::metrics::write_tasks(&self.api, out);
    }
}

/// The state of the routes. Cloning is a reference count.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    shard: Handle,
    settings: Settings,
    inline_insert: InlineInsert,
    database_health: DatabaseHealth,
    counters: Metrics,
    large_bodies: Semaphore,
    lists: Arc<Semaphore>,
}

impl Api {
    fn new(shard: Handle, settings: Settings) -> Self {
        let database = ganger_ngsi::postgres::Settings {
            database: settings.environment.database.clone(),
            keep_raw: settings.environment.keep_raw,
            insert_bytes_max: settings.environment.insert_bytes_max,
        };
        Self(Arc::new(Inner {
            inline_insert: InlineInsert::new(database.clone()),
            database_health: DatabaseHealth::new(database),
            counters: Metrics::default(),
            large_bodies: Semaphore::new(1),
            lists: Arc::new(Semaphore::new(settings.lists_max)),
            shard,
            settings,
        }))
    }

    /// The shard that has the tasks.
    pub(crate) fn shard(&self) -> &Handle {
        &self.0.shard
    }

    /// What the server has set.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// What QuantumLeap's variables say.
    pub(crate) fn environment(&self) -> &Environment {
        &self.0.settings.environment
    }

    /// Inserts within the request.
    pub(crate) fn inline_insert(&self) -> &InlineInsert {
        &self.0.inline_insert
    }

    /// Whether the database answers.
    pub(crate) fn database_health(&self) -> &DatabaseHealth {
        &self.0.database_health
    }

    pub(crate) fn counters(&self) -> &Metrics {
        &self.0.counters
    }

    /// The one turn at reading a large body.
    pub(crate) fn large_bodies(&self) -> &Semaphore {
        &self.0.large_bodies
    }

    /// Whether notifications become jobs and nothing else: none is inserted when the queue does not take it.
    pub(crate) fn is_queued_only(&self) -> bool {
        self.environment().offload && !self.environment().recover
    }

    /// Permits for requests that list tasks.
    pub(crate) fn lists(&self) -> &Arc<Semaphore> {
        &self.0.lists
    }
}

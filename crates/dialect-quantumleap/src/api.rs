//! State shared by all handlers: shard, settings, database sessions, metrics.

use std::sync::Arc;

use axum::Router;
use ganger_access::{Audit, Identity};
use ganger_metrics::Exposition;
use ganger_ngsi::environment::Environment;
use ganger_ngsi::telemetry::Sampler;
use ganger_shard::Handle;
use ganger_types::Namespace;
use tokio::sync::Semaphore;

use crate::health::DatabaseHealth;
use crate::inline_insert::InlineInsert;
use crate::metrics::Metrics;
use crate::routes;

/// Settings of the API.
#[derive(Clone)]
pub struct Settings {
    /// Version that `/version` reports.
    pub version: &'static str,
    /// Namespace that owns the tasks' jobs.
    pub namespace: Namespace,
    /// Values of QuantumLeap's own variables.
    pub environment: Environment,
    /// Maximum bytes of a request's body; more are accepted if the namespace allows larger payloads.
    pub body_bytes_max: usize,
    /// Maximum number of concurrent list requests.
    pub lists_max: usize,
    /// Identity of callers that the server has not identified; by default an anonymous one without rights.
    pub stranger: Identity,
    /// Audit log of the operations.
    pub audit: Audit,
    /// Receives the durations of requests; `None` to take no samples.
    pub durations: Option<Arc<Sampler>>,
}

impl Settings {
    /// Creates settings with default limits, for an environment.
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

/// The QuantumLeap API over one shard. Cheap to clone.
#[derive(Clone)]
pub struct Service {
    api: Api,
}

impl Service {
    /// Creates the API over a shard, without connecting to the database.
    pub fn new(shard: Handle, settings: Settings) -> Self {
        Self {
            api: Api::new(shard, settings),
        }
    }

    /// Returns the same API over another shard, with the same settings, database sessions and metrics.
    #[must_use]
    pub fn over(&self, shard: Handle) -> Self {
        Self {
            api: Api {
                shard,
                common: Arc::clone(&self.api.common),
            },
        }
    }

    /// Routes of the QuantumLeap API.
    pub fn routes(&self) -> Router {
        routes::routes(&self.api)
    }

    /// Adds the metrics of the API to those of the process.
    pub fn metrics(&self, out: &mut Exposition) {
        self.api.counters().add_to(out);
        crate::metrics::add_tasks(&self.api, out);
    }
}

/// State of the routes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api {
    shard: Handle,
    common: Arc<Common>,
}

/// What does not depend on the shard.
struct Common {
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
        let common = Common {
            inline_insert: InlineInsert::new(database.clone()),
            database_health: DatabaseHealth::new(database),
            counters: Metrics::default(),
            large_bodies: Semaphore::new(1),
            lists: Arc::new(Semaphore::new(settings.lists_max)),
            settings,
        };
        Self {
            shard,
            common: Arc::new(common),
        }
    }

    /// Returns the shard that has the tasks.
    pub(crate) fn shard(&self) -> &Handle {
        &self.shard
    }

    /// Returns the settings that the server gave this API.
    pub(crate) fn settings(&self) -> &Settings {
        &self.common.settings
    }

    /// Returns the values of QuantumLeap's variables.
    pub(crate) fn environment(&self) -> &Environment {
        &self.common.settings.environment
    }

    /// Returns the pool for inserts within requests.
    pub(crate) fn inline_insert(&self) -> &InlineInsert {
        &self.common.inline_insert
    }

    /// Returns the health check of the database.
    pub(crate) fn database_health(&self) -> &DatabaseHealth {
        &self.common.database_health
    }

    pub(crate) fn counters(&self) -> &Metrics {
        &self.common.counters
    }

    /// Returns the semaphore that lets large bodies be parsed one at a time.
    pub(crate) fn large_bodies(&self) -> &Semaphore {
        &self.common.large_bodies
    }

    /// Whether notifications are only queued: none is inserted when the queue does not accept it.
    pub(crate) fn is_queued_only(&self) -> bool {
        self.environment().offload && !self.environment().recover
    }

    /// Returns the semaphore that limits concurrent lists.
    pub(crate) fn lists(&self) -> &Arc<Semaphore> {
        &self.common.lists
    }
}

//! The state that all handlers share: the shard and the settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use ganger_access::{Audit, Identity, Operation, StreamLimit};
use ganger_attention::Attention;
use ganger_document::Shards;
use ganger_document::names::JobReference;
use ganger_router::{Graphs, RouteError, Router};
use ganger_shard::{Handle, ShardSet};
use ganger_types::{JobId, JobRef, ShardId};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::description::Description;
use crate::problem::Problem;

/// The settings of the HTTP port.
#[derive(Clone)]
pub struct Settings {
    /// Version that `/version` and `/openapi.json` show.
    pub version: &'static str,
    /// Maximum size of a body in bytes, except for graphs and batches.
    pub body_bytes_max: usize,
    /// Maximum size of the submission of a graph in bytes.
    pub graph_bytes_max: usize,
    /// Maximum size of one line of a batch in bytes.
    pub line_bytes_max: usize,
    /// Limit on open event streams, log followers and batches, shared with other dialects.
    pub streams: StreamLimit,
    /// Token that is cancelled when the server stops; long polls and streams then end in order.
    pub stopping: CancellationToken,
    /// Whether other machines can use the server without authentication, which `/healthz` shows.
    pub is_insecure: bool,
    /// Identity of requests to which the server has added none; by default one without rights.
    pub stranger: Identity,
    /// The log of changes and refusals, with who asked for them.
    pub audit: Audit,
    /// Router to the other shards; `None`: only this shard is known.
    pub router: Option<Router>,
    /// Shards of this process, for readiness and metrics; `None`: only the shard of the routes.
    pub shards: Option<ShardSet>,
    /// Finder of what needs attention; `None`: it looks at the shards of this process only.
    pub attention: Option<Attention>,
    /// Time at which the server started.
    pub started_at: Instant,
    /// Settings of the server that are not secret, by name.
    pub shown_settings: BTreeMap<String, String>,
    /// Metrics of the server itself and of its other ports.
    pub more_metrics: ganger_metrics::Source,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            body_bytes_max: 32 << 20,
            graph_bytes_max: 256 << 20,
            line_bytes_max: 8 << 20,
            streams: StreamLimit::new(1_000),
            stopping: CancellationToken::new(),
            is_insecure: false,
            stranger: Identity::Anonymous,
            audit: Audit::to_log(),
            router: None,
            shards: None,
            attention: None,
            started_at: Instant::now(),
            shown_settings: BTreeMap::new(),
            more_metrics: Arc::new(|_| {}),
        }
    }
}

/// The state of the routes. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    shard: Handle,
    attention: Attention,
    settings: Settings,
    graphs: Graphs,
    operations: Vec<Description>,
    requests: [AtomicU64; 5],
    large_bodies: Semaphore,
}

impl Api {
    pub(crate) fn new(shard: Handle, settings: Settings, operations: Vec<Description>) -> Self {
        let attention = settings.attention.clone().unwrap_or_else(|| {
            let shards = settings.shards.clone();
            Attention::of_shards(shards.unwrap_or_else(|| vec![shard.clone()].into()))
        });
        let graphs = match &settings.router {
            Some(router) => router.graphs(),
            None => Graphs::of_shards(std::slice::from_ref(&shard)),
        };
        Self(Arc::new(Inner {
            graphs,
            shard,
            attention,
            settings,
            operations,
            requests: Default::default(),
            large_bodies: Semaphore::new(1),
        }))
    }

    /// The shard of the routes.
    pub(crate) fn shard(&self) -> &Handle {
        &self.0.shard
    }

    /// All shards of this process.
    pub(crate) fn shards(&self) -> Arc<[Handle]> {
        match &self.0.settings.shards {
            None => Arc::new([self.0.shard.clone()]),
            Some(all) => all.now(),
        }
    }

    /// Graphs on all shards that are known.
    pub(crate) fn graphs(&self) -> &Graphs {
        &self.0.graphs
    }

    /// The finder of what needs attention.
    pub(crate) fn attention(&self) -> &Attention {
        &self.0.attention
    }

    /// The settings that the server gave this API.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// All operations of the API.
    pub(crate) fn operations(&self) -> &[Description] {
        &self.0.operations
    }

    /// The operation with this id, for authorization.
    ///
    /// # Panics
    /// If there is no such operation.
    pub(crate) fn access(&self, id: &str) -> Operation {
        let found = self
            .operations()
            .iter()
            .find(|operation| operation.id == id);
        let found = found.expect("the table has the operations that its pages refer to");
        found.access()
    }

    /// Number of answers, by the first digit of the status minus one.
    pub(crate) fn requests(&self) -> &[AtomicU64; 5] {
        &self.0.requests
    }

    /// The only permit to parse a large body.
    pub(crate) fn large_bodies(&self) -> &Semaphore {
        &self.0.large_bodies
    }

    /// The job of a reference, `shard/id` or the plain id. `place` is where the reference is, for errors.
    pub(crate) fn resolve(
        &self,
        job: &JobReference,
        place: impl FnOnce() -> String,
    ) -> Result<JobId, Problem> {
        JobRef::read_local(&job.0, self.shard().id()).map_err(|error| {
            let place = place();
            let problem = Problem::new(error.code(), format!("{place}: {error}"));
            if place.starts_with('/') {
                problem.at(place)
            } else {
                problem
            }
        })
    }
}

impl Shards for Api {
    fn own(&self) -> &ShardId {
        self.shard().id()
    }

    fn why_unknown(&self, shard: &ShardId) -> Option<String> {
        let here = self.shard().id();
        if shard == here {
            return None;
        }
        let Some(router) = &self.settings().router else {
            return Some(format!(
                "shard {:?} is not served here: this server has shard {:?}",
                shard.as_str(),
                here.as_str()
            ));
        };
        (!router.knows(shard)).then(|| {
            let (shard, known) = (shard.clone(), router.known());
            RouteError::Unknown { shard, known }.to_string()
        })
    }
}

//! What all handlers share: the shard, the settings, the budget of bytes in flight.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ganger_shard::Handle;
use ganger_types::JobId;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::body::budget_units;

/// What the server may set.
#[derive(Clone)]
pub struct Settings {
    /// The version shown by `/version` and `/openapi.json`.
    pub version: &'static str,
    /// Bytes of a request's body, but for graphs and batches.
    pub body_bytes_max: usize,
    /// Bytes of a graph's submission.
    pub graph_bytes_max: usize,
    /// Bytes of one line of a batch.
    pub line_bytes_max: usize,
    /// Bytes that the bodies of all requests may hold together while they are read.
    pub bytes_in_flight_max: usize,
    /// Event streams and log followers open at once.
    pub streams_max: usize,
    /// Cancelled when the server stops: long polls and streams end politely then.
    pub stopping: CancellationToken,
    /// Whether the server is open to others without any check; told by `/healthz`.
    pub is_insecure: bool,
    /// Appends the server's own metrics in the Prometheus text format.
    pub more_metrics: Arc<dyn Fn(&mut String) + Send + Sync>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            body_bytes_max: 32 << 20,
            graph_bytes_max: 256 << 20,
            line_bytes_max: 8 << 20,
            bytes_in_flight_max: 512 << 20,
            streams_max: 1_000,
            stopping: CancellationToken::new(),
            is_insecure: false,
            more_metrics: Arc::new(|_| {}),
        }
    }
}

/// The state of the routes. Cloning is a reference count.
#[derive(Clone)]
pub(crate) struct Api(Arc<Inner>);

struct Inner {
    shard: Handle,
    settings: Settings,
    budget: Semaphore,
    streams: Arc<Semaphore>,
    requests: [AtomicU64; 5],
}

impl Api {
    pub(crate) fn new(shard: Handle, settings: Settings) -> Self {
        let budget = Semaphore::new(budget_units(settings.bytes_in_flight_max));
        let streams = Arc::new(Semaphore::new(settings.streams_max));
        Self(Arc::new(Inner {
            shard,
            settings,
            budget,
            streams,
            requests: Default::default(),
        }))
    }

    /// The shard behind the routes.
    pub(crate) fn shard(&self) -> &Handle {
        &self.0.shard
    }

    /// What the server has set.
    pub(crate) fn settings(&self) -> &Settings {
        &self.0.settings
    }

    /// Permits for bytes in flight.
    pub(crate) fn budget(&self) -> &Semaphore {
        &self.0.budget
    }

    /// Permits for open streams.
    pub(crate) fn streams(&self) -> &Arc<Semaphore> {
        &self.0.streams
    }

    /// Answers sent, by the first digit of their status less one.
    pub(crate) fn requests(&self) -> &[AtomicU64; 5] {
        &self.0.requests
    }

    /// The job that a text names: `shard/id` with our shard, or the plain id.
    ///
    /// An id given by a client may contain slashes; one that begins like our shard's prefix must be
    /// written with the prefix.
    pub(crate) fn resolve(&self, name: &JobId) -> JobId {
        let prefix = self.shard().id().as_str().as_bytes();
        name.as_bytes()
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix(b"/"))
            .and_then(|rest| JobId::new(rest).ok())
            .unwrap_or_else(|| name.clone())
    }

    /// The global text form of a job's id.
    pub(crate) fn full_name(&self, id: &JobId) -> String {
        format!(
            "{}/{}",
            self.shard().id(),
            crate::names::show(id.as_bytes())
        )
    }
}

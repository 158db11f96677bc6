//! Samples of how long requests take and of what the process uses, where that is asked for.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ganger_ngsi::telemetry::{DURATION, RUNTIME, Sampler, sample_runtime};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::error::StartError;

/// Between two looks at what the process uses.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The samples of this process.
pub(crate) struct Telemetry {
    durations: Arc<Sampler>,
    runtime: Arc<Sampler>,
}

impl Telemetry {
    /// Files go into the directory, which is made if it is not there.
    pub(crate) fn open(directory: &Path) -> Result<Self, StartError> {
        Ok(Self {
            durations: Arc::new(Sampler::open(directory, DURATION)?),
            runtime: Arc::new(Sampler::open(directory, RUNTIME)?),
        })
    }

    /// Takes the durations of requests.
    pub(crate) fn durations(&self) -> Arc<Sampler> {
        Arc::clone(&self.durations)
    }

    /// Looks once a second at what the process uses, until `stopping`.
    pub(crate) fn follow_runtime(&self, stopping: CancellationToken) {
        let runtime = Arc::clone(&self.runtime);
        tokio::spawn(async move {
            let mut looks = tokio::time::interval(CHECK_INTERVAL);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = stopping.cancelled() => break,
                    _ = looks.tick() => {}
                }
                if let Err(error) = sample_runtime(&runtime) {
                    tracing::warn!(%error, "samples are lost");
                }
            }
        });
    }

    /// Writes what has gathered.
    pub(crate) fn flush(&self) {
        for sampler in [&self.durations, &self.runtime] {
            if let Err(error) = sampler.flush() {
                tracing::warn!(%error, "samples are lost");
            }
        }
    }
}

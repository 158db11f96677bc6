//! Samples of request durations and resource usage, if they are configured.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ganger_ngsi::telemetry::{DURATION, RUNTIME, Sampler, sample_runtime};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::error::StartError;

/// Interval between samples of resource usage.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The samples of this process.
pub(crate) struct Telemetry {
    durations: Arc<Sampler>,
    runtime: Arc<Sampler>,
}

impl Telemetry {
    /// Opens sample files in the directory, which is created if it is missing.
    pub(crate) fn open(directory: &Path) -> Result<Self, StartError> {
        Ok(Self {
            durations: Arc::new(Sampler::open(directory, DURATION)?),
            runtime: Arc::new(Sampler::open(directory, RUNTIME)?),
        })
    }

    /// Returns the sampler of request durations.
    pub(crate) fn durations(&self) -> Arc<Sampler> {
        Arc::clone(&self.durations)
    }

    /// Samples resource usage once a second, until `stopping`.
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

    /// Writes the samples collected since the last flush.
    pub(crate) fn flush(&self) {
        for sampler in [&self.durations, &self.runtime] {
            if let Err(error) = sampler.flush() {
                tracing::warn!(%error, "samples are lost");
            }
        }
    }
}

//! Gauges of the external systems.

use ganger_engine::Engine;

use super::{MetricValue, count, metrics};

metrics! {
    /// Values that describe the current state of the external systems.
    ExternalGauges {
        /// Waits for elements of lists of raw keys.
        waiting_pops,
        /// Items of raw keys put back from processing without a lease, since the engine was loaded.
        keys_put_back,
        /// Items of raw keys put on their queue because they were in no list, since the engine was loaded.
        keys_rescued,
        /// Items of raw keys whose taker had gone before they were asked for, put back at once, since the engine was
        /// loaded.
        keys_returned,
        /// Namespaces that have jobs or queues of qless.
        qless_namespaces,
        /// Namespaces that have those, and namespaces that have work queues of raw keys.
        external_job_namespaces,
    }
}

impl ExternalGauges {
    /// Sets the values that the engine knows.
    pub(crate) fn observe(&self, engine: &Engine) {
        self.qless_namespaces.set(count(engine.qless_namespaces()));
        self.external_job_namespaces
            .set(count(engine.external_job_namespaces()));
        let upkeep = engine.key_upkeep_counts();
        self.keys_put_back.set(upkeep.put_back);
        self.keys_rescued.set(upkeep.rescued);
        self.keys_returned.set(upkeep.returned);
    }
}

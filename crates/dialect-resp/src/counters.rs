//! Counters of the port, for the metrics.

#[cfg(feature = "qless")]
mod qless;

use std::sync::atomic::{AtomicU64, Ordering};

use ganger_metrics::Exposition;

#[cfg(feature = "qless")]
pub(crate) use qless::{Family, QlessCounters};

/// The counters of the port since the start of the server.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of connections open now.
    pub open: AtomicU64,
    /// Number of connections accepted since the start.
    pub accepted: AtomicU64,
    /// Number of connections that were closed at once, because there were too many or TLS failed.
    pub refused: AtomicU64,
    pub(crate) blocked: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) malformed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) published: AtomicU64,
    #[cfg(feature = "qless")]
    pub(crate) qless: QlessCounters,
}

/// Adds one to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// Adds the metrics of the port.
    pub fn metrics(&self, out: &mut Exposition) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        for (name, help, number) in self.gauges() {
            out.gauge(name, help).sample(&[], read(number));
        }
        for (name, help, number) in self.totals() {
            out.counter(name, help).sample(&[], read(number));
        }
        #[cfg(feature = "qless")]
        self.qless.metrics(out);
    }

    /// Name, help and number of each gauge.
    #[rustfmt::skip] // A table reads better with a row on each line.
    fn gauges(&self) -> [(&str, &str, &AtomicU64); 2] {
        [
            ("ganger_resp_connections", "Redis connections open now.", &self.open),
            ("ganger_resp_blocked", "Redis connections that wait for an element now.", &self.blocked),
        ]
    }

    /// Name, help and number of each counter.
    #[rustfmt::skip] // A table reads better with a row on each line.
    fn totals(&self) -> [(&str, &str, &AtomicU64); 8] {
        [
            ("ganger_resp_connections_total", "Redis connections ever accepted.", &self.accepted),
            ("ganger_resp_connections_refused_total", "Redis connections closed at once: too many, or no TLS.", &self.refused),
            ("ganger_resp_commands_total", "Redis commands ever received.", &self.commands),
            ("ganger_resp_commands_unknown_total", "Redis commands that ganger does not have.", &self.unknown),
            ("ganger_resp_protocol_errors_total", "Redis connections closed because their bytes were no requests.", &self.malformed),
            ("ganger_resp_commands_denied_total", "Redis commands refused for lack of rights.", &self.denied),
            ("ganger_resp_connections_cut_total", "Redis connections cut because they did not read.", &self.cut),
            ("ganger_resp_published_total", "Messages ever published.", &self.published),
        ]
    }
}

/// Increments a counter, and decrements it when dropped.
pub(crate) struct Gauge<'a>(&'a AtomicU64);

impl<'a> Gauge<'a> {
    pub(crate) fn of(counter: &'a AtomicU64) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Self(counter)
    }
}

impl Drop for Gauge<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

//! Numbers of the port, for the metrics.

#[cfg(feature = "qless")]
mod qless;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "qless")]
pub(crate) use qless::{Family, QlessCounters};

/// Numbers of the port since the server's start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of connections open now.
    pub open: AtomicU64,
    /// Number of connections accepted since the start.
    pub accepted: AtomicU64,
    /// Connections closed at once: there were too many, or they came to no TLS.
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
    /// The plain ones: name, kind, what it is, and the number.
    #[rustfmt::skip] // A table reads better with a row on each line.
    fn rows(&self) -> [(&str, &str, &str, &AtomicU64); 10] {
        [
            ("connections", "gauge", "Redis connections open now.", &self.open),
            ("connections_total", "counter", "Redis connections ever accepted.", &self.accepted),
            ("connections_refused_total", "counter", "Redis connections closed at once: too many, or no TLS.", &self.refused),
            ("blocked", "gauge", "Redis connections that wait for an element now.", &self.blocked),
            ("commands_total", "counter", "Redis commands ever received.", &self.commands),
            ("commands_unknown_total", "counter", "Redis commands that ganger does not have.", &self.unknown),
            ("protocol_errors_total", "counter", "Redis connections closed because their bytes were no requests.", &self.malformed),
            ("commands_denied_total", "counter", "Redis commands refused for lack of rights.", &self.denied),
            ("connections_cut_total", "counter", "Redis connections cut because they did not read.", &self.cut),
            ("published_total", "counter", "Messages ever published.", &self.published),
        ]
    }

    /// Writes them in the form of Prometheus.
    pub fn metrics(&self, out: &mut String) {
        let rows = self.rows().into_iter();
        #[cfg(feature = "qless")]
        let rows = rows.chain(self.qless.rows());
        for (name, kind, help, value) in rows {
            let value = value.load(Ordering::Relaxed);
            write!(
                out,
                "# HELP ganger_resp_{name} {help}\n# TYPE ganger_resp_{name} {kind}\nganger_resp_{name} {value}\n"
            )
            .expect("strings take everything");
        }
        #[cfg(feature = "qless")]
        self.qless.metrics(out);
    }
}

/// Counts for as long as it lives.
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

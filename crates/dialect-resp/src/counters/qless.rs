//! Counters of qless on this port, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use ganger_metrics::Exposition;

/// A group of commands that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// Commands that put a job.
    Put,
    /// Commands that take jobs.
    Pop,
    /// Commands that end an attempt.
    Finish,
    /// Commands that extend an attempt's lock.
    Heartbeat,
    /// Commands that change jobs in another way.
    Change,
    /// Commands on recurring jobs.
    Recur,
    /// Commands on queues, workers, options and throttles.
    Manage,
    /// Commands that only read.
    Look,
    /// Commands that the script does not know.
    Unknown,
}

impl Family {
    pub(crate) const ALL: [Self; 9] = [
        Self::Put,
        Self::Pop,
        Self::Finish,
        Self::Heartbeat,
        Self::Change,
        Self::Recur,
        Self::Manage,
        Self::Look,
        Self::Unknown,
    ];

    /// The word for the group in the metrics.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Pop => "pop",
            Self::Finish => "finish",
            Self::Heartbeat => "heartbeat",
            Self::Change => "change",
            Self::Recur => "recur",
            Self::Manage => "manage",
            Self::Look => "look",
            Self::Unknown => "unknown",
        }
    }
}

/// The counters of qless since the start of the server.
#[derive(Debug, Default)]
pub(crate) struct QlessCounters {
    calls: [AtomicU64; Family::ALL.len()],
    /// Number of calls that were answered with an error of the script.
    pub(crate) refused: AtomicU64,
    /// Number of messages to subscribers.
    pub(crate) messages: AtomicU64,
}

impl QlessCounters {
    /// Adds the metrics of qless.
    pub(crate) fn metrics(&self, out: &mut Exposition) {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let help = "Calls of the qless script, by family of its commands.";
        let mut calls = out.counter("ganger_resp_qless_calls_total", help);
        for family in Family::ALL {
            calls.sample(&[("family", family.as_str())], read(self.calls(family)));
        }
        let help = "Calls of the qless script that were answered with an error of the script.";
        out.counter("ganger_resp_qless_refused_total", help)
            .sample(&[], read(&self.refused));
        let help = "Messages of qless to subscribers.";
        out.counter("ganger_resp_qless_messages_total", help)
            .sample(&[], read(&self.messages));
    }

    /// The counter of a family of commands.
    pub(crate) fn calls(&self, family: Family) -> &AtomicU64 {
        let place = Family::ALL.iter().position(|known| *known == family);
        &self.calls[place.expect("all are there")]
    }
}

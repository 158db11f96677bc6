//! The loads of the comparison, and the figures of each.

use ganger_bench::Named;

/// Something that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// A load on a queue.
    Named(Named),
    /// Full lives over 64 connections in batches of 256, beside a bare log.
    Lives,
    /// Programs that `ganger worker` runs, beside a bare loop that starts them.
    Programs,
    /// From `kill -9` until ready with many live jobs.
    Restart,
    /// Memory of an idle server, and of a waiting job.
    Memory,
}

impl Load {
    /// All of them, in the order of the report.
    pub(super) fn all() -> Vec<Self> {
        let named = Named::ALL.map(Self::Named).into_iter();
        let others = [Self::Lives, Self::Programs, Self::Restart, Self::Memory];
        named.chain(others).collect()
    }

    /// The name in options and reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Named(named) => named.name(),
            Self::Lives => LIVES,
            Self::Programs => PROGRAMS,
            Self::Restart => "RESTART",
            Self::Memory => "MEMORY",
        }
    }

    /// What it does, in one line.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Named(named) => named.about(),
            Self::Lives => {
                "Full lives over 64 connections in batches of 256: lives/s, beside a bare log of the same records"
            }
            Self::Programs => {
                "Programs with JSON in and out: programs/s, beside a bare loop that starts them"
            }
            Self::Restart => {
                "From kill -9 until ready with 1,000,000 live jobs (10,000,000 if asked)"
            }
            Self::Memory => "Memory of an idle server, and of each waiting job without payload",
        }
    }

    /// The load of this name; upper and lower case are the same.
    pub(super) fn find(name: &str) -> Option<Self> {
        let mut all = Self::all().into_iter();
        all.find(|load| load.name().eq_ignore_ascii_case(name))
    }
}

pub(super) const LIVES: &str = "LIVES";
pub(super) const PROGRAMS: &str = "PROGRAMS";

/// What is measured of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Metric {
    /// Jobs, lives or programs a second.
    Rate,
    /// Microseconds of the server's CPU for each.
    Cpu,
    /// Flushes of the server for each job, life or program.
    Flushes,
    /// Bytes written for each.
    Bytes,
    /// Milliseconds from enqueue to start, the median.
    P50,
    /// The same, the 99th percentile.
    P99,
    /// Seconds that the whole load takes.
    Seconds,
    /// Bytes of memory for each waiting job, or of the idle server.
    Memory,
}

impl Metric {
    /// The name in tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rate => "jobs/s",
            Self::Cpu => "server CPU \u{b5}s a job",
            Self::Flushes => "flushes a job",
            Self::Bytes => "bytes written a job",
            Self::P50 => "p50 ms",
            Self::P99 => "p99 ms",
            Self::Seconds => "seconds",
            Self::Memory => "bytes of memory",
        }
    }
}

//! Fuzz targets as plain functions on bytes.
//!
//! Each target runs in two ways: with [`driver`] on the stable toolchain, for a few seconds in CI (`cargo xtask fuzz`); and
//! with libFuzzer and its coverage feedback on a nightly toolchain (`cargo fuzz run --features libfuzzer record`, in the
//! project's root).

pub mod configuration;
pub mod driver;
mod mutation;
pub mod notification;
pub mod qless;
pub mod record;
mod record_seeds;
pub mod resp;
pub mod submission;

/// A fuzz target: a function that must not panic, whatever bytes it gets.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name of the target: that of its module, its file in `fuzz_targets` and its directory in `corpus`.
    pub name: &'static str,
    /// Runs the target on one input.
    pub run: fn(&[u8]),
    /// Returns inputs to start from, in addition to those in `corpus`.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets, sorted by name.
pub const TARGETS: &[Target] = &[
    Target {
        name: "configuration",
        run: configuration::run,
        seeds: Vec::new,
    },
    Target {
        name: "notification",
        run: notification::run,
        seeds: notification::seeds,
    },
    Target {
        name: "qless",
        run: qless::run,
        seeds: qless::seeds,
    },
    Target {
        name: "record",
        run: record::run,
        seeds: record::seeds,
    },
    Target {
        name: "resp",
        run: resp::run,
        seeds: resp::seeds,
    },
    Target {
        name: "submission",
        run: submission::run,
        seeds: Vec::new,
    },
];

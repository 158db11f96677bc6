//! Fuzz targets as plain functions on bytes.
//!
//! Each is run two ways: by [`driver`] on the stable toolchain, some seconds each in CI (`cargo xtask fuzz`); and by
//! libFuzzer, with feedback from coverage, where `cargo fuzz` and a nightly toolchain are (`cargo fuzz run --features
//! libfuzzer record`, in the project's root).

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
    /// The target's name: its module, its file in `fuzz_targets`, its directory in `corpus`.
    pub name: &'static str,
    /// Runs the target on one input.
    pub run: fn(&[u8]),
    /// Inputs to start from, besides those that are saved in `corpus`.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets, in the order of their names.
pub const TARGETS: &[Target] = &[
    Target {
        name: "configuration",
        run: configuration::run,
        seeds: Vec::new,
    },
    Target {
        name: "notification",
        run: notification::run,
        seeds: Vec::new,
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

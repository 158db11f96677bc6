//! Fuzz targets as plain functions on bytes.
//!
//! Each is run two ways: by [`driver`] on the stable toolchain, some seconds each in CI (`cargo xtask fuzz`); and by
//! libFuzzer, with feedback from coverage, where `cargo fuzz` and a nightly toolchain are (`cargo fuzz run record`, in
//! the project's root).

pub mod configuration;
pub mod driver;
mod mutation;
pub mod notification;
pub mod qless;
pub mod record;
mod record_seeds;
pub mod resp;
pub mod submission;

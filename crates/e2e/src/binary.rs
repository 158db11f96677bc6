//! Finds the program under test.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Returns the path of the program under test: `GANGER_BIN` if set. Otherwise it is built once, optimised and with
/// assertions.
///
/// # Panics
/// If the program cannot be built.
pub fn ganger() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT
        .get_or_init(|| env::var_os("GANGER_BIN").map_or_else(build, PathBuf::from))
        .clone()
}

fn build() -> PathBuf {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(&root)
        .args([
            "build",
            "--quiet",
            "--profile",
            "sim",
            "--package",
            "ganger-cli",
            "--bin",
            "ganger",
        ])
        .status()
        .expect("cargo runs these tests, so it can be started");
    assert!(status.success(), "the ganger binary cannot be built");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join("sim").join("ganger")
}

//! Checks licences, sources, versions and known vulnerabilities of libraries against the rules in `deny.toml`.

use std::path::PathBuf;

use anyhow::Result;

use crate::process::{self, cargo, exists};

/// Runs cargo-deny, which reads the lock file and needs no network. A missing tool, or a missing database for
/// vulnerabilities (from `cargo deny fetch`), is reported and skipped.
pub(crate) fn check() -> Result<()> {
    if !exists("cargo-deny") {
        println!("skipped: cargo-deny is not installed (cargo install --locked cargo-deny)");
        return Ok(());
    }
    deny("bans licenses sources")?;
    if advisories().is_none_or(|path| !path.is_dir()) {
        println!("skipped: advisories, there is no database of them here (cargo deny fetch)");
        return Ok(());
    }
    deny("--disable-fetch advisories")
}

fn deny(what: &str) -> Result<()> {
    let mut command = cargo();
    command.args("deny --offline --locked check".split(' '));
    process::run(command.args(what.split(' ')))
}

/// Returns the directory of cargo-deny's databases.
fn advisories() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    Some(home.join("advisory-dbs"))
}

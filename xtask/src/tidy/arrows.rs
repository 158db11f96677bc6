//! Who may depend on whom: the picture in ARCHITECTURE.md, compared with cargo's own metadata.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Findings;
use crate::process::{cargo, output};

/// Each crate with the crates of ours that it may use. A crate that is missing here is an error.
const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("qless", &["types"]),
    ("engine", &["types", "qless"]),
    ("store", &["types"]),
    ("store-embedded", &["types", "store"]),
    ("shard", &["types", "engine", "store"]),
    ("proto", &[]),
    ("access", &[]),
    ("tls", &[]),
    (
        "router",
        &["types", "engine", "store", "shard", "proto", "access"],
    ),
    (
        "dialect-http",
        &["types", "engine", "shard", "router", "access"],
    ),
    (
        "dialect-grpc",
        &["types", "engine", "shard", "router", "proto", "access"],
    ),
    (
        "dialect-resp",
        &["types", "qless", "engine", "shard", "access"],
    ),
    ("ngsi", &[]),
    ("telemetry", &[]),
    ("ngsi-postgres", &["ngsi"]),
    (
        "dialect-quantumleap",
        &[
            "types",
            "engine",
            "shard",
            "access",
            "ngsi",
            "ngsi-postgres",
            "telemetry",
        ],
    ),
    (
        "ngsi-worker",
        &["client", "worker", "ngsi", "ngsi-postgres", "telemetry"],
    ),
    (
        "server",
        &[
            "types",
            "engine",
            "store",
            "store-embedded",
            "shard",
            "router",
            "dialect-http",
            "dialect-grpc",
            "dialect-resp",
            "dialect-quantumleap",
            "ngsi",
            "ngsi-postgres",
            "telemetry",
            "access",
            "tls",
        ],
    ),
    ("client", &["types", "proto", "tls"]),
    ("worker", &["types", "client"]),
    // The store at rest, for `check` and `backup`; the access file, for `token`.
    (
        "cli",
        &[
            "types",
            "server",
            "client",
            "worker",
            "ngsi",
            "ngsi-postgres",
            "ngsi-worker",
            "store-embedded",
            "access",
        ],
    ),
    ("sim", &["types", "engine", "store", "shard"]),
    ("powercut", &["types", "store", "store-embedded"]),
    ("e2e", &["types", "cli", "ngsi-postgres"]),
    (
        "fuzz",
        &[
            "types",
            "qless",
            "engine",
            "store",
            "store-embedded",
            "shard",
            "router",
            "proto",
            "access",
            "tls",
            "dialect-http",
            "dialect-grpc",
            "dialect-resp",
            "dialect-quantumleap",
            "ngsi",
            "server",
            "client",
            "worker",
            "cli",
        ],
    ),
];

/// What the pure crates may use of others' crates: nothing that reads a clock, draws, or does I/O.
const PURE: &[(&str, &[&str])] = &[
    ("types", &["bytes", "thiserror"]),
    ("qless", &["bytes", "hashbrown"]),
    (
        "ngsi",
        &[
            "base64",
            "jiff",
            "serde",
            "serde_json",
            "sha2",
            "thiserror",
            "yaml-rust2",
        ],
    ),
    (
        "engine",
        &[
            "bytes",
            "croner",
            "hashbrown",
            "jiff",
            "rand_chacha",
            "thiserror",
        ],
    ),
];

/// Compares every dependency of every crate.
pub(super) fn check(findings: &mut Findings) -> Result<()> {
    let text = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    for package in metadata["packages"]
        .as_array()
        .context("cargo metadata has no packages")?
    {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(short) = name.strip_prefix("ganger-") else {
            continue;
        };
        let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == short) else {
            findings.error(format!("crate {name} is not in the table of arrows: add it to xtask/src/tidy/arrows.rs and ARCHITECTURE.md"));
            continue;
        };
        for dependency in package["dependencies"]
            .as_array()
            .context("a package without dependencies")?
        {
            check_one(short, allowed, dependency, findings);
        }
    }
    Ok(())
}

fn check_one(from: &str, allowed: &[&str], dependency: &Value, findings: &mut Findings) {
    let name = dependency["name"].as_str().unwrap_or_default();
    let is_for_tests = dependency["kind"] == "dev";
    if let Some(to) = name.strip_prefix("ganger-") {
        if to != from && !allowed.contains(&to) && !is_for_tests {
            findings.error(format!(
                "crate {from} must not use {to}: it may use {allowed:?}"
            ));
        }
        return;
    }
    let pure = PURE.iter().find(|(pure, _)| *pure == from);
    if let Some((_, libraries)) = pure
        && !is_for_tests
        && !libraries.contains(&name)
    {
        findings.error(format!(
            "crate {from} is pure and must not use {name}: it may use {libraries:?}"
        ));
    }
}

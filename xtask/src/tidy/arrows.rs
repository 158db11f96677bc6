//! Compares the picture of crates in ARCHITECTURE.md with cargo's metadata in both directions.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Findings, Source};
use crate::process::{cargo, output};

/// Document with the picture, the first `text` block below [`HEADING`].
const DOCUMENT: &str = "ARCHITECTURE.md";
const HEADING: &str = "## Who may depend on whom";

/// Crate that every other may use without an arrow.
const SHARED_CRATE: &str = "types";

/// Pure crates, each with the external libraries that it may use: none of these reads a clock, draws random numbers or
/// does I/O.
const PURE: &[(&str, &[&str])] = &[
    ("types", &["bytes", "serde", "thiserror"]),
    ("qless", &["bytes", "hashbrown"]),
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

/// A crate whose modules are pure, with exceptions.
struct MostlyPure {
    name: &'static str,
    /// External libraries that the pure modules may use.
    libraries: &'static [&'static str],
    /// Modules that are not pure.
    others: &'static [&'static str],
}

const MOSTLY_PURE: &[MostlyPure] = &[MostlyPure {
    name: "ngsi",
    libraries: &[
        "base64",
        "jiff",
        "serde",
        "serde_json",
        "sha2",
        "thiserror",
        "yaml-rust2",
    ],
    others: &["postgres", "telemetry"],
}];

/// Parts of the standard library that do I/O or read a clock.
const IMPURE: &[&str] = &[
    "std::env::",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime",
];

/// Each crate, with the crates of the workspace that it may use.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Compares every dependency of every crate with the picture, and every arrow with the dependencies.
pub(super) fn check(sources: &[Source], findings: &mut Findings) -> Result<()> {
    let document = sources
        .iter()
        .find(|source| source.path.ends_with(DOCUMENT))
        .context("ARCHITECTURE.md is missing")?;
    let drawn = read(&document.text)?;
    let text = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    let mut used = Arrows::new();
    for package in metadata["packages"]
        .as_array()
        .context("cargo metadata has no packages")?
    {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(short) = name.strip_prefix("ganger-") else {
            continue;
        };
        let dependencies = package["dependencies"]
            .as_array()
            .context("a package without dependencies")?;
        let libraries = dependencies
            .iter()
            .filter(|dependency| dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str());
        let libraries: Vec<&str> = libraries.collect();
        if let Some(mostly) = MOSTLY_PURE.iter().find(|mostly| mostly.name == short) {
            check_modules(mostly, &libraries, sources, findings);
        }
        let mut ours = BTreeSet::new();
        for library in libraries {
            match library.strip_prefix("ganger-") {
                Some(to) if to != short => drop(ours.insert(to.to_owned())),
                Some(_) => {}
                None => check_purity(short, library, findings),
            }
        }
        used.insert(short.to_owned(), ours);
    }
    compare(&drawn, &used, findings);
    Ok(())
}

/// Reads the picture: lines of `crate -> crate, crate`; a line that begins with a space continues the previous one.
fn read(document: &str) -> Result<Arrows> {
    let (_, after) = document
        .split_once(HEADING)
        .with_context(|| format!("{DOCUMENT} has no heading {HEADING:?}"))?;
    let (_, after) = after
        .split_once("```text\n")
        .context("no picture below the heading")?;
    let (picture, _) = after.split_once("```").context("the picture has no end")?;
    let mut arrows = Arrows::new();
    let mut from = String::new();
    for line in picture.lines() {
        let targets = if line.starts_with(' ') {
            line
        } else {
            let (name, targets) = line.split_once("->").unwrap_or((line, ""));
            name.trim().clone_into(&mut from);
            if arrows.insert(from.clone(), BTreeSet::new()).is_some() {
                bail!("{DOCUMENT}: the picture has two lines of {from}");
            }
            targets
        };
        let targets = targets.split(',').map(str::trim);
        let of_crate = arrows.entry(from.clone()).or_default();
        of_crate.extend(targets.filter(|name| !name.is_empty()).map(str::to_owned));
    }
    Ok(arrows)
}

fn compare(drawn: &Arrows, used: &Arrows, findings: &mut Findings) {
    for (from, ours) in used {
        let Some(allowed) = drawn.get(from) else {
            findings.error(format!(
                "crate {from} is not in the picture of {DOCUMENT}: draw it below {HEADING:?}"
            ));
            continue;
        };
        for to in ours.difference(allowed).filter(|to| *to != SHARED_CRATE) {
            findings.error(format!(
                "crate {from} must not use {to}: by {DOCUMENT} it may use {allowed:?}"
            ));
        }
    }
    for (from, allowed) in drawn {
        let none = BTreeSet::new();
        for to in allowed.difference(used.get(from).unwrap_or(&none)) {
            findings.error(format!(
                "{DOCUMENT} draws {from} -> {to}, which no Cargo.toml has: remove the arrow"
            ));
        }
        if !used.contains_key(from) {
            findings.error(format!("{DOCUMENT} draws {from}, which is not a crate"));
        }
    }
}

fn check_purity(from: &str, library: &str, findings: &mut Findings) {
    let pure = PURE.iter().find(|(pure, _)| *pure == from);
    if let Some((_, libraries)) = pure
        && !libraries.contains(&library)
    {
        findings.error(format!(
            "crate {from} is pure and must not use {library}: it may use {libraries:?}"
        ));
    }
}

/// Finds I/O, and libraries that only other modules may use, in the pure modules of a crate.
fn check_modules(
    mostly: &MostlyPure,
    libraries: &[&str],
    sources: &[Source],
    findings: &mut Findings,
) {
    let MostlyPure { name, others, .. } = mostly;
    let forbidden = libraries
        .iter()
        .filter(|library| !mostly.libraries.contains(library))
        .map(|library| format!("{}::", library.replace('-', "_")))
        .chain(others.iter().map(|module| format!("crate::{module}::")))
        .chain(IMPURE.iter().map(|&path| path.to_owned()));
    let forbidden: Vec<String> = forbidden.collect();
    let root = format!("crates/{name}/src/");
    let products = sources.iter().filter(|it| it.is("rs") && !it.is_test());
    for source in products {
        let path = source.path.display().to_string();
        let Some((_, inside)) = path.split_once(&root) else {
            continue;
        };
        let module = inside.split(['/', '.']).next().unwrap_or_default();
        if others.contains(&module) {
            continue;
        }
        let text = source.product();
        for found in forbidden.iter().filter(|path| text.contains(*path)) {
            findings.error(format!(
                "{path} is in a pure module of {name} and must not use {found}: only {others:?} may"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURE: &str = "## Who may depend on whom\n\nWords.\n\n```text\ntypes\nstore\nserver -> store,\n          tls\ntls\n```\n";

    fn findings(used: &[(&str, &[&str])]) -> Vec<String> {
        let drawn = read(PICTURE).expect("a picture");
        let used = used.iter().map(|(from, ours)| {
            let ours = ours.iter().map(|name| (*name).to_owned());
            ((*from).to_owned(), ours.collect())
        });
        let mut findings = Findings::default();
        compare(&drawn, &used.collect(), &mut findings);
        findings.errors
    }

    #[test]
    fn undrawn_dependencies_and_unused_arrows_are_found() {
        let right: [(&str, &[&str]); 4] = [
            ("types", &[]),
            ("store", &["types"]),
            ("server", &["store", "tls", "types"]),
            ("tls", &[]),
        ];
        assert_eq!(findings(&right), Vec::<String>::new());
        let mut more = right;
        more[1].1 = &["tls"];
        assert!(findings(&more)[0].contains("store must not use tls"));
        let mut fewer = right;
        fewer[2].1 = &["store"];
        assert!(findings(&fewer)[0].contains("draws server -> tls"));
        assert!(findings(&right[..3])[0].contains("draws tls, which is not a crate"));
    }

    #[test]
    fn io_is_found_in_pure_modules_only() {
        let found = |path: &str, text: &str| {
            let source = Source {
                path: path.into(),
                text: text.to_owned(),
            };
            let mut findings = Findings::default();
            let libraries = ["serde_json", "tokio-postgres"];
            check_modules(&MOSTLY_PURE[0], &libraries, &[source], &mut findings);
            findings.errors.len()
        };
        let io = "use std::fs;\nuse tokio_postgres::Client;\nuse crate::telemetry::Sampler;\n";
        assert_eq!(found("crates/ngsi/src/rows/ids.rs", io), 3);
        assert_eq!(
            found("crates/ngsi/src/time.rs", "use serde_json::Value;\n"),
            0
        );
        for free in [
            "crates/ngsi/src/postgres.rs",
            "crates/ngsi/src/telemetry/sampler.rs",
            "crates/ngsi/tests/postgres/once.rs",
            "crates/worker/src/lib.rs",
        ] {
            assert_eq!(found(free, io), 0, "{free}");
        }
    }

    #[test]
    fn a_crate_that_is_not_drawn_is_found() {
        let all: [(&str, &[&str]); 5] = [
            ("types", &[]),
            ("store", &[]),
            ("server", &["store", "tls"]),
            ("tls", &[]),
            ("new", &[]),
        ];
        assert!(findings(&all)[0].contains("new is not in the picture"));
    }
}

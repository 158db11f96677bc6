//! Checks builds of the program with none of its optional parts, and with each alone; the workspace is built with all.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::process::{self, cargo, linted, shown};

/// An optional part of the program.
struct Part {
    /// Cargo feature of the part.
    feature: &'static str,
    /// Another feature that it needs; `None` for none.
    needs: Option<&'static str>,
    /// Packages that only builds with the part may depend on.
    packages: &'static [&'static str],
}

const PARTS: [Part; 5] = [
    Part {
        feature: "redis",
        needs: None,
        packages: &["ganger-dialect-resp"],
    },
    Part {
        feature: "qless",
        needs: Some("redis"),
        packages: &["sha1"],
    },
    Part {
        feature: "quantumleap",
        needs: None,
        packages: &[
            "ganger-dialect-quantumleap",
            "ganger-ngsi",
            "ganger-ngsi-worker",
            "yaml-rust2",
        ],
    },
    Part {
        feature: "dashboard",
        needs: None,
        packages: &["ganger-dashboard", "maud", "brotli"],
    },
    Part {
        feature: "postgres",
        needs: None,
        packages: &["ganger-store-postgres"],
    },
];

/// Argument that also runs the tests of a smaller build.
const TESTS: &str = "--tests";
/// Arguments that run the tests of a Redis port without qless, which must neither show nor remove data of qless. CI
/// omits them, since they need half of the workspace to be compiled again.
const TESTS_WITHOUT_QLESS: &str = "test -p ganger-dialect-resp --locked --no-default-features";

/// Checks and lints the program without its features and with each alone; fails if a build depends on a package that
/// only a missing part needs.
pub(crate) fn check() -> Result<()> {
    let alone = PARTS.iter().map(|part| part.feature);
    for features in std::iter::once("").chain(alone) {
        let choice = format!("-p ganger-cli --locked --no-default-features --features={features}");
        let mut check = linted(&format!("check {choice}"))?;
        println!("{}", shown(&check));
        process::run(&mut check)?;
        let mut tree = cargo();
        tree.args("tree --edges normal --prefix none --format {p}".split(' '));
        tree.args(choice.split(' '));
        let tree = process::output(&mut tree)?;
        let wrong = unwanted(features, &tree);
        if !wrong.is_empty() {
            bail!(
                "a build with the features {features:?} depends on {wrong:?}, which belong to missing parts"
            );
        }
    }
    Ok(())
}

/// Checks like CI, and runs the tests of a smaller build if requested.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => check(),
        [tests] if tests == TESTS => {
            check()?;
            process::run(&mut linted(TESTS_WITHOUT_QLESS)?)
        }
        other => bail!("features takes {TESTS} or nothing, not {other:?}"),
    }
}

/// Returns the packages in the output of `cargo tree` that belong to a part that is not built.
fn unwanted(feature: &str, tree: &str) -> Vec<&'static str> {
    let named = tree.lines().filter_map(|line| line.split(' ').next());
    let named: BTreeSet<&str> = named.collect();
    let needed = PARTS.iter().find(|part| part.feature == feature);
    let needed = needed.and_then(|part| part.needs);
    let missing = PARTS
        .iter()
        .filter(|part| part.feature != feature && Some(part.feature) != needed);
    let packages = missing.flat_map(|part| part.packages).copied();
    packages.filter(|package| named.contains(package)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_of_a_part_that_is_not_built_is_found() {
        let tree =
            "ganger-cli v0.1.0 (/ganger/crates/cli)\nganger-dialect-resp v0.1.0\nsha1 v0.10.7\n";
        assert_eq!(unwanted("", tree), ["ganger-dialect-resp", "sha1"]);
        assert_eq!(unwanted("redis", tree), ["sha1"]);
        assert_eq!(
            unwanted("quantumleap", tree),
            ["ganger-dialect-resp", "sha1"]
        );
        assert!(unwanted("qless", tree).is_empty());
    }
}

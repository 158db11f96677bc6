//! Keeps the names of external systems out of the core: raw keys and qless are known to modules called `external`.
//!
//! The rest of the core hands their calls, replies, changes and rows on without looking into them.

use std::path::Path;

use super::{Findings, Source};

/// The crates of the core.
const CORE: &[&str] = &[
    "types",
    "engine",
    "shard",
    "store",
    "store-embedded",
    "store-postgres",
];

/// Parts of names that only external systems have.
const NAMES: &[&str] = &["qless", "Qless", "KeyCall", "KeyRecord", "raw key"];

/// Files of the core that name them all the same: the root of `types`, which exports their types, the limits, and the
/// tests of the stored rows.
const EXCEPTIONS: &[&str] = &[
    "crates/types/src/lib.rs",
    "crates/types/src/limits.rs",
    "crates/store/src/suite.rs",
    "crates/store/src/encoding/commit.rs",
    "crates/store/src/encoding/tests.rs",
];

/// Reads the sources of the core.
pub(super) fn check(sources: &[Source], findings: &mut Findings) {
    for source in sources.iter().filter(|source| is_core(&source.path)) {
        let found = source.text.lines().zip(1..).find_map(|(line, number)| {
            let name = NAMES.iter().find(|name| line.contains(*name))?;
            Some((number, name))
        });
        if let Some((line, name)) = found {
            findings.error(format!(
                "{}:{line}: {name:?} is a name of an external system: move this to a module called external",
                source.path.display()
            ));
        }
    }
}

/// Whether this is a source of the core outside of the modules for external systems.
fn is_core(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let is_in = |krate: &&str| path.starts_with(&format!("crates/{krate}/src/"));
    path.ends_with(".rs")
        && CORE.iter().any(is_in)
        && !path.contains("/external")
        && !EXCEPTIONS.contains(&&*path)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn findings_of(path: &str, text: &str) -> usize {
        let source = Source {
            path: PathBuf::from(path),
            text: text.to_owned(),
        };
        let mut findings = Findings::default();
        check(&[source], &mut findings);
        findings.errors.len()
    }

    #[test]
    fn the_core_names_external_systems_in_their_modules_only() {
        let text = "use ganger_types::QlessRow;";
        assert_eq!(findings_of("crates/shard/src/core.rs", text), 1);
        assert_eq!(
            findings_of("crates/shard/src/core/external/pops.rs", text),
            0
        );
        assert_eq!(findings_of("crates/shard/tests/it/qless.rs", text), 0);
        assert_eq!(findings_of("crates/dialect-resp/src/lib.rs", text), 0);
        assert_eq!(
            findings_of("crates/engine/src/engine.rs", "use ganger_types::Job;"),
            0
        );
    }
}

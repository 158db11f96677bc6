//! Checks that every stable error code has a section in `docs/errors.md`, and that every section has an existing code.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::{Findings, Source};

/// File with the list of codes of refused commands.
const REJECTIONS: &str = "crates/types/src/rejection.rs";
/// Document with a section for each code.
const DOCUMENT: &str = "docs/errors.md";
/// Start of a list of codes in other files: `const CODES: ... = [...];`.
const LIST: &str = "const CODES:";
/// Call by which the command line makes a failure; the code is the first string after it.
const FAILURE: &str = "Failure::new(";
/// The same call inside the type itself.
const OWN_FAILURE: &str = "Self::new(Exit::";

/// Compares the lists in the sources with the headings of the document.
pub(super) fn check(sources: &[Source], findings: &mut Findings) -> Result<()> {
    let document = sources
        .iter()
        .find(|source| source.path.ends_with(DOCUMENT))
        .context("docs/errors.md is missing")?;
    let documented = headings(&document.text);
    let mut known = BTreeSet::new();
    for source in sources
        .iter()
        .filter(|source| source.is("rs") && source.path.starts_with("crates"))
    {
        let mut codes = listed(&source.text);
        if source.path.starts_with("crates/commands/src") {
            codes.extend(made(&source.text));
        }
        if source.path.ends_with(REJECTIONS) {
            for code in codes.iter().filter(|code| !used(&source.text, code)) {
                findings.error(format!(
                    "{REJECTIONS}: CODES lists {code}, which no rejection has"
                ));
            }
        }
        for code in codes {
            if !documented.contains(&code) {
                findings.error(format!(
                    "{DOCUMENT} has no section `## {code}`, which {} lists",
                    source.path.display()
                ));
            }
            known.insert(code);
        }
    }
    for code in documented.difference(&known) {
        findings.error(format!(
            "{DOCUMENT} explains {code}, which no list of codes has"
        ));
    }
    Ok(())
}

/// Returns the codes in a file's list, if it has one; other strings in the list, such as titles, are ignored.
fn listed(text: &str) -> BTreeSet<String> {
    let Some(start) = text.find(LIST) else {
        return BTreeSet::new();
    };
    let list = &text[start..];
    let list = &list[list.find('=').unwrap_or(0)..];
    let list = &list[..list.find("];").unwrap_or(list.len())];
    let strings = list.split('"').skip(1).step_by(2);
    strings
        .filter(|text| is_code(text))
        .map(str::to_owned)
        .collect()
}

/// Returns the codes of the failures that a file of the command line makes.
fn made(text: &str) -> BTreeSet<String> {
    let calls = [FAILURE, OWN_FAILURE]
        .into_iter()
        .flat_map(|call| text.split(call).skip(1));
    let code = |call: &str| {
        let call = &call[..call.find(';').unwrap_or(call.len())];
        call.split('"').nth(1).map(str::to_owned)
    };
    calls
        .filter_map(code)
        .filter(|code| is_code(code))
        .collect()
}

fn is_code(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// Whether a code occurs outside of the list.
fn used(text: &str, code: &str) -> bool {
    text.matches(&format!("\"{code}\"")).count() > 1
}

/// Returns the codes that have a section: headings of the form ``## `code` ``.
fn headings(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.strip_prefix("## `"))
        .filter_map(|rest| rest.split('`').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{headings, listed, made};

    #[test]
    fn the_codes_of_the_command_line_are_found() {
        let text = "Err(Failure::new(Exit::NotFound, \"group_not_found\", message)\n    .then(\"see `x`\"))";
        assert_eq!(
            made(text).into_iter().collect::<Vec<_>>(),
            ["group_not_found"]
        );
        let text = "Self::new(Exit::Usage, \"file\", format!(\"{}\", path));";
        assert_eq!(made(text).into_iter().collect::<Vec<_>>(), ["file"]);
        assert!(
            made("fn new(exit: Exit, code: &str) { Failure::new(exit, code, words); }").is_empty()
        );
    }

    #[test]
    fn the_list_and_the_headings_are_read() {
        let list = listed(
            "pub const CODES: [&'static str; 2] = [\n    (\"a\", \"Title\"),\n    \"b\",\n];\n\"c\"",
        );
        assert_eq!(list.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        let found = headings("# Errors\n\n## `a`\n\ntext\n\n## Others\n");
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["a"]);
    }
}

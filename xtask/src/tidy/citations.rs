//! Checks that every invariant cited by a comment or a test's name, `rel L5` or `rel_l5_...`, has a row in
//! `docs/reliability.md`.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::{Findings, Source};

const DOCUMENT: &str = "docs/reliability.md";

/// Compares the citations in sources and documents with the rows of the document.
pub(super) fn check(sources: &[Source], findings: &mut Findings) -> Result<()> {
    let document = sources
        .iter()
        .find(|source| source.path.ends_with(DOCUMENT))
        .context("docs/reliability.md is missing")?;
    let rows: BTreeSet<String> = document
        .text
        .lines()
        .filter_map(|line| line.strip_prefix("| "))
        .filter_map(number)
        .collect();
    let is_read = |source: &&Source| source.is("rs") || source.is("md");
    for source in sources.iter().filter(is_read) {
        for (index, line) in source.text.lines().enumerate() {
            for cited in citations(line).filter(|cited| !rows.contains(cited)) {
                let (path, line) = (source.path.display(), index + 1);
                findings.error(format!("{path}:{line}: {DOCUMENT} has no row {cited}"));
            }
        }
    }
    Ok(())
}

/// Returns the numbers that a line cites, in capitals.
fn citations(line: &str) -> impl Iterator<Item = String> {
    ["rel ", "rel_"].into_iter().flat_map(move |mark| {
        line.match_indices(mark)
            .filter(|(at, _)| {
                let before = line[..*at].chars().next_back();
                !before.is_some_and(char::is_alphanumeric)
            })
            .filter_map(move |(at, _)| number(&line[at + mark.len()..].to_ascii_uppercase()))
    })
}

/// Returns the number at the start of a text: a capital letter and digits, not followed by a letter.
fn number(text: &str) -> Option<String> {
    let first = text.chars().next().filter(char::is_ascii_uppercase)?;
    let digits: String = text[1..].chars().take_while(char::is_ascii_digit).collect();
    let after = text[1 + digits.len()..].chars().next();
    let is_whole = !digits.is_empty() && !after.is_some_and(char::is_alphanumeric);
    is_whole.then(|| format!("{first}{digits}"))
}

#[cfg(test)]
mod tests {
    use super::citations;

    #[test]
    fn comments_and_names_of_tests_cite() {
        let cited = |line| citations(line).collect::<Vec<_>>();
        assert_eq!(cited("// It may not (`rel L5`)."), ["L5"]);
        assert_eq!(cited("fn rel_g4_g5_a_failure() {"), ["G4"]);
        assert!(cited("a barrel L5, a rel_ease, rel Ab").is_empty());
    }
}

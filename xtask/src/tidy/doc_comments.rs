//! Refuses doc comments that are too short to give a meaning, a unit, a range, or what absence means.

use super::{Findings, Source};

/// Number of words that a doc comment has at least.
const WORDS_MIN: usize = 4;

/// Looks at every doc comment of every Rust source.
pub(super) fn check(sources: &[Source], findings: &mut Findings) {
    for source in sources.iter().filter(|source| source.is("rs")) {
        for (line, text) in doc_comments(&source.text) {
            if text.split_whitespace().count() < WORDS_MIN {
                findings.error(format!(
                    "{}:{line}: the doc comment {text:?} is too short: give meaning, unit, range, or what absence means",
                    source.path.display()
                ));
            }
        }
    }
}

/// Returns the doc comments of items, each with the number of its first line and its lines joined by spaces.
fn doc_comments(text: &str) -> Vec<(usize, String)> {
    let mut comments: Vec<(usize, String)> = Vec::new();
    let mut follows = false;
    for (line, number) in text.lines().zip(1..) {
        let Some(words) = line.trim_start().strip_prefix("///") else {
            follows = false;
            continue;
        };
        match comments.last_mut() {
            Some((_, comment)) if follows => {
                comment.push(' ');
                comment.push_str(words.trim());
            }
            _ => comments.push((number, words.trim().to_owned())),
        }
        follows = true;
    }
    comments
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn only_a_comment_of_three_words_or_fewer_is_too_short() {
        let lines = [
            "/// The job.",
            "job: u32,",
            "    /// Number of attempts,",
            "    /// from 1.",
            "    attempts: u32,",
            "// Not a doc comment.",
            "/// It has three.",
        ];
        let source = Source {
            path: PathBuf::from("crates/some/src/lib.rs"),
            text: lines.join("\n"),
        };
        let mut findings = Findings::default();
        check(&[source], &mut findings);
        let [first, second] = &*findings.errors else {
            panic!("{:?}", findings.errors);
        };
        assert!(first.starts_with("crates/some/src/lib.rs:1: "), "{first}");
        assert!(second.starts_with("crates/some/src/lib.rs:7: "), "{second}");
    }
}

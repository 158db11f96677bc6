//! Checks the text of sources: ASCII only, no marks of unfinished work, no ignored tests, meaningful file names.

use super::{Findings, Source};

/// Marks of unfinished work, each in two parts so that this file does not match itself.
const UNFINISHED_MARKS: &[(&str, &str)] = &[
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("to", "do!("),
    ("unimple", "mented!("),
    ("#[ign", "ore"),
    ("dbg", "!("),
];

/// File names that do not describe the content.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "manager", "misc"];

/// Reads every line of every source.
pub(super) fn check(sources: &[Source], findings: &mut Findings) {
    for source in sources {
        if source.is("rs")
            && let Some(name) = source.path.file_stem().and_then(|stem| stem.to_str())
            && EMPTY_NAMES.contains(&name)
        {
            findings.error(format!(
                "{}: the name does not describe the content",
                source.path.display()
            ));
        }
        for (index, line) in source.text.lines().enumerate() {
            check_line(source, index + 1, line, findings);
        }
    }
}

fn check_line(source: &Source, number: usize, line: &str, findings: &mut Findings) {
    let path = source.path.display();
    if !source.is("md")
        && let Some(found) = line.chars().find(|c| !c.is_ascii())
    {
        findings.error(format!(
            "{path}:{number}: {found:?} is not ASCII: write it as an escape, or in ASCII"
        ));
    }
    let is_code = source.is("rs") || source.is("proto") || source.is("sh");
    for (first, second) in UNFINISHED_MARKS.iter().filter(|_| is_code) {
        let word = format!("{first}{second}");
        if contains_word(line, &word) {
            findings.error(format!(
                "{path}:{number}: {word}: do it, or file it and say nothing here"
            ));
        }
    }
}

/// Whether `line` contains `word`, not as a part of a longer word.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
        !is_part(before) && (word.ends_with(['(', '[']) || !is_part(after))
    })
}

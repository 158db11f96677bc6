//! Words: ASCII in sources, nothing left for later, no ignored test, one word per thing.

use super::{Findings, Source};

/// Left for later, which must not be: each is written in two parts, or this file would find itself.
const LATER: &[(&str, &str)] = &[
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("to", "do!("),
    ("unimple", "mented!("),
    ("#[ign", "ore"),
    ("dbg", "!("),
];

/// Other systems' words for our things, with ours. Held in the crates that speak only our own language.
const FOREIGN: &[(&str, &str)] = &[
    ("dead_letter", "failed"),
    ("DeadLetter", "failed"),
    ("visibility_timeout", "lease"),
    ("VisibilityTimeout", "lease"),
    ("nack", "release or fail"),
    ("requeue", "release or retry"),
    ("dequeue", "lease"),
    ("heartbeat", "renew"),
    ("Heartbeat", "renew"),
    ("jobtype", "kind"),
    ("JobType", "kind"),
    ("workflow", "graph"),
    ("Workflow", "graph"),
    ("task_id", "job id"),
    ("TaskId", "JobId"),
    ("message_id", "job id"),
];

/// The crates that know no other system.
const OURS: &[&str] = &["types", "engine", "store", "store-embedded", "shard"];

/// Files in them, and folders, that are about another system and name its words.
const ABOUT_OTHERS: &[&str] = &["qless", "qless.rs"];

/// File names that say nothing.
const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "manager", "misc"];

/// Reads every line of every source.
pub(super) fn check(sources: &[Source], findings: &mut Findings) {
    for source in sources {
        if source.is("rs")
            && let Some(name) = source.path.file_stem().and_then(|stem| stem.to_str())
            && EMPTY_NAMES.contains(&name)
        {
            findings.error(format!(
                "{}: the name says nothing: name the idea",
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
    for (first, second) in LATER.iter().filter(|_| is_code) {
        let word = format!("{first}{second}");
        if contains_word(line, &word) {
            findings.error(format!(
                "{path}:{number}: {word}: do it, or file it and say nothing here"
            ));
        }
    }
    let is_ours = source.is("rs")
        && !source
            .path
            .iter()
            .any(|part| ABOUT_OTHERS.iter().any(|name| part == *name))
        && OURS
            .iter()
            .any(|folder| source.path.starts_with(format!("crates/{folder}")));
    for (foreign, ours) in FOREIGN.iter().filter(|_| is_ours) {
        if contains_word(line, foreign) {
            findings.error(format!("{path}:{number}: our word for {foreign} is {ours}"));
        }
    }
}

/// Whether `word` stands in `line`, not as a part of a longer word.
fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
        !is_part(before) && (word.ends_with(['(', '[']) || !is_part(after))
    })
}

#[cfg(test)]
mod tests {
    use super::contains_word;

    #[test]
    fn a_word_inside_a_longer_one_is_not_found() {
        assert!(contains_word("a task_id here", "task_id"));
        assert!(!contains_word("multitask_id", "task_id"));
        assert!(!contains_word("snackbar nacked", "nack"));
    }
}

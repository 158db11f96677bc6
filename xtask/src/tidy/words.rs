//! Checks that sources and documents use one word per thing, and plain English.
//!
//! The words are those of the glossary in ARCHITECTURE.md. A dialect keeps the words of its own system.

use super::{Findings, Source};

/// Words to avoid for ganger's own terms, each with its replacement.
const TERMS: &[(&str, &str)] = &[
    ("upstream", "dependency"),
    ("upstreams", "dependencies"),
    ("Upstream", "Dependency"),
    ("revive", "retry"),
    ("revives", "retries"),
    ("revived", "retried"),
    ("revival", "retry"),
    ("Revive", "Retry"),
    ("goodbye", "deregister"),
    ("Goodbye", "DeregisterWorker"),
    ("ClaimKey", "IdempotencyKey"),
    ("ClaimRecord", "IdempotencyRecord"),
    ("call_off", "cancel"),
    ("called_off", "cancelled"),
    ("deaths_max", "lease_expirations_in_a_row_max"),
    ("losses_max", "lease_expirations_max"),
];

/// Words that plain English avoids, each with its replacement.
const PROSE: &[(&str, &str)] = &[
    ("shall", "will, must or should"),
    ("whoever", "the client, caller or worker that"),
    ("Whoever", "the client, caller or worker that"),
    ("anew", "again"),
    ("for ever", "forever"),
    ("call off", "cancel"),
    ("calls off", "cancels"),
    ("called off", "cancelled"),
    ("called back", "revoked"),
];

/// Words of other systems, each with ganger's term. Only the crates in [`OURS`] must not use them.
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

/// Crates that are independent of other systems.
const OURS: &[&str] = &[
    "types",
    "engine",
    "store",
    "store-embedded",
    "store-postgres",
    "shard",
];

/// Directories and files, by their whole name, that are about another system and use its words.
const FOREIGN_PATHS: &[&str] = &[
    "qless",
    "qless.rs",
    "qless.md",
    "redis.md",
    "quantumleap",
    "quantumleap.rs",
    "quantumleap.md",
    "dialect-quantumleap",
    "dialect-resp",
];

/// Exceptions: a column of the stored inputs keeps its name from the first format.
const EXCEPTIONS: &[(&str, &str)] = &[("crates/store-embedded", "upstream")];

/// Checks every line of the sources and documents except this file.
pub(super) fn check(sources: &[Source], findings: &mut Findings) {
    let is_read = |source: &&Source| {
        ["rs", "proto", "md"].iter().any(|kind| source.is(kind))
            && !source.path.ends_with("xtask/src/tidy/words.rs")
    };
    for source in sources.iter().filter(is_read) {
        let lists = lists(source);
        for (index, line) in source.text.lines().enumerate() {
            for (word, ours) in lists.iter().copied().flatten() {
                if contains_word(line, word) && !is_kept(source, word) {
                    let (path, number) = (source.path.display(), index + 1);
                    findings.error(format!("{path}:{number}: instead of {word:?} write {ours}"));
                }
            }
        }
    }
}

/// Returns the lists that apply to a file.
fn lists(source: &Source) -> Vec<&'static [(&'static str, &'static str)]> {
    let is_about_others = source
        .path
        .iter()
        .any(|part| FOREIGN_PATHS.iter().any(|name| part == *name));
    let is_ours = source.is("rs")
        && OURS
            .iter()
            .any(|directory| source.path.starts_with(format!("crates/{directory}")));
    // The glossary lists the words of other systems.
    let is_glossary = source.path.ends_with("ARCHITECTURE.md");
    let mut lists = vec![PROSE];
    if !is_about_others && !is_glossary {
        lists.push(TERMS);
        if is_ours {
            lists.push(FOREIGN);
        }
    }
    lists
}

fn is_kept(source: &Source, word: &str) -> bool {
    EXCEPTIONS
        .iter()
        .any(|(place, kept)| *kept == word && source.path.starts_with(place))
}

/// Whether `line` contains `word`, not as a part of a longer word. An underscore ends a word.
fn contains_word(line: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphabetic());
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !is_part(before) && !is_part(after)
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let source = Source {
            path: PathBuf::from(path),
            text: text.to_owned(),
        };
        let mut findings = Findings::default();
        check(&[source], &mut findings);
        findings.errors
    }

    #[test]
    fn a_word_inside_a_longer_one_is_not_found() {
        assert!(contains_word("a task_id here", "task_id"));
        assert!(!contains_word("multitask_id", "task_id"));
        assert!(!contains_word("snackbar nacked", "nack"));
        assert!(!contains_word("the marshalled value", "shall"));
    }

    #[test]
    fn a_word_of_another_system_is_found_in_code_schema_and_documents() {
        for path in [
            "crates/commands/src/a.rs",
            "crates/proto/a.proto",
            "docs/http.md",
            "README.md",
        ] {
            let errors = found(path, "one line\na job that is revived\n");
            assert_eq!(errors.len(), 1, "{path}: {errors:?}");
            assert!(
                errors[0].contains(":2:") && errors[0].contains("retried"),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn a_dialect_keeps_its_systems_words_but_not_old_english() {
        assert!(found("docs/qless.md", "an upstream").is_empty());
        assert_eq!(found("docs/qless.md", "it shall").len(), 1);
        assert!(found("crates/commands/src/a.rs", "a heartbeat").is_empty());
        assert_eq!(found("crates/engine/src/a.rs", "a heartbeat").len(), 1);
        assert!(found("crates/store-embedded/src/a.rs", "SELECT upstream").is_empty());
    }
}

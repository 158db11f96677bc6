//! Checks that each commit says in its subject what it changes, and in its body why.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Findings;
use crate::process::root;

/// Newest commit from before the rule; it and older ones are not checked.
const RULE_BEGAN_AFTER: &str = "d8dcfa1f9064fa587b8f82672724f77bf2cefdfb";

/// Minimum number of words in a body: fewer give no reason.
const BODY_WORDS_MIN: usize = 6;
/// Maximum number of characters of a subject; longer ones are cut in lists.
const SUBJECT_MAX: usize = 100;

/// Checks the commits since the rule began. A copy without that history, such as a shallow clone or an archive, is
/// reported and not checked.
pub(super) fn check(findings: &mut Findings) -> Result<()> {
    let known = git(&["cat-file", "-e", &format!("{RULE_BEGAN_AFTER}^{{commit}}")])?;
    if known.is_none() {
        findings
            .remark("commits are not checked: this copy has no history up to the first that is");
        return Ok(());
    }
    let range = format!("{RULE_BEGAN_AFTER}..HEAD");
    let log = git(&["log", "--no-merges", "--format=%h%x1f%s%x1f%b%x1e", &range])?;
    let log = log.context("git cannot list the commits")?;
    for commit in log
        .split('\x1e')
        .map(str::trim)
        .filter(|one| !one.is_empty())
    {
        let parts: Vec<&str> = commit.splitn(3, '\x1f').collect();
        ensure!(
            parts.len() == 3,
            "a commit without its three parts: {commit}"
        );
        for fault in faults(parts[1], parts[2]) {
            findings.error(format!("commit {} ({}): {fault}", parts[0], parts[1]));
        }
    }
    Ok(())
}

fn faults(subject: &str, body: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if subject.chars().count() > SUBJECT_MAX {
        faults.push(format!(
            "the subject has more than {SUBJECT_MAX} characters: move details to the body"
        ));
    }
    let part = subject.split_once(": ").map(|(part, _)| part);
    if part.is_none_or(|part| {
        part.is_empty() || part.contains(char::is_whitespace) && !part.contains(',')
    }) {
        faults.push(
            "the subject does not begin with the part of the project, as in `engine: what`"
                .to_owned(),
        );
    }
    let words = body.split_whitespace().count();
    if words < BODY_WORDS_MIN {
        faults.push(format!(
            "the body has {words} words, the minimum is {BODY_WORDS_MIN}: say what was wrong for whom, why this way, and which test shows it"
        ));
    }
    faults
}

/// Returns the output of a git command; `None` if it fails, for example because git or the repository is missing.
fn git(arguments: &[&str]) -> Result<Option<String>> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(Some(String::from_utf8(output.stdout)?)),
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::faults;

    #[test]
    fn a_commit_says_what_and_why() {
        let body = "A lease that expired was reported as lost. Shown by lease::expired.";
        assert!(faults("engine: an expired lease is reported so", body).is_empty());
        assert!(faults("types, store: one name for a lease", body).is_empty());
        assert_eq!(
            faults("engine: an expired lease is reported so", "").len(),
            1
        );
        assert_eq!(faults("Fix lease", body).len(), 1);
        assert_eq!(
            faults(&format!("engine: {}", "x".repeat(100)), "Lint.").len(),
            2
        );
    }
}

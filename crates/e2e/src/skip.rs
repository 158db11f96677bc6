//! Saying aloud that a test was skipped, and why.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Notes that `test` does not run here. Printed, and added to the file named by `GANGER_SKIPS`, which CI lists at its
/// end: a runner hides what a passing test prints, and a skip must not be hidden.
#[expect(
    clippy::print_stdout,
    reason = "the note is for the person who runs the test"
)]
pub fn note_skip(test: &str, reason: &str) {
    let line = format!("skipped: {test}: {reason}");
    println!("{line}");
    if let Some(path) = env::var_os("GANGER_SKIPS")
        && let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path)
    {
        // Losing the note must not fail a test that has nothing to say.
        let _ = writeln!(file, "{line}");
    }
}

//! Records skipped tests.

use std::env;
use std::fs::OpenOptions;
use std::io::Write as _;

/// Prints that `test` is skipped, and appends it to the file that `GANGER_SKIPS` names. CI lists that file at its end,
/// because test runners hide the output of passing tests.
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
        // A lost note must not fail the test.
        let _ = writeln!(file, "{line}");
    }
}

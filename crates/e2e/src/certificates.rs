//! An authority and certificates for tests, made as the documents say.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

/// Creates an authority in a directory, and the certificates that each of these lists of arguments of `scripts/test-ca`
/// asks for; false if that is impossible here.
pub fn make_certificates(directory: &Path, wanted: &[&[&str]]) -> Result<bool> {
    let makes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/test-ca");
    for words in wanted {
        let made = Command::new(&makes).arg(directory).args(*words).output()?;
        if !made.status.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

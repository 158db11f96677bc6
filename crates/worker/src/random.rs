//! Random numbers from the system.

use std::io;

/// Eight random bytes as a number.
pub(crate) fn number() -> io::Result<u64> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(u64::from_ne_bytes(random))
}

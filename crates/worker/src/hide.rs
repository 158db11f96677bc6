//! Removes the worker's secrets from `/proc/PID/environ`, where programs of root could read them.
#![expect(
    unsafe_code,
    reason = "the environment of a process has no safe interface for writing"
)]

use std::ops::Range;

/// Maximum plausible bytes of an environment; a larger range was misread.
const BYTES_MAX: usize = 8 << 20;

/// Copies the environment of this process to its heap, and overwrites the memory that the kernel shows to others.
/// Variables keep their values.
///
/// Must be called before any thread exists.
pub fn hide_environment() {
    let Some(shown) = shown() else {
        return;
    };
    for (name, value) in std::env::vars_os() {
        if name.as_encoded_bytes().contains(&b'=') {
            // Such a name cannot be set or read.
            continue;
        }
        // SAFETY: there is one thread, as the caller promises. Removed first, so that the value is copied for sure.
        unsafe {
            std::env::remove_var(&name);
            std::env::set_var(&name, &value);
        }
    }
    // SAFETY: the kernel has put the first environment there, in writable memory that lasts as long as the process.
    // What the list of variables points at has just been copied elsewhere, and there is no other thread.
    unsafe {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(shown.start);
        std::ptr::write_bytes(start, 0, shown.len());
    }
}

/// Returns the address range that the kernel shows as the environment.
fn shown() -> Option<Range<usize>> {
    let line = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program is in parentheses and may hold anything; the third field follows it.
    let (_, fields) = line.rsplit_once(')')?;
    let mut addresses = fields.split_ascii_whitespace().skip(50 - 3);
    let start = addresses.next()?.parse().ok()?;
    let end = addresses.next()?.parse().ok()?;
    let is_sane = start != 0 && start < end && end - start <= BYTES_MAX;
    is_sane.then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_range_of_the_environment_is_found() {
        let shown = shown().expect("this process has an environment");
        let read = std::fs::read("/proc/self/environ").expect("our own");
        assert_eq!(shown.len(), read.len());
    }
}

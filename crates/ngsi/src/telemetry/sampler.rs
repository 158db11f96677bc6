//! Buffers samples and writes them to files, which are complete when they become visible.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::telemetry::error::TelemetryError;

/// Size of the buffer in bytes beyond which it is written.
pub const BUFFER_BYTES_MAX: usize = 1 << 20;

const HEADER: &str = "Timepoint,Measurement,Label,PID\n";

/// Collects samples of one kind. It can be shared by threads.
///
/// The buffer is written when it exceeds [`BUFFER_BYTES_MAX`], on [`Self::flush`], and when the sampler is dropped. A
/// killed process loses its buffered samples.
#[derive(Debug)]
pub struct Sampler {
    directory: PathBuf,
    prefix: &'static str,
    process: u32,
    /// Samples not yet written, as whole lines.
    buffer: Mutex<String>,
}

impl Sampler {
    /// Creates a sampler for files `<prefix>.<32 hexadecimal digits>.csv` in a directory, which is created if missing.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn open(directory: &Path, prefix: &'static str) -> Result<Self, TelemetryError> {
        fs::create_dir_all(directory)
            .map_err(|error| TelemetryError::new("create the directory", directory, &error))?;
        Ok(Self {
            directory: directory.to_owned(),
            prefix,
            process: std::process::id(),
            buffer: Mutex::default(),
        })
    }

    /// Adds a sample, taken now, to the series `label`.
    ///
    /// # Errors
    /// If the buffer was full and could not be written.
    pub fn sample(&self, label: &str, measurement: f64) -> Result<(), TelemetryError> {
        let at = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos();
        let mut buffer = self.lock_buffer();
        write!(buffer, "{at},{measurement},").expect("strings take everything");
        push_field(&mut buffer, label);
        writeln!(buffer, ",{}", self.process).expect("strings take everything");
        if buffer.len() <= BUFFER_BYTES_MAX {
            return Ok(());
        }
        let lines = std::mem::take(&mut *buffer);
        drop(buffer);
        self.write(&lines)
    }

    /// Writes the buffered samples to a new file; creates no file if there are none.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn flush(&self) -> Result<(), TelemetryError> {
        let lines = std::mem::take(&mut *self.lock_buffer());
        if lines.is_empty() {
            return Ok(());
        }
        self.write(&lines)
    }

    fn write(&self, lines: &str) -> Result<(), TelemetryError> {
        let name = format!("{}.{}", self.prefix, random_name(&self.directory)?);
        let unfinished = self.directory.join(format!("{name}.tmp"));
        let finished = self.directory.join(format!("{name}.csv"));
        let content = [HEADER, lines].concat();
        fs::write(&unfinished, content)
            .map_err(|error| TelemetryError::new("write", &unfinished, &error))?;
        fs::rename(&unfinished, &finished)
            .map_err(|error| TelemetryError::new("rename", &unfinished, &error))
    }

    fn lock_buffer(&self) -> MutexGuard<'_, String> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // A caller that needs the error calls `flush` first.
        let _ = self.flush();
    }
}

/// Returns 32 random hexadecimal digits for a unique file name.
fn random_name(directory: &Path) -> Result<String, TelemetryError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| TelemetryError::new("name a file in", directory, &error))?;
    let mut name = String::with_capacity(32);
    for byte in bytes {
        write!(name, "{byte:02x}").expect("strings take everything");
    }
    Ok(name)
}

/// Writes a CSV field, in quotes only if needed.
fn push_field(out: &mut String, field: &str) {
    if !field.contains([',', '"', '\n', '\r']) {
        out.push_str(field);
        return;
    }
    out.push('"');
    out.push_str(&field.replace('"', "\"\""));
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(directory).expect("readable");
        let read = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().expect("plain");
            (name, fs::read_to_string(entry.path()).expect("readable"))
        };
        entries
            .map(|entry| read(entry.expect("readable")))
            .collect()
    }

    #[test]
    fn a_file_has_the_header_and_a_line_for_each_sample() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path().join("made/as/needed");
        let sampler = Sampler::open(&directory, "duration").expect("made");
        sampler.flush().expect("nothing to write");
        assert!(files(&directory).is_empty());
        sampler.sample("/v2/notify [POST]", 0.25).expect("gathered");
        sampler.sample("a \"b\", c", 3.0).expect("gathered");
        sampler.flush().expect("written");

        let files = files(&directory);
        let [(name, text)] = files.as_slice() else {
            panic!("one file: {files:?}");
        };
        let middle = name.strip_prefix("duration.").expect("the prefix");
        let middle = middle.strip_suffix(".csv").expect("complete");
        assert!(middle.len() == 32 && middle.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Timepoint,Measurement,Label,PID");
        let process = std::process::id();
        let (at, rest) = lines[1].split_once(',').expect("fields");
        assert!(at.parse::<u128>().expect("a number") > 1_600_000_000_000_000_000);
        assert_eq!(rest, format!("0.25,/v2/notify [POST],{process}"));
        let (_, rest) = lines[2].split_once(',').expect("fields");
        assert_eq!(rest, format!("3,\"a \"\"b\"\", c\",{process}"));
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn the_buffer_is_written_when_it_is_full_and_when_the_sampler_is_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let sampler = Sampler::open(directory.path(), "gauge").expect("made");
        let label = "x".repeat(1_000);
        for _ in 0..BUFFER_BYTES_MAX / 1_000 {
            sampler.sample(&label, 1.0).expect("gathered");
        }
        let written = files(directory.path());
        assert_eq!(written.len(), 1);
        assert!(written[0].1.len() > BUFFER_BYTES_MAX);
        sampler.sample("the last", 1.0).expect("gathered");
        drop(sampler);
        let written = files(directory.path());
        assert_eq!(written.len(), 2);
        assert!(written.iter().any(|(_, text)| text.contains("the last")));
    }

    #[test]
    fn files_may_be_removed_at_any_time() {
        let directory = tempfile::tempdir().expect("a directory");
        let sampler = Sampler::open(directory.path(), "duration").expect("made");
        for _ in 0..3 {
            sampler.sample("a", 1.0).expect("gathered");
            sampler.flush().expect("written");
            for (name, _) in files(directory.path()) {
                fs::remove_file(directory.path().join(name)).expect("removable");
            }
        }
    }

    #[test]
    fn a_missing_directory_is_an_error_and_later_samples_are_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path().join("d");
        let sampler = Sampler::open(&directory, "duration").expect("made");
        fs::remove_dir(&directory).expect("removable");
        sampler.sample("lost", 1.0).expect("gathered");
        let error = sampler.flush().expect_err("there is no directory");
        assert!(error.to_string().contains("write"), "{error}");
        fs::create_dir(&directory).expect("made");
        sampler.sample("kept", 1.0).expect("gathered");
        sampler.flush().expect("written");
        let files = files(&directory);
        assert!(
            files.len() == 1 && !files[0].1.contains("lost"),
            "{files:?}"
        );
    }
}

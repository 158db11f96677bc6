//! Captures a program's output within its limits: result, log, progress (`rel W4`).

use std::time::Duration;

use serde::Deserialize;

use crate::process::{Listener, Pipe};
use crate::text::{escape, excerpt};

/// Bytes of the log's end that a failure's message shows.
const TAIL_BYTES_MAX: usize = 4 << 10;
/// Maximum bytes of a line of progress.
const PROGRESS_LINE_BYTES_MAX: usize = 16 << 10;
/// Maximum number of the worker's notes in one log, for a program that writes invalid lines forever.
const NOTES_MAX: u32 = 20;
/// Maximum bytes of a line shown in the worker's own log.
const SHOWN_LINE_BYTES_MAX: usize = 1 << 10;

/// Output that is forwarded while a run lasts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CapturedOutput {
    /// Bytes of its log.
    Log(Vec<u8>),
    /// Progress in millionths, and a message.
    Progress(u32, String),
}

/// Function that receives the forwarded output.
pub(crate) type Sender = Box<dyn FnMut(CapturedOutput) + Send>;

/// Limits of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputLimits {
    pub(crate) result_bytes_max: u64,
    pub(crate) log_bytes_max: u64,
}

/// The captured output of one run.
pub(crate) struct OutputCapture {
    output_limits: OutputLimits,
    send: Sender,
    job_id: String,
    /// Standard output, up to its limit.
    pub(crate) output: Vec<u8>,
    output_dropped: u64,
    log_kept: u64,
    log_dropped: u64,
    tail: Vec<u8>,
    shown: Vec<u8>,
    progress: Vec<u8>,
    progress_is_overlong: bool,
    notes_left: u32,
}

impl OutputCapture {
    /// Creates the capture for the run of `task`, the name used in log lines.
    pub(crate) fn new(job_id: String, output_limits: OutputLimits, send: Sender) -> Self {
        Self {
            output_limits,
            send,
            job_id,
            output: Vec::new(),
            output_dropped: 0,
            log_kept: 0,
            log_dropped: 0,
            tail: Vec::new(),
            shown: Vec::new(),
            progress: Vec::new(),
            progress_is_overlong: false,
            notes_left: NOTES_MAX,
        }
    }

    /// Returns the bytes written to standard output if they exceed the limit of a result.
    pub(crate) fn output_overflow(&self) -> Option<u64> {
        let written = u64::try_from(self.output.len()).unwrap_or(u64::MAX) + self.output_dropped;
        (self.output_dropped > 0).then_some(written)
    }

    /// Maximum bytes of a result.
    pub(crate) fn result_bytes_max(&self) -> u64 {
        self.output_limits.result_bytes_max
    }

    /// Returns the end of the log, for a failure's message; empty if nothing was written.
    pub(crate) fn tail(&self) -> String {
        let mut tail = self.tail.as_slice();
        if tail.len() > TAIL_BYTES_MAX {
            tail = &tail[tail.len() - TAIL_BYTES_MAX..];
            // The tail begins with a whole line if it contains a line end.
            if let Some(end) = tail.iter().position(|byte| *byte == b'\n') {
                tail = &tail[end + 1..];
            }
        }
        String::from_utf8_lossy(tail.trim_ascii()).into_owned()
    }

    /// Notes what was dropped. Call it once, at the end.
    pub(crate) fn finish(&mut self) {
        // The last note, about what was dropped, is always written.
        self.notes_left += 1;
        self.show(b"", true);
        if !self.progress.is_empty() && !self.progress_is_overlong {
            let line = std::mem::take(&mut self.progress);
            self.progress_line(&line);
        }
        if self.log_dropped > 0 {
            let (dropped, limit) = (self.log_dropped, self.output_limits.log_bytes_max);
            self.note(&format!(
                "{dropped} bytes of log dropped: the limit is {limit} bytes"
            ));
        }
    }

    /// Adds a note of the worker to the log of the run.
    pub(crate) fn note(&mut self, text: &str) {
        let Some(left) = self.notes_left.checked_sub(1) else {
            return;
        };
        self.notes_left = left;
        tracing::warn!(job = %self.job_id, "{text}");
        (self.send)(CapturedOutput::Log(
            format!("\n[ganger: {text}]\n").into_bytes(),
        ));
    }

    fn capture_output(&mut self, bytes: &[u8]) {
        let limit = usize::try_from(self.output_limits.result_bytes_max).unwrap_or(usize::MAX);
        let room = limit.saturating_sub(self.output.len());
        let kept = &bytes[..bytes.len().min(room)];
        self.output.extend_from_slice(kept);
        self.output_dropped += u64::try_from(bytes.len() - kept.len()).unwrap_or(u64::MAX);
    }

    fn capture_log(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        if self.tail.len() > 4 * TAIL_BYTES_MAX {
            self.tail.drain(..self.tail.len() - 2 * TAIL_BYTES_MAX);
        }
        let room =
            usize::try_from(self.output_limits.log_bytes_max - self.log_kept).unwrap_or(usize::MAX);
        let kept = &bytes[..bytes.len().min(room)];
        self.log_dropped += u64::try_from(bytes.len() - kept.len()).unwrap_or(u64::MAX);
        if kept.is_empty() {
            return;
        }
        self.log_kept += u64::try_from(kept.len()).unwrap_or(u64::MAX);
        self.show(kept, false);
        (self.send)(CapturedOutput::Log(kept.to_vec()));
    }

    /// Writes whole lines to the worker's own log, each prefixed with its job, without terminal escapes.
    fn show(&mut self, bytes: &[u8], is_end: bool) {
        self.shown.extend_from_slice(bytes);
        let mut from = 0;
        while from < self.shown.len() {
            let rest = &self.shown[from..];
            let end = rest
                .iter()
                .take(SHOWN_LINE_BYTES_MAX)
                .position(|byte| *byte == b'\n');
            let (length, skip) = match end {
                Some(end) => (end, end + 1),
                None if rest.len() >= SHOWN_LINE_BYTES_MAX => {
                    (SHOWN_LINE_BYTES_MAX, SHOWN_LINE_BYTES_MAX)
                }
                None if is_end => (rest.len(), rest.len()),
                None => break,
            };
            tracing::info!(job = %self.job_id, "| {}", escape(&rest[..length]));
            from += skip;
        }
        self.shown.drain(..from);
    }

    fn capture_progress(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            self.progress.extend_from_slice(line);
            let line = std::mem::take(&mut self.progress);
            if std::mem::take(&mut self.progress_is_overlong)
                || line.len() > PROGRESS_LINE_BYTES_MAX
            {
                self.note("a line of progress is longer than 16 KiB and is ignored");
            } else {
                self.progress_line(&line);
            }
        }
        if self.progress.len() + bytes.len() > PROGRESS_LINE_BYTES_MAX {
            self.progress_is_overlong = true;
            self.progress.clear();
        } else {
            self.progress.extend_from_slice(bytes);
        }
    }

    fn progress_line(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        match serde_json::from_slice::<Line>(line) {
            Ok(Line { progress, message }) if (0.0..=1.0).contains(&progress) => {
                // A millionth of a second is a microsecond.
                let millionths = Duration::from_secs_f64(progress).as_micros();
                let millionths = u32::try_from(millionths).unwrap_or(1_000_000);
                (self.send)(CapturedOutput::Progress(millionths, message));
            }
            Ok(Line { progress, .. }) => {
                self.note(&format!(
                    "a progress of {progress} is ignored: it goes from 0 to 1"
                ));
            }
            Err(error) => {
                let line = excerpt(line, 100);
                self.note(&format!("a line of progress is ignored: {error}: {line}"));
            }
        }
    }
}

#[derive(Deserialize)]
struct Line {
    progress: f64,
    #[serde(default)]
    message: String,
}

impl Listener for OutputCapture {
    fn receive(&mut self, pipe: Pipe, bytes: &[u8]) {
        match pipe {
            Pipe::Output => self.capture_output(bytes),
            Pipe::Log => self.capture_log(bytes),
            Pipe::Progress => self.capture_progress(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn captured(limit: u64) -> (OutputCapture, Arc<Mutex<Vec<CapturedOutput>>>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let keep = Arc::clone(&sent);
        let output_limits = OutputLimits {
            result_bytes_max: limit,
            log_bytes_max: limit,
        };
        let keeps = Box::new(move |one| keep.lock().expect("nobody panics").push(one));
        (OutputCapture::new("1/x".into(), output_limits, keeps), sent)
    }

    fn log_of(sent: &Mutex<Vec<CapturedOutput>>) -> String {
        let sent = sent.lock().expect("nobody panics");
        let logs = sent.iter().filter_map(|one| match one {
            CapturedOutput::Log(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            CapturedOutput::Progress(..) => None,
        });
        logs.collect()
    }

    #[test]
    fn output_beyond_a_limit_is_dropped_and_counted() {
        let (mut captured, sent) = captured(4);
        captured.receive(Pipe::Output, b"123456");
        captured.receive(Pipe::Log, b"abc");
        captured.receive(Pipe::Log, b"defg");
        captured.finish();
        assert_eq!(captured.output_overflow(), Some(6));
        let log = log_of(&sent);
        assert!(
            log.starts_with("abcd") && log.contains("3 bytes of log dropped"),
            "{log}"
        );
        assert_eq!(captured.tail(), "abcdefg");
    }

    #[test]
    fn the_tail_of_a_long_log_begins_with_a_whole_line() {
        let (mut captured, _) = captured(1 << 20);
        for number in 0..5_000 {
            captured.receive(Pipe::Log, format!("line {number}\n").as_bytes());
        }
        let tail = captured.tail();
        assert!(
            tail.starts_with("line ") && tail.ends_with("line 4999"),
            "{tail}"
        );
        assert!(tail.len() <= TAIL_BYTES_MAX);
    }

    #[test]
    fn progress_may_come_in_pieces_and_a_bad_line_is_noted() {
        let (mut captured, sent) = captured(1 << 20);
        captured.receive(Pipe::Progress, b"{\"progress\": 0.4, \"mess");
        captured.receive(
            Pipe::Progress,
            b"age\": \"half\"}\nnonsense\n{\"progress\": 7}\n",
        );
        captured.receive(Pipe::Progress, &vec![b'x'; 100_000]);
        captured.receive(Pipe::Progress, b"\n{\"progress\": 1}");
        captured.finish();
        let log = log_of(&sent);
        assert!(
            log.contains("nonsense") && log.contains("0 to 1") && log.contains("16 KiB"),
            "{log}"
        );
        let sent = sent.lock().expect("nobody panics");
        assert!(sent.contains(&CapturedOutput::Progress(400_000, "half".into())));
        assert!(sent.contains(&CapturedOutput::Progress(1_000_000, String::new())));
    }
}

//! The log of a run and its trace hash.

use std::collections::VecDeque;
use std::fmt::Write as _;

use crate::rng::mix;

/// Maximum number of lines in the log.
const LINES_MAX: usize = 50;

/// What a run records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recording {
    /// Whether to log the last events as shortened text; slower. With `deep`, all events in full.
    pub log: bool,
    /// Whether to hash every byte of commands, answers and changes; slower.
    pub deep: bool,
}

/// The hash and the log of a run.
#[derive(Debug, Default)]
pub(crate) struct RunLog {
    recording: Recording,
    hash: u64,
    events: u64,
    lines: VecDeque<String>,
    scratch: String,
}

impl RunLog {
    pub(crate) fn new(recording: Recording) -> Self {
        Self {
            recording,
            ..Self::default()
        }
    }

    /// Counts an event and adds it to the hash.
    pub(crate) fn event(&mut self, world: u64, number: u64) {
        self.events += 1;
        self.hash = mix(self.hash ^ world.rotate_left(17) ^ number);
    }

    /// Adds all of a value to the hash, if `deep` is set.
    pub(crate) fn deep(&mut self, of: &dyn std::fmt::Debug) {
        if !self.recording.deep {
            return;
        }
        self.scratch.clear();
        write!(self.scratch, "{of:?}").expect("writing to a string");
        for chunk in self.scratch.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.hash = mix(self.hash ^ u64::from_le_bytes(word));
        }
    }

    /// Adds a line, which is only formatted if the log is recorded.
    pub(crate) fn tell(&mut self, world: u64, line: impl FnOnce() -> String) {
        if !self.recording.log {
            return;
        }
        let is_whole = self.recording.deep;
        if self.lines.len() == LINES_MAX && !is_whole {
            self.lines.pop_front();
        }
        let mut line = line();
        if line.len() > 600 && !is_whole {
            let end = (0..=600)
                .rev()
                .find(|end| line.is_char_boundary(*end))
                .unwrap_or(0);
            line.truncate(end);
            line.push_str("...");
        }
        self.lines.push_back(format!(
            "{:>14}.{:06} {line}",
            world / 1_000_000,
            world % 1_000_000
        ));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

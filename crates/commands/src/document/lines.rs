//! Reads a stream of jobs, one JSON document in each line.

use std::io::BufRead;

use ganger_client::NewJob;
use ganger_document::json;
use ganger_document::request::job::JobIn;

use super::convert::{self, AnyShard};
use super::problem::Problem;

/// Maximum bytes of a line; the limit on payloads is much lower.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Reads jobs line by line, with one line in memory at a time.
pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    number: usize,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
        }
    }

    /// Returns the number of the last line read, from 1.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Reads the next job; `None` at the end. Empty lines and lines that begin with `//` are skipped.
    pub(crate) fn next(&mut self) -> std::io::Result<Option<Result<NewJob, Problem>>> {
        loop {
            self.line.clear();
            let mut limited = std::io::Read::take(&mut self.input, LINE_BYTES_MAX + 1);
            if limited.read_until(b'\n', &mut self.line)? == 0 {
                return Ok(None);
            }
            self.number += 1;
            if u64::try_from(self.line.len()).is_ok_and(|length| length > LINE_BYTES_MAX) {
                let limit = LINE_BYTES_MAX >> 20;
                let problem = Problem::new(format!("the line is longer than {limit} MiB"));
                return Ok(Some(Err(problem.at_line(self.number))));
            }
            let text = self.line.trim_ascii();
            if !text.is_empty() && !text.starts_with(b"//") {
                let job = json::read::<JobIn>(text)
                    .and_then(|job| job.convert_alone(&AnyShard))
                    .map_err(Problem::from)
                    .and_then(convert::job);
                return Ok(Some(job.map_err(|problem| problem.at_line(self.number))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_line_by_line_and_errors_name_the_line() {
        let text =
            "{\"kind\":\"a\"}\n\n// note\n{\"kind\":\"b\",\"payload\":[1, 2]}\n{\"kind\":}\n";
        let mut lines = Lines::new(text.as_bytes());
        let mut next = || lines.next().expect("memory does not fail");
        assert_eq!(next().expect("first").expect("valid").kind, "a");
        let second = next().expect("second").expect("valid");
        assert_eq!(&second.payload[..], b"[1, 2]");
        let problem = next().expect("third").expect_err("no value");
        assert!(
            problem.to_string().starts_with("line 5, column 9"),
            "{problem}"
        );
        assert!(next().is_none());
    }
}

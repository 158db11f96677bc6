//! Log lines: text or JSON on standard error, control characters escaped.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::{Config, LogFormat};

/// Parses the filter of log lines.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    // The library computes positions in the trimmed directive and cuts the untrimmed one there, which misreads it or
    // panics in the middle of a character: so it gets directives without surrounding space.
    let trimmed: Vec<&str> = text.split(',').map(str::trim).collect();
    EnvFilter::builder()
        .parse(trimmed.join(","))
        .map_err(|error| format!("must be a level or directives, not {text:?}: {error}"))
}

/// Starts logging for the whole process. A second call changes nothing.
pub fn start_log(config: &Config) {
    let Ok(filter) = filter(&config.log) else {
        return;
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Escaped)
        .with_ansi(false);
    // An error means that the process has a logger already, as tests do.
    let _ = match config.log_format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}

/// Standard error with control characters escaped: text from jobs and clients must not control a terminal or forge a
/// line.
struct Escaped;

impl<'a> MakeWriter<'a> for Escaped {
    type Writer = Line<io::Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        Line(io::stderr())
    }
}

/// Receives one whole line with each write, as the subscriber sends them.
struct Line<W>(W);

impl<W: Write> Write for Line<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(escape(line).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn escape(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let (text, end) = text
        .strip_suffix('\n')
        .map_or((&*text, ""), |text| (text, "\n"));
    let mut out = String::with_capacity(text.len() + 1);
    for character in text.chars() {
        if character.is_control() {
            out.extend(character.escape_default());
        } else {
            out.push(character);
        }
    }
    out.push_str(end);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_around_directives_is_ignored() {
        let plain = filter("info,ganger_shard=debug").expect("two directives");
        let spaced = filter(" info ,\r\nganger_shard=debug ").expect("the same two");
        assert_eq!(spaced.to_string(), plain.to_string());
        assert!(filter("\r\n9\u{fffd}=99d").is_err());
    }

    #[test]
    fn control_characters_are_escaped_except_the_last_line_end() {
        let mut out = Vec::new();
        Line(&mut out)
            .write_all(b"a\nb\x1b[31m\x07 \xc2\x9b c\n")
            .expect("memory");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "a\\nb\\u{1b}[31m\\u{7} \\u{9b} c\n"
        );
    }
}

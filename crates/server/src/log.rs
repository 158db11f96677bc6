//! Log lines: text or JSON on standard error, control characters escaped.

use std::io::{self, Write};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::{Config, LogFormat};

/// Parses the filter of log lines: a level, directives such as `ganger_shard=debug`, or both, separated by commas.
pub(crate) fn filter(text: &str) -> Result<Targets, String> {
    let wrong = || {
        format!(
            "must be a level (off, error, warn, info, debug or trace) or directives such as \
             info,ganger_shard=debug, not {text:?}"
        )
    };
    let level = |text: &str| match text.trim() {
        "" => Err(wrong()),
        text => text.parse::<LevelFilter>().map_err(|_| wrong()),
    };
    let mut targets = Targets::new();
    for directive in text.split(',') {
        targets = match directive.split_once('=') {
            None => targets.with_default(level(directive)?),
            Some((target, of)) if is_module(target.trim()) => {
                targets.with_target(target.trim(), level(of)?)
            }
            Some(_) => return Err(wrong()),
        };
    }
    Ok(targets)
}

/// Whether this is the name of a crate or module, such as `ganger_shard::core`.
fn is_module(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    !text.is_empty() && text.chars().all(is_part)
}

/// Starts logging for the whole process. A second call changes nothing.
pub fn start_log(config: &Config) {
    let Ok(filter) = filter(&config.log) else {
        return;
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(Escaped)
        .with_ansi(false);
    let registry = tracing_subscriber::registry().with(filter);
    // An error means that the process has a logger already, as tests do.
    let _ = match config.log_format {
        LogFormat::Text => registry.with(lines).try_init(),
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).try_init(),
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
    use tracing::Level;

    use super::*;

    #[test]
    fn space_around_directives_is_ignored() {
        let plain = filter("info,ganger_shard=debug").expect("two directives");
        let spaced = filter(" info ,\r\nganger_shard = debug ").expect("the same two");
        assert_eq!(spaced, plain);
        assert!(plain.would_enable("ganger_shard::core", &Level::DEBUG));
        assert!(!plain.would_enable("ganger_engine", &Level::DEBUG));
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for text in [
            "",
            "inof",
            "info,",
            "=debug",
            "a b=debug",
            "\r\n9\u{fffd}=99d",
        ] {
            let error = filter(text).expect_err(text);
            assert!(error.contains("info,ganger_shard=debug"), "{error}");
        }
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

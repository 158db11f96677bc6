//! Hand-overs of shards from one node to another, as the log of a node shows them.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// Text of the line about a shard that another node serves now.
const SERVED: &str = "another node serves the shard";
/// Text of the line about a shard that nobody served in time.
const LATE: &str = "its new node does not serve it yet";

/// The hand-overs of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandOvers {
    /// Times for which a shard answered no request, in order.
    pub pauses: Vec<Duration>,
    /// Number of hand-overs after which the other node did not serve the shard in time.
    pub late: usize,
}

impl HandOvers {
    /// Reads the log of a node, or a part of it.
    ///
    /// The metrics of a node have the same times, but only as counts of a histogram, and the node hands its shards over
    /// while it stops, when nobody can read them any more.
    pub fn of_log(log: &str) -> Result<Self> {
        let pauses = log.lines().filter(|line| line.contains(SERVED));
        Ok(Self {
            pauses: pauses.map(pause).collect::<Result<_>>()?,
            late: log.lines().filter(|line| line.contains(LATE)).count(),
        })
    }
}

/// Reads the field `pause` of a line.
fn pause(line: &str) -> Result<Duration> {
    let after = line.split_once("pause=").map(|(_, after)| after);
    let word = after.and_then(|after| after.split_whitespace().next());
    let read = word.and_then(read_duration);
    read.with_context(|| format!("no pause in {line:?}"))
}

/// Reads a duration as `Debug` writes it, such as `12.5ms`; `None` if it is none.
fn read_duration(text: &str) -> Option<Duration> {
    let unit_at = text.find(|it: char| !it.is_ascii_digit() && it != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "\u{b5}s" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_read_in_every_unit_and_other_lines_are_not() -> Result<()> {
        let log = "12:00:00 INFO this node owns the shard shard=1\n\
                   12:00:01 INFO another node serves the shard shard=1 pause=41.5ms\n\
                   12:00:02 INFO another node serves the shard shard=2 pause=1.25s\n\
                   12:00:03 INFO another node serves the shard shard=3 pause=800\u{b5}s more=1\n\
                   12:00:04 WARN the shard was released, and its new node does not serve it yet shard=4\n";
        let expected = HandOvers {
            pauses: [41_500, 1_250_000, 800].map(Duration::from_micros).to_vec(),
            late: 1,
        };
        assert_eq!(HandOvers::of_log(log)?, expected);
        Ok(())
    }

    #[test]
    fn a_line_without_a_time_is_an_error() {
        assert!(HandOvers::of_log("another node serves the shard").is_err());
        assert!(HandOvers::of_log("another node serves the shard pause=soon").is_err());
    }

    #[test]
    fn a_duration_is_read_as_it_is_written() {
        for micros in [0, 7, 999, 1_000, 41_357, 999_999, 1_000_000, 61_000_001] {
            let duration = Duration::from_micros(micros);
            assert_eq!(read_duration(&format!("{duration:?}")), Some(duration));
        }
    }
}

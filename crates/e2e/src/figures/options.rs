//! The options of the program.

use anyhow::{Context as _, Result, bail, ensure};

/// The text that `--help` prints.
pub const USAGE: &str = "\
Measures how long failures and restarts of a cluster of three nodes over a private PostgreSQL stop a shard, and
whether jobs are lost then.

usage: cargo xtask bench-failover [OPTIONS]

  --only PART      only `takeover`, `handover` or `promotion`
  --kills N        kills of the node that owns a shard (100)
  --jobs N         jobs that wait in that shard (100000)
  --rounds N       rolling restarts of all nodes under load (10)
  --promotions N   promotions of a standby of the database under load (50)

GANGER_BIN names another program than target/release/ganger. The exit code is 1 if a job was lost, done twice or
stalled, or if a request failed in a rolling restart.";

/// What to measure, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The only part to measure; `None` for all.
    pub only: Option<Part>,
    /// Number of kills of the owner.
    pub kills: usize,
    /// Number of jobs that wait in the shard of a killed owner.
    pub jobs: usize,
    /// Number of rolling restarts of all nodes.
    pub rounds: usize,
    /// Number of promotions of a standby.
    pub promotions: usize,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The owner of a shard is killed, and another node takes the shard over.
    TakeOver,
    /// Nodes are restarted in order, and hand their shards over.
    HandOver,
    /// The primary of the database is killed, and a standby promoted.
    Promotion,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            only: None,
            kills: 100,
            jobs: 100_000,
            rounds: 10,
            promotions: 50,
        }
    }
}

impl Options {
    /// Reads the arguments; `None` if they ask for help.
    ///
    /// # Errors
    /// If an argument is unknown or has no value of its kind.
    pub fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            if matches!(argument.as_str(), "--help" | "-h") {
                return Ok(None);
            }
            let number = match argument.as_str() {
                "--only" => {
                    options.only = Some(Part::named(&value(&argument, arguments.next())?)?);
                    continue;
                }
                "--kills" => &mut options.kills,
                "--jobs" => &mut options.jobs,
                "--rounds" => &mut options.rounds,
                "--promotions" => &mut options.promotions,
                _ => bail!("{argument:?} is no option\n\n{USAGE}"),
            };
            let given = value(&argument, arguments.next())?;
            *number = given
                .parse()
                .with_context(|| format!("{argument}: {given:?}"))?;
            ensure!(*number > 0, "{argument} is 1 or more");
        }
        Ok(Some(options))
    }

    /// Whether this part is measured.
    pub(super) fn has(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

impl Part {
    fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "takeover" => Self::TakeOver,
            "handover" => Self::HandOver,
            "promotion" => Self::Promotion,
            _ => bail!("--only is `takeover`, `handover` or `promotion`, not {name:?}"),
        })
    }
}

fn value(argument: &str, value: Option<String>) -> Result<String> {
    value.with_context(|| format!("{argument} needs a value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Options>> {
        Options::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn without_arguments_everything_is_measured() -> Result<()> {
        let options = read("")?.context("no help")?;
        assert_eq!(options, Options::default());
        let parts = [Part::TakeOver, Part::HandOver, Part::Promotion];
        assert!(parts.iter().all(|part| options.has(*part)));
        Ok(())
    }

    #[test]
    fn counts_and_the_only_part_are_read() -> Result<()> {
        let line = "--kills 3 --jobs 5 --rounds 1 --promotions 2 --only handover";
        let expected = Options {
            only: Some(Part::HandOver),
            kills: 3,
            jobs: 5,
            rounds: 1,
            promotions: 2,
        };
        let options = read(line)?.context("no help")?;
        assert_eq!(options, expected);
        assert!(options.has(Part::HandOver) && !options.has(Part::Promotion));
        assert!(read("--kills 3 --help")?.is_none());
        Ok(())
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for line in [
            "--kills",
            "--kills many",
            "--kills 0",
            "--only all",
            "--only",
            "more",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }
}

//! What to measure: `--loads`, `--systems`, `--runs`, `--time`, `--ten-million`.

use anyhow::{Context as _, Result, bail, ensure};

use super::row::Load;
use super::system::System;

pub(super) const USAGE: &str = "\
usage: cargo xtask bench-peers [OPTIONS]

  --loads NAMES     loads to measure, separated by commas; all unless said otherwise
  --systems NAMES   systems to measure, separated by commas; all unless said otherwise
  --runs N          measure everything N times, the systems in turn, and print medians; 1 unless said otherwise
  --time SECONDS    duration of each measurement; 3 unless said otherwise
  --ten-million     measure the restart with 10,000,000 live jobs too

GANGER_BIN names another build of ganger to measure.";

/// The longest measurement, in seconds.
const SECONDS_MAX: u32 = 3_600;
/// The most runs, of which each takes minutes.
const RUNS_MAX: u32 = 100;

/// The choice of one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) loads: Vec<Load>,
    pub(super) systems: Vec<System>,
    pub(super) runs: u32,
    pub(super) seconds: u32,
    pub(super) is_ten_million: bool,
}

impl Options {
    /// Reads the arguments of the command.
    pub(super) fn read(arguments: &[&str]) -> Result<Self> {
        let mut options = Self {
            loads: Load::all(),
            systems: System::ALL.to_vec(),
            runs: 1,
            seconds: 3,
            is_ten_million: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} needs a value"))
            };
            match *word {
                "--loads" => {
                    options.loads = names(value()?, "load", Load::find, &Load::all(), |load| {
                        load.name()
                    })?;
                }
                "--systems" => {
                    options.systems =
                        names(value()?, "system", System::find, &System::ALL, |system| {
                            system.name()
                        })?;
                }
                "--runs" => options.runs = number(word, value()?, RUNS_MAX)?,
                "--time" => options.seconds = number(word, value()?, SECONDS_MAX)?,
                "--ten-million" => options.is_ten_million = true,
                other => bail!("`{other}` is no option of bench-peers\n\n{USAGE}"),
            }
        }
        Ok(options)
    }
}

/// A number from 1 to a limit.
fn number(option: &str, text: &str, max: u32) -> Result<u32> {
    let number = text.parse().ok();
    let number = number.filter(|number: &u32| (1..=max).contains(number));
    number.with_context(|| format!("{option} {text}: must be a number from 1 to {max}"))
}

fn names<T: Copy>(
    text: &str,
    what: &str,
    find: fn(&str) -> Option<T>,
    all: &[T],
    name: fn(T) -> &'static str,
) -> Result<Vec<T>> {
    let mut found = Vec::new();
    for word in text.split(',') {
        found.push(find(word).with_context(|| {
            let known: Vec<_> = all.iter().map(|one| name(*one)).collect();
            format!("`{word}` is no {what}: known are {}", known.join(", "))
        })?);
    }
    ensure!(!found.is_empty(), "no {what} given");
    Ok(found)
}

#[cfg(test)]
mod tests {
    use ganger_bench::Named;

    use super::*;

    #[test]
    fn a_choice_of_loads_and_systems_is_read() {
        let words = [
            "--loads",
            "M,e100",
            "--systems",
            "streams,redis",
            "--runs",
            "3",
        ];
        let options = Options::read(&words).expect("it is right");
        let loads = [Named::M, Named::E100].map(Load::Named);
        assert_eq!(options.loads, loads);
        assert_eq!(options.systems, [System::Streams, System::Redis]);
        assert_eq!((options.runs, options.seconds), (3, 3));
    }

    #[test]
    fn everything_is_measured_unless_something_is_chosen() {
        let options = Options::read(&[]).expect("it is right");
        assert_eq!(options.systems, System::ALL);
        assert_eq!(options.loads, Load::all());
    }

    #[test]
    fn mistakes_are_named() {
        let said = |words: &[&str]| Options::read(words).expect_err("it is wrong").to_string();
        assert!(said(&["--loads", "M,X"]).starts_with("`X` is no load: known are E1, E256"));
        assert!(said(&["--systems"]).contains("--systems needs a value"));
        assert!(said(&["--runs", "0"]).contains("from 1 to 100"));
        assert!(said(&["--fast"]).contains("`--fast` is no option"));
    }
}

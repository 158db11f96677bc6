//! When a schedule fires: intervals by arithmetic, cron expressions in their time zone.
//!
//! Daylight saving: a local time that a change day skips fires at the moment after the gap; one that a
//! change day repeats fires once, at its first occurrence, unless the expression names every hour.

use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds};
use ganger_types::time::micros;
use ganger_types::{Rejection, ScheduleSpec, Timestamp};
use jiff::tz::TimeZone;

/// A schedule's spec, read.
pub(crate) enum Recurrence {
    Interval { every: u64, first_at: Timestamp },
    Cron { cron: Box<Cron>, zone: TimeZone },
}

impl Recurrence {
    /// Reads a spec.
    ///
    /// # Errors
    /// If the expression or the time zone cannot be read, or the interval is zero.
    pub(crate) fn read(spec: &ScheduleSpec) -> Result<Self, Rejection> {
        match spec {
            ScheduleSpec::Interval { every, first_at } => {
                if *every < Duration::from_millis(1) {
                    let expected = "at least one millisecond";
                    return Err(Rejection::OutOfRange {
                        what: "the interval",
                        expected,
                    });
                }
                Ok(Self::Interval {
                    every: micros(*every),
                    first_at: *first_at,
                })
            }
            ScheduleSpec::Cron {
                expression,
                time_zone,
            } => {
                let parser = CronParser::builder().seconds(Seconds::Optional).build();
                let cron = parser
                    .parse(expression)
                    .map_err(|error| Rejection::CronUnreadable {
                        expression: expression.clone(),
                        reason: error.to_string(),
                    })?;
                let zone = TimeZone::get(time_zone).map_err(|_| Rejection::TimeZoneUnknown {
                    name: time_zone.clone(),
                })?;
                Ok(Self::Cron {
                    cron: Box::new(cron),
                    zone,
                })
            }
        }
    }

    /// The first run strictly after `at`; `None` if there is none.
    pub(crate) fn after(&self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Interval { every, first_at } => {
                if at < *first_at {
                    return Some(*first_at);
                }
                let passed = (at.0 - first_at.0) / every;
                let next = every.checked_mul(passed + 1)?.checked_add(first_at.0)?;
                Some(Timestamp(next))
            }
            Self::Cron { cron, zone } => {
                let next = cron.find_next_occurrence(&zoned(at, zone)?, false).ok()?;
                timestamp(&next)
            }
        }
    }

    /// The last run at or before `at`; `None` if there is none.
    pub(crate) fn at_or_before(&self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Interval { every, first_at } => {
                let passed = at.0.checked_sub(first_at.0)? / every;
                Some(Timestamp(first_at.0 + passed * every))
            }
            Self::Cron { cron, zone } => {
                let last = cron
                    .find_previous_occurrence(&zoned(at, zone)?, true)
                    .ok()?;
                timestamp(&last)
            }
        }
    }

    /// The newest runs between the two moments, both included, oldest first, at most `max`.
    pub(crate) fn newest_between(
        &self,
        from: Timestamp,
        to: Timestamp,
        max: usize,
    ) -> Vec<Timestamp> {
        let mut runs = Vec::new();
        let mut at = to;
        while runs.len() < max {
            let Some(run) = self.at_or_before(at).filter(|run| *run >= from) else {
                break;
            };
            runs.push(run);
            let Some(earlier) = run.0.checked_sub(1) else {
                break;
            };
            at = Timestamp(earlier);
        }
        runs.reverse();
        runs
    }
}

fn zoned(at: Timestamp, zone: &TimeZone) -> Option<jiff::Zoned> {
    let micros = i64::try_from(at.0).ok()?;
    Some(
        jiff::Timestamp::from_microsecond(micros)
            .ok()?
            .to_zoned(zone.clone()),
    )
}

fn timestamp(zoned: &jiff::Zoned) -> Option<Timestamp> {
    u64::try_from(zoned.timestamp().as_microsecond())
        .ok()
        .map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cron(expression: &str, zone: &str) -> Recurrence {
        let spec = ScheduleSpec::Cron {
            expression: expression.into(),
            time_zone: zone.into(),
        };
        Recurrence::read(&spec).expect("readable")
    }

    fn at(text: &str) -> Timestamp {
        let stamp: jiff::Timestamp = text.parse().expect("a time");
        Timestamp(u64::try_from(stamp.as_microsecond()).expect("after 1970"))
    }

    #[test]
    fn an_interval_counts_from_its_first_run() {
        let every = Duration::from_secs(60);
        let spec = ScheduleSpec::Interval {
            every,
            first_at: Timestamp(5_000_000),
        };
        let runs = Recurrence::read(&spec).expect("readable");
        assert_eq!(runs.after(Timestamp(0)), Some(Timestamp(5_000_000)));
        assert_eq!(
            runs.after(Timestamp(5_000_000)),
            Some(Timestamp(65_000_000))
        );
        assert_eq!(runs.at_or_before(Timestamp(4)), None);
        let newest = runs.newest_between(Timestamp(0), Timestamp(200_000_000), 2);
        assert_eq!(newest, [Timestamp(125_000_000), Timestamp(185_000_000)]);
    }

    #[test]
    fn a_daily_schedule_fires_once_on_both_days_of_change() {
        let daily = cron("30 2 * * *", "Europe/Rome");
        let spring =
            daily.newest_between(at("2026-03-28T23:00:00Z"), at("2026-03-29T21:59:59Z"), 10);
        assert_eq!(
            spring.len(),
            1,
            "2:30 does not exist on that day: {spring:?}"
        );
        let autumn =
            daily.newest_between(at("2026-10-24T22:00:00Z"), at("2026-10-25T22:59:59Z"), 10);
        assert_eq!(autumn.len(), 1, "2:30 comes twice on that day: {autumn:?}");
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let spec = |expression: &str, zone: &str| ScheduleSpec::Cron {
            expression: expression.into(),
            time_zone: zone.into(),
        };
        let bad = Recurrence::read(&spec("61 * * * *", "UTC"))
            .err()
            .expect("refused");
        assert_eq!(bad.code(), "cron_unreadable");
        let bad = Recurrence::read(&spec("* * * * *", "Mars/Olympus"))
            .err()
            .expect("refused");
        assert_eq!(bad.code(), "time_zone_unknown");
    }
}

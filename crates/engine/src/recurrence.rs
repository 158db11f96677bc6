//! The times at which a schedule fires: intervals by arithmetic, cron expressions in their time zone.
//!
//! Daylight saving time: a local time that is skipped fires right after the gap. A local time that is repeated fires
//! once, at its first occurrence, unless the expression names every hour.

use crate::check::at_most;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds};
use ganger_types::limits;
use ganger_types::time::micros;
use ganger_types::{Rejection, ScheduleSpec, Timestamp};
use jiff::tz::TimeZone;

/// Average length of a calendar year.
const YEAR: Duration = Duration::from_secs(31_556_952);

/// Checks a spec: it must be valid, and its runs must not be too frequent and must exist. The search for a run that
/// never comes takes up to some hundred milliseconds, so dialects call this before they send the spec to a shard.
///
/// # Errors
/// If the check fails.
pub fn check_spec(spec: &ScheduleSpec, now: Timestamp) -> Result<(), Rejection> {
    match spec {
        ScheduleSpec::Interval { every, .. } => {
            if *every < limits::SCHEDULE_EVERY_MIN {
                let expected = "at least 1 second";
                let what = "the interval of a schedule";
                return Err(Rejection::OutOfRange { what, expected });
            }
            Recurrence::read(spec).map(drop)
        }
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => {
            for (what, text) in [
                ("the length of a cron expression in bytes", expression),
                ("the length of a time zone's name in bytes", time_zone),
            ] {
                let limit = u64::try_from(limits::CRON_BYTES_MAX).unwrap_or(u64::MAX);
                at_most(what, u64::try_from(text.len()).unwrap_or(u64::MAX), limit)?;
            }
            let years = limits::CRON_YEARS_MAX;
            let horizon = now.after(YEAR * u32::from(years));
            match Recurrence::read(spec)?.after(now) {
                Some(next) if next <= horizon => Ok(()),
                _ => Err(Rejection::CronNever {
                    expression: expression.clone(),
                    years,
                }),
            }
        }
    }
}

/// Returns the next times of a spec, at most `count`.
///
/// # Errors
/// If the spec is refused by [`check_spec`].
pub fn spec_times(
    spec: &ScheduleSpec,
    now: Timestamp,
    count: usize,
) -> Result<Vec<Timestamp>, Rejection> {
    check_spec(spec, now)?;
    let recurrence = Recurrence::read(spec)?;
    let first = match spec {
        ScheduleSpec::Interval { first_at, .. } if *first_at >= now => Some(*first_at),
        _ => recurrence.after(now),
    };
    let times = std::iter::successors(first, |at| recurrence.after(*at));
    Ok(times.take(count.min(limits::SCHEDULE_TIMES_MAX)).collect())
}

/// The parsed spec of a schedule.
pub(crate) enum Recurrence {
    Interval { every: u64, first_at: Timestamp },
    Cron { cron: Box<Cron>, zone: TimeZone },
}

impl Recurrence {
    /// Parses the spec of a schedule.
    ///
    /// # Errors
    /// If the expression or the time zone is invalid, or the interval is zero.
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
                let cron = read_cron(expression).map_err(|reason| Rejection::CronUnreadable {
                    expression: expression.clone(),
                    reason,
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

    /// The newest runs between two times, both included: oldest first, at most `max`.
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

/// Parses five fields, or six with seconds first, or a word such as `@daily`.
fn read_cron(expression: &str) -> Result<Cron, String> {
    let fields = expression.split_whitespace().count();
    if !matches!(fields, 5 | 6) && !expression.trim_start().starts_with('@') {
        return Err(format!(
            "it has {fields} fields; write five (minute, hour, day of month, month, day of week), or six with seconds first"
        ));
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).build();
    parser.parse(expression).map_err(|error| error.to_string())
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
    fn what_never_fires_or_too_often_is_refused() {
        let now = at("2026-11-22T12:00:00Z");
        let refused = |spec: &ScheduleSpec| check_spec(spec, now).err().map(|why| why.code());
        let cron = |expression: &str| ScheduleSpec::Cron {
            expression: expression.into(),
            time_zone: "UTC".into(),
        };
        for never in ["0 0 31 2 *", "0 0 31 4,6,9,11 *"] {
            assert_eq!(refused(&cron(never)), Some("cron_never_fires"), "{never}");
        }
        // There is a leap day within eight years.
        assert_eq!(refused(&cron("0 0 29 2 *")), None);
        let long = format!("0 0 1 1 {}", ["*"; 200].join(","));
        assert_eq!(refused(&cron(&long)), Some("too_large"));
        let every = |millis| ScheduleSpec::Interval {
            every: Duration::from_millis(millis),
            first_at: now,
        };
        assert_eq!(refused(&every(999)), Some("out_of_range"));
        assert_eq!(refused(&every(1_000)), None);
    }

    #[test]
    fn invalid_specs_are_refused_with_the_reason() {
        let spec = |expression: &str, zone: &str| ScheduleSpec::Cron {
            expression: expression.into(),
            time_zone: zone.into(),
        };
        let bad = Recurrence::read(&spec("61 * * * *", "UTC"))
            .err()
            .expect("refused");
        assert_eq!(bad.code(), "cron_unreadable");
        for expression in ["", "* * *", "0 0 4 * * * 2030"] {
            let bad = Recurrence::read(&spec(expression, "UTC"))
                .err()
                .expect("refused");
            assert!(bad.to_string().contains("write five"), "{bad}");
        }
        for expression in ["*/5 * * * *", "0 30 4 * * *", "@daily"] {
            assert!(
                Recurrence::read(&spec(expression, "UTC")).is_ok(),
                "{expression}"
            );
        }
        let bad = Recurrence::read(&spec("* * * * *", "Mars/Olympus"))
            .err()
            .expect("refused");
        assert_eq!(bad.code(), "time_zone_unknown");
    }
}

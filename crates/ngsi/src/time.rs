//! Times in entities: recognises ISO 8601, parses time indexes, and writes them.

mod english;
mod iso;
mod scanner;

use std::fmt;

use jiff::civil::{self, Date, DateTime};
use jiff::tz::Offset;
use jiff::{SignedDuration, Timestamp};

/// Whether a text is in the ISO 8601 form that QuantumLeap accepts. Such values get timestamp columns.
///
/// The form is `YYYY`, `YYYY-MM`, `YYYY-MM-DD`, `YYYYMMDD`, or a week date; a date that names a day may be followed by
/// any one character, a time, and an offset. Surrounding double quotes are ignored. All fields must be in range; hour 24
/// is allowed for midnight.
pub fn is_iso8601(text: &str) -> bool {
    iso::parse(text).is_some()
}

/// A time as it was written: years 1 to 9999, microsecond precision, with or without an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time {
    local: DateTime,
    offset: Option<Offset>,
}

impl Time {
    /// Parses the value of a time index: ISO 8601, or a usual English form of date and time.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        iso::parse(text).or_else(|| english::parse(text))
    }

    /// Creates the time at which a notification arrived: in UTC, written without an offset.
    pub fn from_arrival(arrived: Timestamp) -> Self {
        let arrived = Timestamp::from_microsecond(arrived.as_microsecond()).unwrap_or(arrived);
        Self {
            local: Offset::UTC.to_datetime(arrived),
            offset: None,
        }
    }

    /// Returns the time since the Unix epoch, for comparisons. A time without an offset counts as UTC.
    pub fn since_epoch(self) -> SignedDuration {
        let offset = self.offset.unwrap_or(Offset::UTC).seconds();
        self.local
            .duration_since(Date::constant(1970, 1, 1).at(0, 0, 0, 0))
            - SignedDuration::from_secs(i64::from(offset))
    }
}

/// ISO 8601, with the offset if there is one, and with six digits of fraction unless it is zero.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, time) = (self.local.date(), self.local.time());
        let (year, month, day) = (date.year(), date.month(), date.day());
        write!(f, "{year:04}-{month:02}-{day:02}")?;
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());
        write!(f, "T{hour:02}:{minute:02}:{second:02}")?;
        let microseconds = time.subsec_nanosecond() / 1_000;
        if microseconds != 0 {
            write!(f, ".{microseconds:06}")?;
        }
        let Some(offset) = self.offset else {
            return Ok(());
        };
        let sign = if offset.is_negative() { '-' } else { '+' };
        let minutes = offset.seconds().abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// A time of day as it was written. The hour may be 24.
#[derive(Clone, Copy, Default)]
struct TimeOfDay {
    hour: u32,
    minute: u32,
    second: u32,
    microsecond: u32,
}

/// Combines date and time of day; `None` if a field is out of range. Hour 24 is the start of the next day.
fn combine(date: Date, time_of_day: TimeOfDay) -> Option<DateTime> {
    if time_of_day.hour == 24 {
        let is_midnight =
            time_of_day.minute == 0 && time_of_day.second == 0 && time_of_day.microsecond == 0;
        let next = date.tomorrow().ok().filter(|_| is_midnight)?;
        return Some(next.at(0, 0, 0, 0));
    }
    let time = civil::Time::new(
        i8::try_from(time_of_day.hour).ok()?,
        i8::try_from(time_of_day.minute).ok()?,
        i8::try_from(time_of_day.second).ok()?,
        i32::try_from(time_of_day.microsecond).ok()? * 1_000,
    );
    Some(date.to_datetime(time.ok()?))
}

/// Returns a date; `None` if it does not exist or the year is 0.
fn calendar_date(year: u32, month: u32, day: u32) -> Option<Date> {
    if year == 0 {
        return None;
    }
    let (month, day) = (i8::try_from(month).ok()?, i8::try_from(day).ok()?);
    Date::new(i16::try_from(year).ok()?, month, day).ok()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::{Time, is_iso8601};

    fn parse(text: &str) -> Time {
        Time::parse(text).expect("a valid time")
    }

    #[test]
    fn a_time_is_written_with_its_offset_and_with_a_fraction_only_if_there_is_one() {
        for (text, written) in [
            ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05+00:00"),
            ("2020-01-02 03:04+0530", "2020-01-02T03:04:00+05:30"),
            ("2020-01-02T03:04:05-00:30", "2020-01-02T03:04:05-00:30"),
            ("2020-01-02", "2020-01-02T00:00:00"),
            ("20200102T030405.5", "2020-01-02T03:04:05.500000"),
            ("2020-01-02T03:04:05.000Z", "2020-01-02T03:04:05+00:00"),
            ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00"),
        ] {
            assert_eq!(parse(text).to_string(), written);
        }
    }

    #[test]
    fn the_time_of_arrival_has_no_offset() {
        let arrived: Timestamp = "2021-05-14T15:57:11.8489809Z".parse().expect("a time");
        let time = Time::from_arrival(arrived);
        assert_eq!(time.to_string(), "2021-05-14T15:57:11.848980");
        assert_eq!(parse(&time.to_string()), time);
    }

    #[test]
    fn times_are_compared_by_their_time_since_the_epoch() {
        let since_epoch = |text| parse(text).since_epoch();
        assert_eq!(
            since_epoch("2020-01-02T03:04:05"),
            since_epoch("2020-01-02T03:04:05Z")
        );
        assert_eq!(
            since_epoch("2020-01-02T03:04:05Z"),
            since_epoch("2020-01-02T05:04:05+02:00")
        );
        assert!(since_epoch("2020-01-02T03:04:05") < since_epoch("2020-01-02T03:04:05-00:01"));
        assert!(
            since_epoch("9999-12-31T23:59:59-23:59") > since_epoch("0001-01-01T00:00:00+23:59")
        );
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_not(text in any::<String>()) {
            let _ = (is_iso8601(&text), Time::parse(&text));
        }

        #[test]
        fn any_text_that_resembles_a_time_is_a_time_or_not(
            text in "\"?([0-9]{1,4}|[JFMAS][a-z]{2,8})[-/ ,W]?([0-9]{1,2}|[A-Z][a-z]{2})?[-/ ,]{0,2}[0-9]{0,4}\
                     ([T ]?[0-9:]{0,8}([.,][0-9]{0,8})?( ?[AaPp][Mm])?)?( ?[-+Z][0-9:]{0,5})?",
        ) {
            if let Some(time) = Time::parse(&text) {
                let written = time.to_string();
                prop_assert!(is_iso8601(&written));
                prop_assert_eq!(parse(&written), time);
            } else {
                prop_assert!(!is_iso8601(&text));
            }
        }

        #[test]
        fn a_time_survives_a_round_trip(
            days in 0_i64..3_652_058,
            microseconds in 0_i64..86_400_000_000,
            offset in proptest::option::of(-1_439_i32..=1_439),
        ) {
            let local = super::calendar_date(1, 1, 1).expect("a day").at(0, 0, 0, 0);
            let span = jiff::Span::new().days(days).microseconds(microseconds);
            let offset = offset.map(|minutes| jiff::tz::Offset::from_seconds(minutes * 60).expect("an offset"));
            let time = Time { local: local.checked_add(span).expect("a time"), offset };
            prop_assert_eq!(parse(&time.to_string()), time);
        }
    }
}

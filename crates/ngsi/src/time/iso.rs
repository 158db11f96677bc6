//! The subset of ISO 8601 that QuantumLeap reads.

use jiff::ToSpan;
use jiff::civil::Date;

use super::scanner::Scanner;
use super::{Time, TimeOfDay, calendar_date, combine};

/// Parses a text in ISO 8601 form, with or without surrounding double quotes.
pub(super) fn parse(text: &str) -> Option<Time> {
    let mut scanner = Scanner::new(text.trim_matches('"'))?;
    let (date, names_day) = date(&mut scanner)?;
    if scanner.is_at_end() {
        return Some(Time {
            local: combine(date, TimeOfDay::default())?,
            offset: None,
        });
    }
    // Only a date that names a day may be followed by a time. Any character may separate them.
    if !names_day {
        return None;
    }
    scanner.next_char()?;
    let local = combine(date, time_of_day(&mut scanner)?)?;
    let offset = if scanner.is_at_end() {
        None
    } else {
        Some(scanner.offset()?)
    };
    scanner.is_at_end().then_some(Time { local, offset })
}

/// Reads a date, and whether it names a day. Otherwise it is the first day of the year, month or week.
fn date(scanner: &mut Scanner<'_>) -> Option<(Date, bool)> {
    let year = scanner.fixed_digits(4)?;
    if scanner.is_at_end() {
        return Some((calendar_date(year, 1, 1)?, false));
    }
    let is_dashed = scanner.eat('-');
    if scanner.eat('W') {
        return week(scanner, year, is_dashed);
    }
    let month = scanner.fixed_digits(2)?;
    if scanner.is_at_end() && is_dashed {
        return Some((calendar_date(year, month, 1)?, false));
    }
    if is_dashed && !scanner.eat('-') {
        return None;
    }
    Some((calendar_date(year, month, scanner.fixed_digits(2)?)?, true))
}

/// Reads the rest of a week date. Week 53 is accepted in any year, as the week after 52.
fn week(scanner: &mut Scanner<'_>, year: u32, is_dashed: bool) -> Option<(Date, bool)> {
    let week = scanner
        .fixed_digits(2)
        .filter(|week| (1..=53).contains(week))?;
    let names_day = !scanner.is_at_end();
    let weekday = if names_day {
        if is_dashed && !scanner.eat('-') {
            return None;
        }
        scanner.fixed_digits(1).filter(|it| (1..=7).contains(it))?
    } else {
        1
    };
    // 4 January is always in week 1.
    let fourth = calendar_date(year, 1, 4)?;
    let monday = i64::from(fourth.weekday().to_monday_zero_offset());
    let days = i64::from(week - 1) * 7 + i64::from(weekday - 1) - monday;
    let date = fourth.checked_add(days.days()).ok()?;
    (date.year() >= 1).then_some((date, names_day))
}

/// Reads `hh`, `hh:mm`, `hhmm`, `hh:mm:ss` or `hhmmss`, the last two with an optional fraction.
fn time_of_day(scanner: &mut Scanner<'_>) -> Option<TimeOfDay> {
    let mut time_of_day = TimeOfDay {
        hour: scanner.fixed_digits(2)?,
        ..TimeOfDay::default()
    };
    let is_colon = scanner.eat(':');
    if !is_colon && !scanner.is_at_digit() {
        return Some(time_of_day);
    }
    time_of_day.minute = scanner.fixed_digits(2)?;
    let has_seconds = if is_colon {
        scanner.eat(':')
    } else {
        scanner.is_at_digit()
    };
    if has_seconds {
        time_of_day.second = scanner.fixed_digits(2)?;
        time_of_day.microsecond = scanner.fraction()?;
    }
    Some(time_of_day)
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn shown(text: &str) -> Option<String> {
        parse(text).map(|time| time.to_string())
    }

    #[test]
    fn every_form_of_a_date_is_read() {
        for (text, date) in [
            ("2019", "2019-01-01"),
            ("2019-03", "2019-03-01"),
            ("2019-03-04", "2019-03-04"),
            ("20190304", "2019-03-04"),
            ("2020-02-29", "2020-02-29"),
            ("2019-W01", "2018-12-31"),
            ("2019W01", "2018-12-31"),
            ("2019-W01-2", "2019-01-01"),
            ("2019W527", "2019-12-29"),
            ("2020-W53-5", "2021-01-01"),
            ("2019-W53-1", "2019-12-30"),
            ("\"2019-03-04\"", "2019-03-04"),
        ] {
            let expected = format!("{date}T00:00:00");
            assert_eq!(shown(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn every_form_of_a_time_is_read() {
        for (text, time) in [
            ("T10", "10:00:00"),
            (" 10:11", "10:11:00"),
            ("_1011", "10:11:00"),
            ("T10:11:12", "10:11:12"),
            ("T101112", "10:11:12"),
            ("T10:11:12.5", "10:11:12.500000"),
            ("T101112,0000019", "10:11:12.000001"),
            ("T10:11:12.000", "10:11:12"),
            ("T10Z", "10:00:00+00:00"),
            ("T10:11z", "10:11:00+00:00"),
            ("T10:11:12+05", "10:11:12+05:00"),
            ("T10:11:12.25-0530", "10:11:12.250000-05:30"),
            ("T1011+23:59", "10:11:00+23:59"),
            ("T10:11-00:00", "10:11:00+00:00"),
        ] {
            for date in ["2019-03-04", "20190304", "2019-W10-1"] {
                let expected = format!("2019-03-04T{time}");
                assert_eq!(shown(&format!("{date}{text}")), Some(expected), "{text}");
            }
        }
    }

    #[test]
    fn hour_24_is_the_start_of_the_next_day() {
        let midnight = Some("2020-01-01T00:00:00".to_owned());
        assert_eq!(shown("2019-12-31T24:00"), midnight);
        assert_eq!(shown("2019-12-31T24:00:00.000"), midnight);
        for text in [
            "2019-12-31T24:01",
            "2019-12-31T24:00:00.000001",
            "9999-12-31T24",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }

    #[test]
    fn texts_that_only_look_like_dates_are_none() {
        for text in [
            "",
            "\"\"",
            "Jan 5 2019",
            "monday",
            "1546336800",
            "10:00",
            "201",
            "201903",
            "2019-3-4",
            "2019-03-4",
            "2019-0304",
            "201903-04",
            "2019-00",
            "2019-13",
            "2019-02-29",
            "2019-04-31",
            "0000-01-01",
            "2019T10",
            "2019-03T10",
            "2019-W10T10",
            "2019-W00",
            "2019-W54",
            "2019-W01-8",
            "2019-W01-0",
            "2019-W011",
            "2019W01-1",
            "9999-W53-1",
            "2019-03-04T",
            "2019-03-04T1",
            "2019-03-04T25",
            "2019-03-04T10:60",
            "2019-03-04T10:11:60",
            "2019-03-04T10:1112",
            "2019-03-04T1011:12",
            "2019-03-04T10:11:",
            "2019-03-04T10:11.5",
            "2019-03-04T10:11:12.",
            "2019-03-04T10:11:12+5",
            "2019-03-04T10:11:12+24:00",
            "2019-03-04T10:11:12+05:60",
            "2019-03-04T10:11:12 Z",
            "2019-03-04T10:11:12Zulu",
            "2019-03-04\u{a0}10:11",
            " 2019-03-04",
            "\u{662}\u{660}\u{661}\u{669}",
            "+2019",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}

//! Usual English forms of date and time: `2020/01/02`, `01/02/2020 3:04 PM`, `2 Jan 2020`,
//! `Thursday, January 2, 2020 03:04:05.6 GMT`.

use jiff::civil::Date;
use jiff::tz::Offset;

use super::scanner::Scanner;
use super::{Time, TimeOfDay, calendar_date, combine};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// Parses a date with an optional time in one of these forms.
pub(super) fn parse(text: &str) -> Option<Time> {
    let mut scanner = Scanner::new(text)?;
    let date = date(&mut scanner)?;
    if scanner.is_at_end() {
        return Some(Time {
            local: combine(date, TimeOfDay::default())?,
            offset: None,
        });
    }
    let is_separated = scanner.eat(',') | scanner.skip_blanks();
    if !is_separated && !scanner.eat('T') {
        return None;
    }
    let time_of_day = time_of_day(&mut scanner)?;
    let offset = offset_suffix(&mut scanner)?;
    let local = combine(date, time_of_day)?;
    scanner.is_at_end().then_some(Time { local, offset })
}

fn date(scanner: &mut Scanner<'_>) -> Option<Date> {
    if scanner.is_at_digit() {
        return starting_with_number(scanner);
    }
    let word = scanner.word();
    if let Some(month) = name_number(&MONTHS, &word) {
        return after_month(scanner, month);
    }
    name_number(&WEEKDAYS, &word)?;
    let is_separated = scanner.eat(',') | scanner.skip_blanks();
    if !is_separated {
        return None;
    }
    if scanner.is_at_digit() {
        return starting_with_number(scanner);
    }
    let month = name_number(&MONTHS, &scanner.word())?;
    after_month(scanner, month)
}

/// Reads `2020/01/02`, `2020-01-02`, `01/02/2020`, or `2 Jan 2020`.
fn starting_with_number(scanner: &mut Scanner<'_>) -> Option<Date> {
    let (first, digits) = scanner.number(4)?;
    if digits == 4 {
        let separator = scanner.next_char().filter(|it| matches!(it, '/' | '-'))?;
        let (month, _) = scanner.number(2)?;
        if !scanner.eat(separator) {
            return None;
        }
        return calendar_date(first, month, scanner.number(2)?.0);
    }
    if digits > 2 {
        return None;
    }
    if scanner.eat('/') {
        let (second, _) = scanner.number(2)?;
        let year = scanner.eat('/').then(|| year(scanner))??;
        // The first number is the month, unless it is too large for one.
        return calendar_date(year, first, second).or_else(|| calendar_date(year, second, first));
    }
    if !scanner.skip_blanks() {
        return None;
    }
    let month = name_number(&MONTHS, &scanner.word())?;
    let is_separated = scanner.eat(',') | scanner.skip_blanks();
    let year = is_separated.then(|| year(scanner))??;
    calendar_date(year, month, first)
}

/// Reads the rest of `Jan 2 2020` or `January 2, 2020`.
fn after_month(scanner: &mut Scanner<'_>, month: u32) -> Option<Date> {
    if !scanner.skip_blanks() {
        return None;
    }
    let (number, _) = scanner.number(2)?;
    let is_separated = scanner.eat(',') | scanner.skip_blanks();
    let year = is_separated.then(|| year(scanner))??;
    calendar_date(year, month, number)
}

fn year(scanner: &mut Scanner<'_>) -> Option<u32> {
    scanner.skip_blanks();
    scanner
        .number(4)
        .filter(|(_, digits)| *digits == 4)
        .map(|(year, _)| year)
}

/// Reads `hh:mm`, `hh:mm:ss` or `hh:mm:ss.f`, with optional `AM` or `PM`.
fn time_of_day(scanner: &mut Scanner<'_>) -> Option<TimeOfDay> {
    scanner.skip_blanks();
    let (hour, _) = scanner.number(2)?;
    if !scanner.eat(':') {
        return None;
    }
    let mut time_of_day = TimeOfDay {
        hour,
        minute: scanner.fixed_digits(2)?,
        ..TimeOfDay::default()
    };
    if scanner.eat(':') {
        time_of_day.second = scanner.fixed_digits(2)?;
        time_of_day.microsecond = scanner.fraction()?;
    }
    let mut ahead = *scanner;
    ahead.skip_blanks();
    let half = match ahead.word().as_str() {
        "am" => 0,
        "pm" => 12,
        _ => return Some(time_of_day),
    };
    *scanner = ahead;
    if !(1..=12).contains(&time_of_day.hour) {
        return None;
    }
    time_of_day.hour = time_of_day.hour % 12 + half;
    Some(time_of_day)
}

/// Reads the optional zone at the end. The outer `None` means an invalid zone, the inner one that there is none.
fn offset_suffix(scanner: &mut Scanner<'_>) -> Option<Option<Offset>> {
    scanner.skip_blanks();
    if scanner.is_at_end() {
        return Some(None);
    }
    let mut ahead = *scanner;
    if matches!(ahead.word().as_str(), "gmt" | "utc" | "z") {
        *scanner = ahead;
        return Some(Some(Offset::UTC));
    }
    scanner.offset().map(Some)
}

/// Returns the number, from 1, of the name that the word is or abbreviates with at least three letters.
fn name_number(names: &[&str], word: &str) -> Option<u32> {
    let found = names
        .iter()
        .position(|name| word.len() >= 3 && name.starts_with(word))?;
    u32::try_from(found + 1).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Time;

    fn shown(text: &str) -> Option<String> {
        Time::parse(text).map(|time| time.to_string())
    }

    #[test]
    fn every_form_of_a_date_is_read() {
        for text in [
            "2020/01/02",
            "2020/1/2",
            "01/02/2020",
            "1/2/2020",
            "2 Jan 2020",
            "02 january 2020",
            "Jan 2 2020",
            "JANUARY 02 2020",
            "Jan 2, 2020",
            "Thu Jan 2, 2020",
            "Thursday, January 2, 2020",
            "Thu, 02 Jan 2020",
            "thurs 2 Jan 2020",
            " 2 Jan 2020 ",
        ] {
            let expected = Some("2020-01-02T00:00:00".to_owned());
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn every_form_of_a_time_is_read() {
        for (text, time) in [
            ("03:04", "03:04:00"),
            ("3:04", "03:04:00"),
            ("03:04:05", "03:04:05"),
            ("03:04:05.25", "03:04:05.250000"),
            ("03:04 AM", "03:04:00"),
            ("3:04pm", "15:04:00"),
            ("12:00 am", "00:00:00"),
            ("12:30 PM", "12:30:00"),
            ("03:04:05 PM GMT", "15:04:05+00:00"),
            ("03:04:05Z", "03:04:05+00:00"),
            ("03:04 UTC", "03:04:00+00:00"),
            ("03:04:05 +05:30", "03:04:05+05:30"),
            ("03:04:05.1-0100", "03:04:05.100000-01:00"),
        ] {
            for date in [
                "2020/01/02",
                "2020-01-02",
                "01/02/2020",
                "02 Jan 2020",
                "Jan 2 2020",
                "Thu, January 2, 2020",
            ] {
                let expected = Some(format!("2020-01-02T{time}"));
                assert_eq!(shown(&format!("{date} {text}")), expected, "{date} {text}");
            }
        }
    }

    #[test]
    fn every_month_has_a_short_and_a_long_name() {
        for (index, name) in super::MONTHS.iter().enumerate() {
            let expected = Some(format!("2020-{:02}-09T00:00:00", index + 1));
            for name in [*name, &name[..3]] {
                assert_eq!(shown(&format!("9 {name} 2020")), expected);
                assert_eq!(shown(&format!("{name} 9, 2020")), expected);
            }
        }
        assert_eq!(shown("9 Sept 2020"), shown("9 Sep 2020"));
    }

    #[test]
    fn a_first_number_that_cannot_be_a_month_is_the_day() {
        assert_eq!(shown("25/12/2020"), Some("2020-12-25T00:00:00".to_owned()));
        assert_eq!(shown("25/13/2020"), None);
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "   ",
            "nonsense",
            "monday",
            "1546336800",
            "10:00",
            "Jan 2020",
            "2 Jan 20",
            "1/2/20",
            "2020/01-02",
            "2020/02/30",
            "32 Jan 2020",
            "2 Foo 2020",
            "Foo 2 2020",
            "Thursday",
            "ThursdayJan 2 2020",
            "2 Jan 2020 3",
            "2 Jan 2020 25:00",
            "2 Jan 2020 13:00 PM",
            "2 Jan 2020 0:00 AM",
            "2 Jan 2020 10:00 CET",
            "2 Jan 2020 10:00 Z later",
            "2 Jan 2020x",
            "2020/01/0203:04",
            "99999/1/1",
        ] {
            assert_eq!(shown(text), None, "{text}");
        }
    }
}

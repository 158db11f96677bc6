//! Cron expressions in words: `30 2 * * 1-5` runs at 02:30 from Monday to Friday.
//!
//! Only for people: the expression itself stands beside the words, and the engine alone decides when a schedule fires.

/// Most times of a day that are listed one by one.
const TIMES_MAX: usize = 6;
/// Most values of a field that are listed one by one.
const VALUES_MAX: usize = 12;

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Words that stand for expressions.
const NICKNAMES: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// The values that a field of an expression allows.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Field {
    Any,
    /// Every so many, counted from the least value.
    Step(u32),
    /// All from one value to another, both included.
    Range(u32, u32),
    /// Single values in ascending order.
    Values(Vec<u32>),
}

/// The words for an expression, such as `at 02:30 every day`; `None` for one that no plain sentence says.
pub(crate) fn words(expression: &str) -> Option<String> {
    let expression = expression.trim();
    let lower = expression.to_ascii_lowercase();
    let nickname = NICKNAMES.iter().find(|(name, _)| *name == lower);
    let expression = nickname.map_or(expression, |(_, full)| full);
    let fields: Vec<&str> = expression.split_whitespace().collect();
    let (second, rest) = match fields.len() {
        5 => ("0", &fields[..]),
        6 => (fields[0], &fields[1..]),
        _ => return None,
    };
    let second = field(second, (0, 59), &[])?;
    let minute = field(rest[0], (0, 59), &[])?;
    let hour = field(rest[1], (0, 23), &[])?;
    let is_last_day = rest[2].eq_ignore_ascii_case("l");
    let day = if is_last_day {
        Field::Any
    } else {
        field(rest[2], (1, 31), &[])?
    };
    let month = field(rest[3], (1, 12), &MONTHS)?;
    let weekday = field(rest[4], (0, 7), &DAYS)?;
    let (time, is_time_of_day) = time_words(&second, &minute, &hour)?;
    let is_any_day = day == Field::Any && !is_last_day && weekday == Field::Any;
    let mut words = time;
    if is_any_day {
        if is_time_of_day {
            words.push_str(" every day");
        }
        words.push_str(&months(&month, " in ", " from ")?);
        return Some(words);
    }
    let of_month = match month {
        Field::Any => " of the month".to_owned(),
        _ => months(&month, " of ", " of each month from ")?,
    };
    let mut parts = Vec::new();
    if is_last_day {
        parts.push(format!("on the last day{of_month}"));
    } else if day != Field::Any {
        parts.push(format!("{}{of_month}", days_of_month(&day)?));
    }
    if weekday != Field::Any {
        parts.push(weekdays(&weekday)?);
        if parts.len() == 1 {
            parts[0].push_str(&months(&month, " in ", ", from ")?);
        } else if month != Field::Any {
            // A weekday beside a day of the month, and a month: no short sentence is clear.
            return None;
        }
    }
    words.push(' ');
    words.push_str(&parts.join(", and "));
    Some(words)
}

/// Words for the time, and whether they are times of a day.
fn time_words(second: &Field, minute: &Field, hour: &Field) -> Option<(String, bool)> {
    match (second, minute, hour) {
        (Field::Values(only), _, _) if only[..] == [0] => {}
        (Field::Any, Field::Any, Field::Any) => return Some(("every second".to_owned(), false)),
        (Field::Step(step), Field::Any, Field::Any) if 60 % step == 0 => {
            return Some((format!("every {step} seconds"), false));
        }
        _ => return None,
    }
    if let (Field::Values(minutes), Field::Values(hours)) = (minute, hour)
        && minutes.len() * hours.len() <= TIMES_MAX
    {
        let times = hours.iter().flat_map(|hour| {
            let minutes = minutes.iter();
            minutes.map(move |minute| format!("{hour:02}:{minute:02}"))
        });
        return Some((format!("at {}", listed(&times.collect::<Vec<_>>())), true));
    }
    let within = match hour {
        Field::Range(from, to) => format!(" from {from:02}:00 to {to:02}:59"),
        Field::Values(hours) if hours.len() == 1 => {
            format!(" from {0:02}:00 to {0:02}:59", hours[0])
        }
        _ => String::new(),
    };
    let is_plain = matches!(hour, Field::Any) || !within.is_empty();
    Some(match (minute, hour) {
        (Field::Any, _) if is_plain => (format!("every minute{within}"), false),
        (Field::Step(step), _) if is_plain && 60 % step == 0 => {
            (format!("every {step} minutes{within}"), false)
        }
        (Field::Values(minutes), Field::Step(step)) if minutes.len() == 1 && 24 % step == 0 => {
            let at = match minutes[0] {
                0 => String::new(),
                minute => format!(" at minute {minute}"),
            };
            (format!("every {step} hours{at}"), false)
        }
        (Field::Values(minutes), _) if is_plain => {
            let at = match minutes[..] {
                [0] => String::new(),
                [minute] => format!(" at minute {minute}"),
                _ => format!(" at minutes {}", numbers(minutes)),
            };
            (format!("every hour{within}{at}"), false)
        }
        _ => return None,
    })
}

fn days_of_month(day: &Field) -> Option<String> {
    match day {
        Field::Values(days) if days.len() == 1 => Some(format!("on day {}", days[0])),
        Field::Values(days) => Some(format!("on days {}", numbers(days))),
        Field::Range(from, to) => Some(format!("on days {from} to {to}")),
        Field::Any | Field::Step(_) => None,
    }
}

fn weekdays(weekday: &Field) -> Option<String> {
    let name = |day: &u32| DAYS.get(usize::try_from(day % 7).ok()?).copied();
    match weekday {
        Field::Values(days) => {
            let names: Option<Vec<String>> = days
                .iter()
                .map(|day| Some(format!("{}s", name(day)?)))
                .collect();
            Some(format!("on {}", listed(&names?)))
        }
        Field::Range(from, to) => Some(format!("from {} to {}", name(from)?, name(to)?)),
        Field::Any | Field::Step(_) => None,
    }
}

/// Words for months, behind one word for single ones and another for a range; empty for all months.
fn months(month: &Field, single: &str, range: &str) -> Option<String> {
    let name = |month: &u32| {
        MONTHS
            .get(usize::try_from(month.checked_sub(1)?).ok()?)
            .copied()
    };
    match month {
        Field::Any => Some(String::new()),
        Field::Values(months) => {
            let names: Option<Vec<String>> = months
                .iter()
                .map(|month| Some(name(month)?.to_owned()))
                .collect();
            Some(format!("{single}{}", listed(&names?)))
        }
        Field::Range(from, to) => Some(format!("{range}{} to {}", name(from)?, name(to)?)),
        Field::Step(_) => None,
    }
}

/// Reads a field whose values lie between two numbers, and may have names of which three letters count.
fn field(text: &str, (least, most): (u32, u32), names: &[&str]) -> Option<Field> {
    if matches!(text, "*" | "?") {
        return Some(Field::Any);
    }
    let value = |text: &str| -> Option<u32> {
        let by_name = names
            .iter()
            .position(|name| name[..3].eq_ignore_ascii_case(text));
        let value = match by_name {
            Some(at) => u32::try_from(at).ok()? + u32::from(most == 12),
            None => text.parse().ok()?,
        };
        (least..=most).contains(&value).then_some(value)
    };
    if let Some(step) = text.strip_prefix("*/") {
        return match step.parse().ok()? {
            0 => None,
            1 => Some(Field::Any),
            step => Some(Field::Step(step)),
        };
    }
    let bounds = |text: &str| {
        let (from, to) = text.split_once('-')?;
        let (from, to) = (value(from)?, value(to)?);
        (from < to).then_some((from, to))
    };
    if let Some((from, to)) = bounds(text) {
        return Some(Field::Range(from, to));
    }
    let mut values = Vec::new();
    for part in text.split(',') {
        let (span, step) = match part.split_once('/') {
            Some((span, step)) => (span, step.parse().ok().filter(|step| *step > 0)?),
            None => (part, 1),
        };
        let (from, to) = match bounds(span) {
            Some(bounds) => bounds,
            None if part.contains('/') => (value(span)?, most),
            None => (value(span)?, value(span)?),
        };
        values.extend((from..=to).step_by(step));
    }
    values.sort_unstable();
    values.dedup();
    (values.len() <= VALUES_MAX).then_some(Field::Values(values))
}

fn numbers(values: &[u32]) -> String {
    listed(&values.iter().map(u32::to_string).collect::<Vec<_>>())
}

/// `a`, `a and b`, `a, b and c`.
fn listed(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn expressions_are_said_in_words() {
        for (expression, said) in [
            ("30 2 * * *", "at 02:30 every day"),
            ("0 8,12,18 * * *", "at 08:00, 12:00 and 18:00 every day"),
            ("0 30 2 * * *", "at 02:30 every day"),
            ("* * * * *", "every minute"),
            ("*/15 * * * *", "every 15 minutes"),
            ("*/10 * * * * *", "every 10 seconds"),
            ("0 * * * *", "every hour"),
            ("5 * * * *", "every hour at minute 5"),
            ("0,30 * * * *", "every hour at minutes 0 and 30"),
            ("0 */6 * * *", "every 6 hours"),
            ("15 */2 * * *", "every 2 hours at minute 15"),
            (
                "*/5 8-17 * * 1-5",
                "every 5 minutes from 08:00 to 17:59 from Monday to Friday",
            ),
            ("0 9 * * MON,fri", "at 09:00 on Mondays and Fridays"),
            ("0 9 * * 7", "at 09:00 on Sundays"),
            ("0 0 1 * *", "at 00:00 on day 1 of the month"),
            ("0 0 1,15 * *", "at 00:00 on days 1 and 15 of the month"),
            ("0 0 L * *", "at 00:00 on the last day of the month"),
            ("0 0 1 JAN,7 *", "at 00:00 on day 1 of January and July"),
            ("0 12 * 6-8 *", "at 12:00 every day from June to August"),
            (
                "0 0 13 * 5",
                "at 00:00 on day 13 of the month, and on Fridays",
            ),
            ("@weekly", "at 00:00 on Sundays"),
            ("@Hourly", "every hour"),
        ] {
            assert_eq!(words(expression).as_deref(), Some(said), "{expression}");
        }
    }

    #[test]
    fn what_no_plain_sentence_says_has_no_words() {
        for expression in [
            "",
            "1 2 3",
            "*/7 * * * *",
            "0 */5 * * *",
            "0 0 */2 * *",
            "0 0 * * 5#2",
            "0 0 15W * *",
            "0 0 13 1 5",
            "1-59 * * * *",
            "0 25 * * *",
            "30-10 * * * *",
            "0 0 * * *-",
            "5 * * * * *",
        ] {
            assert_eq!(words(expression), None, "{expression}");
        }
    }
}

//! Numbers, durations, sizes and times as people read them.

use std::time::Duration;

use ganger_types::Timestamp;
use jiff::tz::TimeZone;
use maud::{Markup, html};

pub(crate) use ganger_document::measure::{bytes, count, percent, plural, span, whole};

/// Counts above this have a short form.
const LONG_COUNT: u64 = 999_999;

/// A count in a table: short above 999,999, with the exact number as its title and as data.
pub(crate) fn counted(number: u64) -> Markup {
    if number <= LONG_COUNT {
        return html! { (count(number)) };
    }
    html! { data value=(number) title=(count(number)) { (short(number)) } }
}

/// `3.1 M`: one digit behind the point, rounded down.
fn short(number: u64) -> String {
    let (unit, word) = if number >= 1_000_000_000 {
        (1_000_000_000, "G")
    } else {
        (1_000_000, "M")
    };
    format!(
        "{}.{} {word}",
        count(number / unit),
        number % unit / (unit / 10)
    )
}

/// A point in time as machines read it.
pub(crate) fn exact(time: Timestamp) -> String {
    ganger_document::time::show_moment(time)
}

/// A clock: the present of the server, and the zone in which the viewer reads times.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The server's present. Every "ago" is measured from it.
    pub(crate) now: Timestamp,
    /// The viewer's zone; UTC unless the browser has named another.
    pub(crate) zone: TimeZone,
}

impl Clock {
    /// `2026-01-31 12:01:07` in the viewer's zone.
    pub(crate) fn text(&self, time: Timestamp) -> String {
        let micros = i64::try_from(time.0).unwrap_or(i64::MAX);
        let at = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
        let at = at.to_zoned(self.zone.clone());
        at.strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// A time as an element.
    pub(crate) fn time(&self, time: Timestamp) -> Markup {
        html! { time datetime=(exact(time)) { (self.text(time)) } }
    }

    /// How long ago, or in how long. `live.js` keeps it fresh.
    pub(crate) fn ago(&self, time: Timestamp) -> Markup {
        html! { time datetime=(exact(time)) data-fresh="ago" title=(self.text(time)) { (self.ago_text(time)) } }
    }

    /// How long something has lasted that began then.
    pub(crate) fn since(&self, time: Timestamp) -> Markup {
        html! { time datetime=(exact(time)) data-fresh="since" title=(self.text(time)) { (span(whole(self.now.since(time)))) } }
    }

    /// `12 min ago`, `in 3 s`, `now`.
    pub(crate) fn ago_text(&self, time: Timestamp) -> String {
        let (past, future) = (self.now.since(time), time.since(self.now));
        if past.as_secs() > 0 {
            format!("{} ago", largest(past))
        } else if future.as_secs() > 0 {
            format!("in {}", largest(future))
        } else {
            "now".to_owned()
        }
    }

    /// Which way the clocks of the zone change between two times, such as `clocks go back by 1 h`; `None` if they do not.
    pub(crate) fn change(&self, from: Timestamp, to: Timestamp) -> Option<String> {
        let offset = |time: Timestamp| {
            let micros = i64::try_from(time.0).ok()?;
            let at = jiff::Timestamp::from_microsecond(micros).ok()?;
            Some(self.zone.to_offset(at).seconds())
        };
        let seconds = offset(to)? - offset(from)?;
        let way = match seconds {
            0 => return None,
            1.. => "forward",
            _ => "back",
        };
        let by = span(Duration::from_secs(u64::from(seconds.unsigned_abs())));
        Some(format!("clocks go {way} by {by}"))
    }

    /// The name of the zone.
    pub(crate) fn zone_name(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }
}

/// The largest unit alone, as relative times need no more.
fn largest(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min", seconds / 60),
        3_600..=86_399 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", count(seconds / 86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_as_the_specification_writes_them() {
        assert_eq!(count(1_204), "1,204");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(short(3_150_000), "3.1 M");
        assert_eq!(span(Duration::from_millis(310)), "310 ms");
        assert_eq!(span(Duration::from_secs(724)), "12 min 4 s");
        assert_eq!(span(Duration::from_secs(7_260)), "2 h 1 min");
        assert_eq!(span(Duration::from_millis(4_150)), "4.1 s");
        assert_eq!(bytes(1_500), "1.4 KiB");
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(plural(2, "job"), "2 jobs");
    }

    #[test]
    fn a_share_is_never_all_or_nothing_unless_it_is() {
        for (millionths, text) in [
            (0, "0 %"),
            (1, "below 0.1 %"),
            (5_500, "0.5 %"),
            (180_000, "18 %"),
            (995_000, "99.5 %"),
            (999_999, "99.9 %"),
            (1_000_000, "100 %"),
        ] {
            assert_eq!(percent(millionths), text);
        }
    }

    #[test]
    fn times_are_shown_in_the_viewers_zone_and_measured_from_the_servers_clock() {
        let at = |text| ganger_document::time::read_moment(text).expect("a time");
        let clock = Clock {
            now: at("2026-01-31T11:13:07Z"),
            zone: TimeZone::get("Europe/Vienna").expect("it is bundled"),
        };
        let time = at("2026-01-31T11:01:07Z");
        assert_eq!(clock.text(time), "2026-01-31 12:01:07");
        assert_eq!(clock.ago_text(time), "12 min ago");
        assert_eq!(clock.ago_text(at("2026-01-31T11:13:09Z")), "in 2 s");
    }

    #[test]
    fn a_change_of_the_clocks_between_two_times_is_told() {
        let at = |text| ganger_document::time::read_moment(text).expect("a time");
        let clock = Clock {
            now: at("2027-01-01T00:00:00Z"),
            zone: TimeZone::get("Europe/Vienna").expect("it is bundled"),
        };
        let change = |from, to| clock.change(at(from), at(to));
        let [winter, summer, autumn] = [
            "2027-03-27T01:30:00Z",
            "2027-03-28T01:00:00Z",
            "2027-10-31T01:00:00Z",
        ];
        assert_eq!(
            change(winter, summer).as_deref(),
            Some("clocks go forward by 1 h")
        );
        assert_eq!(
            change(summer, autumn).as_deref(),
            Some("clocks go back by 1 h")
        );
        assert_eq!(change(winter, winter), None);
    }
}

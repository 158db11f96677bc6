//! Rate limits for warnings that may repeat thousands of times per second.
//!
//! The first occurrence is logged at once. While occurrences continue, one line per interval gives the number since
//! the last line. After a while without an occurrence, one last line ends the series.

use std::time::Duration;

use ganger_types::Elapsed;

/// Interval between two lines while occurrences continue.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Time without an occurrence after which a series ends.
const OVER_AFTER: Duration = Duration::from_secs(5);

/// The rate limit of one kind of warning. The caller passes the time and writes the lines.
#[derive(Debug, Default)]
pub struct RepeatedWarning {
    series: Option<Series>,
}

#[derive(Debug)]
struct Series {
    began: Elapsed,
    last: Elapsed,
    written: Elapsed,
    unwritten: u64,
    times: u64,
}

/// A line to log about an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// The first occurrence of a series.
    First,
    /// Further occurrences of a series.
    Again {
        /// Number of occurrences since the last line, this one included.
        times: u64,
    },
}

/// The last line of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesEnd {
    /// Number of occurrences in the series.
    pub times: u64,
    /// Time from the first occurrence to the last.
    pub lasted: Duration,
}

impl RepeatedWarning {
    /// Counts an occurrence and returns the line to log; `None` if there is none now.
    pub fn occur(&mut self, now: Elapsed) -> Option<Line> {
        let Some(series) = &mut self.series else {
            self.series = Some(Series {
                began: now,
                last: now,
                written: now,
                unwritten: 0,
                times: 1,
            });
            return Some(Line::First);
        };
        series.last = now;
        series.times += 1;
        series.unwritten += 1;
        if now.since(series.written) < LINE_EVERY {
            return None;
        }
        series.written = now;
        let times = std::mem::take(&mut series.unwritten);
        Some(Line::Again { times })
    }

    /// Checks whether a series has ended; call it regularly. `None` if there is no series or it continues.
    pub fn look(&mut self, now: Elapsed) -> Option<SeriesEnd> {
        let series = self
            .series
            .take_if(|series| now.since(series.last) >= OVER_AFTER)?;
        Some(SeriesEnd {
            times: series.times,
            lasted: series.last.since(series.began),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Elapsed {
        Elapsed::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_thousand_occurrences_a_second_are_a_line_a_minute_and_one_at_the_end() {
        let mut warning = RepeatedWarning::default();
        let mut lines = Vec::new();
        for second in 0..150 {
            for _ in 0..1_000 {
                lines.extend(warning.occur(at(second)));
            }
            assert_eq!(warning.look(at(second)), None);
        }
        let again = |times| Line::Again { times };
        assert_eq!(lines, [Line::First, again(60_000), again(60_000)]);
        assert_eq!(warning.look(at(153)), None);
        let over = SeriesEnd {
            times: 150_000,
            lasted: Duration::from_secs(149),
        };
        assert_eq!(warning.look(at(154)), Some(over));
        assert_eq!(warning.look(at(155)), None);
        assert_eq!(warning.occur(at(156)), Some(Line::First));
    }

    #[test]
    fn what_comes_and_goes_every_second_is_one_series() {
        let mut warning = RepeatedWarning::default();
        let mut lines = 0;
        for second in 0..60 {
            lines += usize::from(warning.occur(at(second)).is_some());
            lines += usize::from(warning.look(at(second + 1)).is_some());
        }
        assert_eq!(lines, 1);
    }
}

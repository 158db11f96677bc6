//! Warnings that may repeat thousands of times a second: what is written of them is bounded.
//!
//! The first occurrence is written at once. While it lasts, one line an interval gives the number of occurrences since
//! the last line. Once there was none for a while, one line says that it is over.

use std::time::Duration;

use ganger_types::Elapsed;

/// Time between two lines while the occurrences go on.
const LINE_EVERY: Duration = Duration::from_secs(60);
/// Without an occurrence for so long it is over.
const OVER_AFTER: Duration = Duration::from_secs(5);

/// One kind of warning. The caller gives the time and writes the lines.
#[derive(Debug, Default)]
pub struct Repeated {
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

/// A line to write about an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// Line for the first occurrence.
    First,
    /// Line for occurrences that go on.
    Again {
        /// Occurrences since the last line, this one included.
        times: u64,
    },
}

/// The last line of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// All occurrences, the first included.
    pub times: u64,
    /// Time from the first to the last.
    pub lasted: Duration,
}

impl Repeated {
    /// Counts an occurrence. `None` if nothing is written about it now.
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

    /// Looks whether a series is over; to be called now and then. `None` if there is none, or it goes on.
    pub fn look(&mut self, now: Elapsed) -> Option<Over> {
        let series = self
            .series
            .take_if(|series| now.since(series.last) >= OVER_AFTER)?;
        Some(Over {
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
        let mut warning = Repeated::default();
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
        let over = Over {
            times: 150_000,
            lasted: Duration::from_secs(149),
        };
        assert_eq!(warning.look(at(154)), Some(over));
        assert_eq!(warning.look(at(155)), None);
        assert_eq!(warning.occur(at(156)), Some(Line::First));
    }

    #[test]
    fn what_comes_and_goes_every_second_is_one_series() {
        let mut warning = Repeated::default();
        let mut lines = 0;
        for second in 0..60 {
            lines += usize::from(warning.occur(at(second)).is_some());
            lines += usize::from(warning.look(at(second + 1)).is_some());
        }
        assert_eq!(lines, 1);
    }
}

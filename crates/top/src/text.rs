//! Text in columns: widths of display, names cut in the middle, short durations.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Number of columns that a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// Cuts a text in the middle to at most `most` columns: `very-lo\u{2026}ng-name`.
pub(crate) fn cut_middle(text: &str, most: usize, ellipsis: &str) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let room = most.saturating_sub(width(ellipsis));
    let front = take(text.chars(), room.div_ceil(2));
    let back = take(text.chars().rev(), room / 2);
    let back: String = back.chars().rev().collect();
    if width(ellipsis) > most {
        return take(text.chars(), most);
    }
    format!("{front}{ellipsis}{back}")
}

/// Cuts a text at its end to at most `most` columns.
pub(crate) fn cut_end(text: &str, most: usize, ellipsis: &str) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    if width(ellipsis) > most {
        return take(text.chars(), most);
    }
    let front = take(text.chars(), most - width(ellipsis));
    format!("{front}{ellipsis}")
}

fn take(characters: impl Iterator<Item = char>, most: usize) -> String {
    let mut left = most;
    characters
        .take_while(|character| {
            let wide = character.width().unwrap_or(0);
            let fits = wide <= left;
            left = left.saturating_sub(wide);
            fits
        })
        .collect()
}

/// A duration in at most six columns: `310ms`, `1.2s`, `3s`, `12m04s`, `2h01m`, `3d02h`.
pub(crate) fn brief(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 if span.is_zero() => "0s".to_owned(),
        0 => format!("{}ms", span.as_millis().max(1)),
        1..=9 => format!("{seconds}.{}s", span.subsec_millis() / 100),
        10..=59 => format!("{seconds}s"),
        60..=3_599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{}h{:02}m", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A duration of whole seconds in the same form.
pub(crate) fn brief_whole(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..=9 => format!("{seconds}s"),
        seconds => brief(Duration::from_secs(seconds)),
    }
}

/// Jobs per second, from a number per minute: `812`, `0.4`, `0`.
pub(crate) fn per_second(per_minute: u64) -> String {
    let tenths = per_minute.saturating_mul(10) / 60;
    match (per_minute, tenths) {
        (0, _) => "0".to_owned(),
        (_, 0) => "<0.1".to_owned(),
        (_, 1..=99) => format!("{}.{}", tenths / 10, tenths % 10),
        _ => ganger_document::measure::count(tenths / 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_in_the_middle_by_their_width_on_the_screen() {
        assert_eq!(
            cut_middle("very-long-name", 14, "\u{2026}"),
            "very-long-name"
        );
        assert_eq!(
            cut_middle("very-longest-name", 15, "\u{2026}"),
            "very-lo\u{2026}st-name"
        );
        assert_eq!(
            cut_middle("very-longest-name", 15, "..."),
            "very-l...t-name"
        );
        assert_eq!(
            cut_middle(
                "\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{540d}\u{524d}\u{3067}\u{3059}",
                9,
                "\u{2026}"
            ),
            "\u{65e5}\u{672c}\u{2026}\u{3067}\u{3059}"
        );
        assert_eq!(cut_middle("abc", 0, "\u{2026}"), "");
        assert_eq!(cut_end("a longer text", 8, "\u{2026}"), "a longe\u{2026}");
        for most in 0..20 {
            assert!(
                width(&cut_middle(
                    "\u{65e5}\u{672c}\u{8a9e}\u{1f389}\u{306e}\u{540d}\u{524d}\u{3067}\u{3059}",
                    most,
                    "\u{2026}"
                )) <= most
            );
            assert!(
                width(&cut_end(
                    "\u{65e5}\u{672c}\u{8a9e}\u{1f389}\u{306e}\u{540d}\u{524d}\u{3067}\u{3059}",
                    most,
                    "\u{2026}"
                )) <= most
            );
        }
    }

    #[test]
    fn durations_and_rates_are_short() {
        let of = |millis| brief(Duration::from_millis(millis));
        assert_eq!(of(0), "0s");
        assert_eq!(of(310), "310ms");
        assert_eq!(of(1_250), "1.2s");
        assert_eq!(of(724_000), "12m04s");
        assert_eq!(of(7_260_000), "2h01m");
        assert_eq!(of(266_400_000), "3d02h");
        assert_eq!(brief_whole(Duration::from_millis(3_999)), "3s");
        assert_eq!(per_second(0), "0");
        assert_eq!(per_second(1), "<0.1");
        assert_eq!(per_second(24), "0.4");
        assert_eq!(per_second(48_720), "812");
    }
}

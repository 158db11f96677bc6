//! Numbers, durations, sizes and shares as people read them: in pages, on terminals, in sentences.

use std::time::Duration;

/// A whole number with its thousands separated: `1,204`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 job`, `2 jobs`.
pub fn plural(number: u64, one: &str) -> String {
    if number == 1 {
        format!("1 {one}")
    } else {
        format!("{} {one}s", count(number))
    }
}

/// A duration with its two largest units: `12 min 4 s`, `310 ms`.
pub fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let two = |large: u64, word: &str, small: u64, small_word: &str| {
        if small == 0 {
            format!("{} {word}", count(large))
        } else {
            format!("{} {word} {small} {small_word}", count(large))
        }
    };
    match seconds {
        0 if span.is_zero() => "0 s".to_owned(),
        0 if span.as_millis() == 0 => "under 1 ms".to_owned(),
        0 => format!("{} ms", span.as_millis()),
        1..=9 => format!("{}.{} s", seconds, span.subsec_millis() / 100),
        10..=59 => format!("{seconds} s"),
        60..=3_599 => two(seconds / 60, "min", seconds % 60, "s"),
        3_600..=86_399 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// Bytes in KiB, MiB or GiB: `1.4 KiB`.
pub fn bytes(bytes: u64) -> String {
    let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= *unit) {
        None => plural(bytes, "byte"),
        Some((unit, word)) => {
            let tenths = bytes % unit * 10 / unit;
            let whole = count(bytes / unit);
            if tenths == 0 {
                format!("{whole} {word}")
            } else {
                format!("{whole}.{tenths} {word}")
            }
        }
    }
}

/// Millionths as a percentage. Never 0 % or 100 % unless it is exactly so.
pub fn percent(millionths: u64) -> String {
    match millionths {
        0 => "0 %".to_owned(),
        1_000_000.. => "100 %".to_owned(),
        1..1_000 => "below 0.1 %".to_owned(),
        1_000..10_000 | 990_000.. => {
            let small = millionths;
            format!("{}.{} %", small / 10_000, small % 10_000 / 1_000)
        }
        _ => format!("{} %", millionths / 10_000),
    }
}

/// The duration without the part below a second.
pub fn whole(span: Duration) -> Duration {
    Duration::from_secs(span.as_secs())
}

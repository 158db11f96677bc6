//! Cells and tables in Markdown.

use std::time::Duration;

use crate::Measured;

/// Flushes for 1,000 jobs.
pub(super) fn flushes(measured: Measured) -> String {
    scaled(measured.used.flushes, 1e3)
}

/// CPU seconds for a million jobs.
pub(super) fn cpu(measured: Measured) -> String {
    scaled(measured.used.cpu, 1e6)
}

/// What so many jobs used.
pub(super) fn scaled(each: Option<f64>, jobs: f64) -> String {
    each.map_or("-".to_owned(), |each| format!("{:.1}", each * jobs))
}

/// A time, in milliseconds.
pub(super) fn milliseconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}

/// A rate with its thousands apart.
pub(super) fn whole(rate: f64) -> String {
    apart(&format!("{rate:.0}"))
}

/// A number with its thousands apart.
pub(super) fn grouped(number: u64) -> String {
    apart(&number.to_string())
}

fn apart(digits: &str) -> String {
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A table in Markdown under its name, or nothing if it has no rows. Columns are separated by " | ". Numbers are aligned
/// right: in all columns, or in those after the second.
pub(super) fn table(
    name: &str,
    columns: &str,
    all_numbers: bool,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return String::new();
    }
    let mut out = format!("\n### {name}\n\n| {columns} |\n|");
    for place in 0..columns.split(" | ").count() {
        out.push_str(if all_numbers || place > 1 {
            "---:|"
        } else {
            "---|"
        });
    }
    out.push('\n');
    for row in rows {
        out.extend(["| ", &row.join(" | "), " |\n"]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        let shown = [0.4, 999.0, 1_000.0, 1_234_567.8].map(whole);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,568"]);
    }

    #[test]
    fn a_table_has_a_cell_for_every_column() {
        let rows = [vec!["x".to_owned(), "y".to_owned(), "1".to_owned()]];
        let shown = table("T", "a | b | c", false, rows.into_iter());
        assert_eq!(
            shown,
            "\n### T\n\n| a | b | c |\n|---|---|---:|\n| x | y | 1 |\n"
        );
        assert_eq!(table("T", "a", false, std::iter::empty()), "");
    }
}

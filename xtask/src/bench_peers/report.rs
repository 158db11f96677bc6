//! The report: tables in Markdown of rates and costs by load and system, of times, and of goals.

use std::fmt::Write as _;

use super::figures::{Figures, rounded};
use super::goals::goals;
use super::row::{Load, Metric};
use super::system::System;

/// Everything that was measured, as Markdown.
pub(super) fn report(figures: &Figures, loads: &[Load], runs: u32) -> String {
    let mut out = String::new();
    let pair = |first: Metric, second: Metric| {
        move |load: &str, system: &str| {
            let first = figures.median(load, system, first)?;
            let second = figures.median(load, system, second);
            let second = second.map_or(String::new(), |second| format!(" ({})", rounded(second)));
            Some(rounded(first) + &second)
        }
    };
    let flushes = |load: &str, system: &str| {
        let flushes = figures.median(load, system, Metric::Flushes);
        let bytes = figures.median(load, system, Metric::Bytes)?;
        let flushes = flushes.map_or("-".to_owned(), rounded);
        Some(format!("{flushes}; {}", rounded(bytes)))
    };
    let single =
        |metric| move |load: &str, system: &str| figures.median(load, system, metric).map(rounded);
    table(
        &mut out,
        "Jobs a second (server CPU \u{b5}s a job)",
        figures,
        pair(Metric::Rate, Metric::Cpu),
    );
    table(
        &mut out,
        "Flushes a job; bytes written a job",
        figures,
        flushes,
    );
    table(
        &mut out,
        "Enqueue to start, ms: p50 (p99)",
        figures,
        pair(Metric::P50, Metric::P99),
    );
    table(
        &mut out,
        "Seconds from kill -9 until ready",
        figures,
        single(Metric::Seconds),
    );
    table(&mut out, "Bytes of memory", figures, single(Metric::Memory));
    let word = if runs == 1 {
        "one run"
    } else {
        "medians of runs"
    };
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "\nPayloads of 200 bytes, durable before acknowledged, {word}.\n"
    );
    for load in loads {
        let _ = writeln!(out, "- **{}**: {}.", load.name(), load.about());
    }
    for system in System::ALL
        .into_iter()
        .filter(|system| figures.systems().iter().any(|name| name == system.name()))
    {
        let _ = writeln!(out, "- *{}*: {}.", system.name(), system.about());
    }
    out.push_str("\n| goal | against | must | aim | measured | |\n|---|---|---|---|---:|---|\n");
    for goal in goals() {
        let _ = writeln!(out, "| {} |", goal.verdict(figures).cells.join(" | "));
    }
    out
}

/// A table with a row a load and a column a system, of those that have a cell; nothing if none has.
fn table(
    out: &mut String,
    title: &str,
    figures: &Figures,
    cell: impl Fn(&str, &str) -> Option<String>,
) {
    let has_cell = |load: &&String| {
        figures
            .systems()
            .iter()
            .any(|system| cell(load, system).is_some())
    };
    let loads: Vec<&String> = figures.loads().iter().filter(has_cell).collect();
    let has_cell = |system: &&String| loads.iter().any(|load| cell(load, system).is_some());
    let systems: Vec<&String> = figures.systems().iter().filter(has_cell).collect();
    if systems.is_empty() {
        return;
    }
    let names = systems.iter().map(|name| name.as_str());
    let names: Vec<&str> = names.collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "\n### {title}\n\n| load | {} |\n|---|{}",
        names.join(" | "),
        "---:|".repeat(names.len())
    );
    for load in loads {
        let cells = names
            .iter()
            .map(|system| cell(load, system).unwrap_or_else(|| "-".to_owned()));
        let cells: Vec<String> = cells.collect();
        let _ = writeln!(out, "| {load} | {} |", cells.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use ganger_bench::Named;

    use super::*;

    #[test]
    fn a_report_has_a_cell_for_every_load_and_system() {
        let mut figures = Figures::default();
        figures.add("M", "streams", Metric::Rate, 7_166.0);
        figures.add("M", "streams", Metric::Cpu, 135.0);
        figures.add("M", "redis", Metric::Rate, 42_205.0);
        figures.add("E100", "redis", Metric::Rate, 214_852.0);
        figures.add("L", "streams", Metric::P50, 0.68);
        let shown = report(&figures, &[Load::Named(Named::M)], 1);
        assert!(
            shown.contains("| load | streams | redis |\n|---|---:|---:|"),
            "{shown}"
        );
        assert!(shown.contains("| M | 7166 (135) | 42205 |"), "{shown}");
        assert!(shown.contains("| E100 | - | 214852 |"), "{shown}");
        assert!(
            shown.contains("| load | streams |\n|---|---:|\n| L | 0.68 |"),
            "{shown}"
        );
        assert!(
            shown
                .contains("| M, jobs/s | redis | at least 0.7x | at least 1.3x | 0.17x | missed |"),
            "{shown}"
        );
        assert!(!shown.contains("Bytes of memory"), "{shown}");
    }
}

//! The report: a table with a row for each load and a column for each server, and ganger's ratio to each.

use std::collections::BTreeMap;

use super::ganger::{GRPC, HTTP};
use super::goals::GOALS;

/// The values of all systems, by row.
#[derive(Default)]
pub(super) struct Report {
    /// Rows in the order of their first value: name, unit, values by server.
    rows: Vec<(String, &'static str, BTreeMap<String, f64>)>,
}

/// Columns after those of ganger.
const PEERS: [&str; 5] = ["redis", "postgres", "beanstalkd", "bare spawn", "bare log"];

impl Report {
    /// Adds a value and prints it.
    pub(super) fn add(&mut self, row: &str, server: &str, unit: &'static str, value: f64) {
        println!("  {row}: {server} {} {unit}", rounded(value));
        let index = self
            .rows
            .iter()
            .position(|(name, ..)| name == row)
            .unwrap_or_else(|| {
                self.rows.push((row.to_owned(), unit, BTreeMap::new()));
                self.rows.len() - 1
            });
        self.rows[index].2.insert(server.to_owned(), value);
    }

    /// Prints the report as Markdown tables.
    pub(super) fn print(&self) {
        self.print_values();
        self.print_goals();
    }

    fn print_values(&self) {
        println!(
            "\n| load | unit | {GRPC} | {HTTP} | {} |",
            PEERS.join(" | ")
        );
        println!("|---|---|---:|---:|{}", "---:|".repeat(PEERS.len()));
        for (name, unit, values) in &self.rows {
            let own = [values.get(GRPC).copied(), values.get(HTTP).copied()];
            let best = own[0].or(own[1]);
            let own = own
                .map(|value| value.map_or_else(|| "-".to_owned(), rounded))
                .join(" | ");
            let others: Vec<String> = PEERS
                .iter()
                .map(|peer| cell(values.get(*peer).copied(), best))
                .collect();
            println!("| {name} | {unit} | {own} | {} |", others.join(" | "));
        }
        println!("\nIn brackets: ours divided by theirs; gRPC where it was measured, else HTTP.");
    }

    fn print_goals(&self) {
        println!("\n| goal | against | must | aim | measured | |");
        println!("|---|---|---|---|---:|---|");
        for goal in &GOALS {
            let row = self.rows.iter().find(|(name, ..)| name == goal.row);
            let ratio =
                row.and_then(|(_, _, values)| goal.ratio(|server| values.get(server).copied()));
            let (ratio, verdict) = ratio.map_or(("-".to_owned(), "not measured"), |ratio| {
                (rounded(ratio), goal.verdict(ratio))
            });
            println!(
                "| {} | {} | {} | {} | {ratio} | {verdict} |",
                goal.row,
                goal.against.unwrap_or("itself"),
                goal.bound(goal.must),
                goal.bound(goal.aim),
            );
        }
    }
}

fn cell(theirs: Option<f64>, ours: Option<f64>) -> String {
    match (theirs, ours) {
        (Some(theirs), Some(ours)) => format!("{} ({:.2}x)", rounded(theirs), ours / theirs),
        (Some(theirs), None) => rounded(theirs),
        (None, _) => "-".to_owned(),
    }
}

fn rounded(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

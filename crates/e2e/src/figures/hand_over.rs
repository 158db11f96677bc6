//! Restarts all nodes in order under load, and measures how long their shards answer nobody while they are handed over.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Progress;
use super::report::Report;
use crate::balanced_load::{self, Balancer, Observed, Plan};
use crate::hand_overs::HandOvers;
use crate::history::{Elapsed, longest_gap};
use crate::nodes::Nodes;

/// Names of the nodes, in the order of their restarts.
const NODES: [&str; 3] = ["a", "b", "c"];
/// Number of shards, each with a producer of its own.
const SHARDS: usize = 4;
/// Pause of a producer after each answer.
const EVERY: Duration = Duration::from_millis(10);
/// Number of requests before each restart, and after the last one.
const REQUESTS_BETWEEN: usize = 300;

/// What clients and nodes observed of the restarts.
pub(super) struct Restarts {
    /// What the clients observed.
    observed: Observed,
    /// What the nodes logged of their hand-overs.
    hand_overs: HandOvers,
    /// Longest time without an answer from one shard, in each restart of a node.
    gaps: Vec<Duration>,
}

/// Restarts all nodes in turn, so often.
pub(super) fn measure(rounds: usize, progress: &Progress<'_>) -> Result<Restarts> {
    let nodes = Nodes::start("cluster_figures", u32::try_from(SHARDS)?, &NODES)?;
    let mut nodes = nodes.context("PostgreSQL is missing")?;
    let addresses = NODES.map(|name| nodes.setup(name).address);
    let plan = Plan {
        shards: SHARDS,
        producers: (1..=SHARDS).map(|shard| vec![shard]).collect(),
        every: EVERY,
        has_graphs: false,
    };
    let (restarts, observed) = balanced_load::run(&addresses, &plan, |balancer| {
        let mut restarts = Vec::new();
        for round in 1..=rounds {
            for name in NODES {
                restarts.push(restart(&mut nodes, name, balancer)?);
            }
            let (from, to) = restarts[restarts.len() - 1];
            let took = to.saturating_sub(from);
            progress.done(round, &format!("the last node took {took:?}"));
        }
        Ok(restarts)
    })?;
    let mut hand_overs = HandOvers::default();
    for name in NODES {
        let of_node = HandOvers::of_log(&nodes.setup(name).log_text())?;
        hand_overs.pauses.extend(of_node.pauses);
        hand_overs.late += of_node.late;
    }
    nodes.stop()?;
    let gaps = restarts.iter().map(|span| longest(&observed, *span));
    Ok(Restarts {
        gaps: gaps.collect(),
        observed,
        hand_overs,
    })
}

/// Stops a node in order and starts it again, with load before and after. Returns when that began and ended.
fn restart(nodes: &mut Nodes, name: &str, balancer: &Balancer) -> Result<(Elapsed, Elapsed)> {
    balancer.wait_for_requests(REQUESTS_BETWEEN)?;
    let from = balancer.now();
    nodes.server(name).stop()?;
    nodes.start_again(name)?;
    balancer.wait_for_requests(REQUESTS_BETWEEN)?;
    Ok((from, balancer.now()))
}

/// Longest time in which the producer of one shard got no answer.
fn longest(observed: &Observed, (from, to): (Elapsed, Elapsed)) -> Duration {
    let of_each = observed.answers.iter();
    let gaps = of_each.map(|answers| longest_gap(answers.iter().copied(), from, to));
    gaps.max().unwrap_or_default()
}

impl Restarts {
    /// Adds the figures to the report.
    pub(super) fn add_to(self, report: &mut Report) {
        let observed = self.observed;
        let (failed, double) = (observed.failures.len(), observed.completed_again());
        let completed = observed.completed.len() - double;
        let missing = observed.enqueued.saturating_sub(completed);
        report.add_note(format!(
            "hand-over: {} requests, {failed} failed; {} jobs, {missing} not completed, {double} completed twice; {} \
             hand-overs, {} more not served in time",
            observed.requests,
            observed.enqueued,
            self.hand_overs.pauses.len(),
            self.hand_overs.late,
        ));
        for failure in observed.failures.iter().take(5) {
            report.add_note(format!("  {failure}"));
        }
        report.add_faults(
            "hand-over",
            failed,
            "requests failed or handed a job out again",
        );
        report.add_faults("hand-over", missing, "jobs were not completed");
        report.add_faults("hand-over", double, "jobs were completed twice");
        report.add_times(
            "hand-over: pause of a shard, as its nodes see it",
            self.hand_overs.pauses,
            "200; aim: 60",
        );
        report.add_times(
            "hand-over: longest gap between answers of a shard, in each restart",
            self.gaps,
            "",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gap_is_that_of_the_shard_that_waited_longest() {
        let at = Duration::from_millis;
        let observed = Observed {
            requests: 6,
            failures: Vec::new(),
            enqueued: 6,
            completed: Vec::new(),
            answers: vec![vec![at(10), at(20), at(30)], vec![at(10), at(90), at(100)]],
        };
        assert_eq!(longest(&observed, (at(0), at(100))), at(80));
        assert_eq!(longest(&observed, (at(0), at(30))), at(20));
    }
}

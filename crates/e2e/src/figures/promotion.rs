//! Kills the primary of the database under load and promotes a standby, and compares how long the database accepts
//! nothing with how long ganger does.

use std::time::Duration;

use anyhow::{Context as _, Result};

use super::Progress;
use super::probe::Probe;
use super::report::Report;
use crate::chaos::topology::{Databases, Topology};
use crate::chaos::{FINISH_MAX, FormerPrimary, PATIENCE, wait_until_all_serve};
use crate::checker::{self, Counts, Violation};
use crate::history::{Exchange, Operation, Outcome, longest_gap};
use crate::load::{Load, Plan};

/// Commits wait for one of two standbys, so that they go on after a promotion.
const DATABASES: Databases = Databases {
    standbys: 2,
    confirming: 1,
    has_pooler: false,
    has_disks: false,
};
/// Promotions after which the history is checked, and another load begins: finished jobs are kept for a time only.
const PROMOTIONS_OF_A_LOAD: usize = 10;
/// Number of threads that enqueue, and of those that complete.
const CLIENTS: u64 = 4;
/// Pause of a producer after each request.
const EVERY: Duration = Duration::from_millis(60);
/// Number of live jobs beyond which producers wait; more than wait after a promotion.
const BACKLOG_MAX: usize = 10_000;

/// The pauses of all promotions, and what the checks of their histories found.
#[derive(Default)]
pub(super) struct Promotions {
    pauses: Vec<Pauses>,
    counts: Counts,
    broken: Broken,
    /// The first contradictions, in words.
    evidence: Vec<String>,
}

/// The pauses around one promotion.
#[derive(Clone, Copy, Debug)]
struct Pauses {
    /// Longest time between two rows that the database accepted.
    database: Duration,
    /// Longest time between two acknowledged enqueues.
    ganger: Duration,
}

/// Numbers of broken promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Broken {
    /// Acknowledged jobs that are missing, and acknowledged results that are not stored.
    lost: usize,
    /// Jobs that had not succeeded at the end.
    stalled: usize,
    /// All else: above all, jobs that were completed or leased twice.
    double: usize,
}

/// Promotes a standby so often.
pub(super) fn measure(promotions: usize, progress: &Progress<'_>) -> Result<Promotions> {
    let topology = Topology::start("cluster_figures", DATABASES)?;
    let mut topology = topology.context("PostgreSQL is missing")?;
    let measured = promote_often(&mut topology, promotions, progress);
    if measured.is_err() {
        topology.keep_logs();
    }
    let logs = topology.directory().display().to_string();
    measured.with_context(|| format!("logs are in {logs}"))
}

fn promote_often(
    topology: &mut Topology,
    promotions: usize,
    progress: &Progress<'_>,
) -> Result<Promotions> {
    let mut measured = Promotions::default();
    let probe = Probe::start(&topology.cluster, &topology.links_of_client()?)?;
    let mut part = 0;
    while measured.pauses.len() < promotions {
        let plan = Plan {
            seed: part,
            first_producer: part * CLIENTS,
            producers: CLIENTS,
            workers: CLIENTS,
            graph_shards: 1,
            backlog_max: BACKLOG_MAX,
            every: EVERY,
        };
        let load = Load::start_at(&topology.addresses(), PATIENCE, plan);
        wait_until_all_serve(topology, &load)?;
        let left = promotions - measured.pauses.len();
        for _ in 0..left.min(PROMOTIONS_OF_A_LOAD) {
            let pauses = promote(topology, &load, &probe)?;
            measured.pauses.push(pauses);
            progress.done(measured.pauses.len(), &format!("{pauses:?}"));
        }
        let history = load.end(FINISH_MAX)?;
        let (violations, counts) = checker::check(&history);
        measured.add(&violations, &counts);
        part += 1;
    }
    drop(probe);
    topology.stop()?;
    Ok(measured)
}

/// Kills the primary, promotes a standby, and makes a new standby once everything goes on.
fn promote(topology: &mut Topology, load: &Load, probe: &Probe) -> Result<Pauses> {
    let (from, probe_from) = (load.recorder().now(), probe.now());
    topology.cluster.postgres.crash()?;
    let dead = topology.promote(FormerPrimary::Dead)?;
    let number = dead.number;
    wait_until_all_serve(topology, load)?;
    let (to, probe_to) = (load.recorder().now(), probe.now());
    drop(dead);
    topology.add_standby(number)?;
    topology.wait_for_standbys()?;
    let enqueues = load.recorder().exchanges();
    let enqueues = enqueues.iter().filter(|exchange| is_enqueue(exchange));
    Ok(Pauses {
        database: longest_gap(probe.inserted(), probe_from, probe_to),
        ganger: longest_gap(enqueues.map(|exchange| exchange.answered_at), from, to),
    })
}

/// Whether an exchange is an enqueue that was acknowledged.
fn is_enqueue(exchange: &Exchange) -> bool {
    let is_done = matches!(exchange.outcome, Outcome::Done { .. });
    is_done && matches!(exchange.operation, Operation::Enqueue { .. })
}

impl Broken {
    fn of(violations: &[Violation]) -> Self {
        let mut broken = Self::default();
        for violation in violations {
            match violation.rule {
                "D2" | "D10" => broken.lost += 1,
                "T8" => broken.stalled += 1,
                _ => broken.double += 1,
            }
        }
        broken
    }
}

impl Promotions {
    /// Adds what the check of one history found.
    fn add(&mut self, violations: &[Violation], counts: &Counts) {
        let Broken {
            lost,
            stalled,
            double,
        } = Broken::of(violations);
        self.broken.lost += lost;
        self.broken.stalled += stalled;
        self.broken.double += double;
        self.counts.add(counts);
        let evidence = violations.iter().take(5);
        self.evidence
            .extend(evidence.map(|it| format!("  {}: {}", it.rule, it.evidence)));
    }

    /// Adds the figures to the report.
    pub(super) fn add_to(self, report: &mut Report) {
        let Broken {
            lost,
            stalled,
            double,
        } = self.broken;
        report.add_note(format!(
            "promotion: {} jobs acknowledged, {} completed, {} requests without an answer; {lost} lost, {double} double, \
             {stalled} stalled",
            self.counts.acknowledged, self.counts.completed, self.counts.unknown
        ));
        for evidence in self.evidence {
            report.add_note(evidence);
        }
        report.add_faults("promotion", lost, "jobs or results lost");
        report.add_faults("promotion", double, "jobs double, or other contradictions");
        report.add_faults("promotion", stalled, "jobs stalled");
        let of = |time: fn(&Pauses) -> Duration| self.pauses.iter().map(time).collect();
        report.add_times("promotion: pause of the database", of(|it| it.database), "");
        report.add_times("promotion: pause of ganger", of(|it| it.ganger), "");
        report.add_times(
            "promotion: pause of ganger beyond that of the database",
            of(|it| it.ganger.saturating_sub(it.database)),
            "2000; aim: 300",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contradiction_is_a_loss_a_stall_or_a_double() {
        let rules = ["D2", "D10", "T8", "L3", "R2", "L1", "P6"];
        let violations = rules.map(|rule| Violation {
            rule,
            evidence: String::new(),
        });
        let expected = Broken {
            lost: 2,
            stalled: 1,
            double: 4,
        };
        assert_eq!(Broken::of(&violations), expected);
        assert_eq!(Broken::of(&[]), Broken::default());
    }
}

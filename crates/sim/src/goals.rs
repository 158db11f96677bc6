//! Goals: events that a campaign must reach, otherwise its generator is broken.

use std::collections::BTreeMap;

use crate::cluster::goals::GOALS as GOALS_OF_LEVEL_3;
use crate::remote::goals::GOALS as GOALS_OF_LEVEL_4;

/// Goals that every campaign must reach, with the level at which they can be reached first.
const GOALS: &[(&str, u8)] = &[
    // Submissions.
    ("idempotency-key-repeated", 1),
    ("idempotency-key-conflict", 1),
    ("existing-job-answered", 1),
    ("idempotency-key-outlived-its-window", 1),
    ("enqueued-behind-a-failed-dependency", 1),
    ("imported", 1),
    ("imported-as-failed", 1),
    ("imported-once-though-gone", 1),
    ("import-refused", 1),
    // Leases and reports.
    ("granted-again", 1),
    ("renewed", 1),
    ("lease-request-repeated", 1),
    ("report-repeated", 1),
    ("report-conflict", 1),
    ("stale-report-refused", 1),
    ("stale-report-after-a-new-grant", 1),
    ("report-for-a-removed-job", 1),
    ("report-in-the-step-of-a-timer", 1),
    ("deregistered-with-leases", 1),
    ("report-while-the-lease-may-have-ended", 2),
    ("limit-lowered-under-running-jobs", 1),
    ("completed-into-the-next-queue", 1),
    ("completed-behind-others", 1),
    ("failed-for-good", 1),
    ("reported-lost", 1),
    ("lost-once-too-often", 1),
    // Time.
    ("two-timers-in-one-step", 1),
    ("deadline-passed-before-start", 1),
    ("wall-jumped-back", 1),
    ("wall-jumped-ahead", 1),
    // Graphs.
    ("cascade-over-generations", 1),
    ("running-dependency-cancelled", 1),
    ("dependency-added", 1),
    ("dependency-removed", 1),
    // Operators.
    ("cancelled-while-running", 1),
    ("timed-out-by-hand", 1),
    ("deleted-while-live", 1),
    ("waited-for-a-deleted-job", 1),
    ("retried", 1),
    ("retried-with-its-dependency", 1),
    ("worked-through-a-page-of-an-operation", 1),
    ("operation-page-repeated", 1),
    // Retention.
    ("retired", 1),
    ("retired-next-to-a-live-dependent", 1),
    // Schedules.
    ("schedule-fired", 1),
    ("schedule-missed-none", 1),
    ("schedule-missed-last", 1),
    ("schedule-missed-all", 1),
    ("schedule-replaced-a-run", 1),
    ("schedule-run-by-hand", 1),
    // Crashes and the network.
    ("crash-before-commit", 1),
    ("crash-between-commit-and-answer", 1),
    ("restarted-with-live-leases", 1),
    ("recovery-killed-twice", 1),
    ("request-lost", 1),
    ("answer-lost", 1),
    ("zombie-reported", 1),
    ("worker-died-holding", 1),
    ("commit-refused", 2),
    ("commit-unknown-and-applied", 2),
    ("commit-unknown-and-lost", 2),
    ("commit-stalled", 2),
    ("crash-with-a-turn-in-flight", 2),
    ("fenced", 2),
    ("lease-waited-for", 2),
];

/// Goals of features that only level 1 has: namespaces on their callers' clocks.
const GOALS_OF_LEVEL_1: &[&str] = &[
    "settled-by-a-callers-clock",
    "lease-ended-by-a-callers-clock",
    "restarted-with-leases-on-callers-clocks",
];

/// The number of times that each goal was reached.
#[derive(Clone, Debug, Default)]
pub(crate) struct Goals {
    counts: BTreeMap<&'static str, u64>,
}

impl Goals {
    pub(crate) fn reach(&mut self, goal: &'static str) {
        debug_assert!(
            GOALS.iter().any(|(known, _)| *known == goal)
                || GOALS_OF_LEVEL_1.contains(&goal)
                || GOALS_OF_LEVEL_3.contains(&goal)
                || GOALS_OF_LEVEL_4.contains(&goal),
            "unknown goal {goal}"
        );
        *self.counts.entry(goal).or_default() += 1;
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (goal, count) in &other.counts {
            *self.counts.entry(goal).or_default() += count;
        }
    }

    /// Every goal of a level, with the number of times that it was reached.
    pub(crate) fn counted(&self, level: u8) -> Vec<(&'static str, u64)> {
        let count = |goal: &&'static str| (*goal, self.counts.get(goal).copied().unwrap_or(0));
        match level {
            3 => return GOALS_OF_LEVEL_3.iter().map(count).collect(),
            4 => return GOALS_OF_LEVEL_4.iter().map(count).collect(),
            _ => {}
        }
        let of_level = GOALS.iter().filter(|(_, first)| *first <= level);
        let alone = GOALS_OF_LEVEL_1.iter().filter(|_| level == 1);
        of_level
            .map(|(goal, _)| goal)
            .chain(alone)
            .map(count)
            .collect()
    }
}

//! Checks a history against the invariants.
//!
//! Each rule names the invariant that it checks. The rules use only what clients can know: sending times, answer times,
//! and the jobs at the end. An operation without an answer may have happened or not; both must be allowed.

mod graphs;

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Elapsed, Exchange, FinalJob, History, Lease, Operation, Outcome};

/// Codes of refusals that do not depend on the lease: the server was temporarily unable to serve.
const TEMPORARY_REFUSALS: &[&str] = &["overloaded", "store_full"];

/// A contradiction between the history and an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Number of the invariant, such as `D2`.
    pub rule: &'static str,
    /// The observation that contradicts it.
    pub evidence: String,
}

/// Numbers of events in a run, to check that it tested enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of jobs whose enqueue was acknowledged.
    pub acknowledged: usize,
    /// Number of operations without an answer.
    pub unknown: usize,
    /// Number of leases granted to workers.
    pub grants: usize,
    /// Number of accepted completions without repeats.
    pub completed: usize,
    /// Number of reports refused because the lease was lost.
    pub leases_lost: usize,
    /// Number of leases granted before and reported after an operation without an answer.
    pub leases_over_a_gap: usize,
}

impl Counts {
    /// Adds the numbers of another run.
    pub fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.unknown += other.unknown;
        self.grants += other.grants;
        self.completed += other.completed;
        self.leases_lost += other.leases_lost;
        self.leases_over_a_gap += other.leases_over_a_gap;
    }
}

/// All exchanges about one job.
#[derive(Default)]
struct JobHistory<'a> {
    enqueues: Vec<&'a Exchange>,
    grants: Vec<Grant<'a>>,
    reports: Vec<&'a Exchange>,
    found: Option<&'a FinalJob>,
}

/// A lease with the exchange that granted it.
struct Grant<'a> {
    exchange: &'a Exchange,
    lease: &'a Lease,
}

/// Returns all violations in a history, and its counts.
pub fn check(history: &History) -> (Vec<Violation>, Counts) {
    let job_histories = job_histories(history);
    let mut violations = Vec::new();
    check_tokens(&job_histories, &mut violations);
    graphs::check(history, &job_histories, &mut violations);
    for (job, job_history) in &job_histories {
        let mut report = |rule: &'static str, evidence: String| {
            violations.push(Violation {
                rule,
                evidence: format!("job {job}: {evidence}"),
            });
        };
        check_existence(job_history, &mut report);
        check_outcome(job_history, &mut report);
        check_attempts(job_history, &mut report);
        check_leases(job_history, &mut report);
        check_refusals(job_history, &mut report);
    }
    (violations, counts(history, &job_histories))
}

fn job_histories(history: &History) -> BTreeMap<&str, JobHistory<'_>> {
    let mut job_histories: BTreeMap<&str, JobHistory<'_>> = BTreeMap::new();
    for exchange in &history.exchanges {
        match &exchange.operation {
            Operation::Enqueue { .. } | Operation::Submit { .. } => {
                for job in exchange.operation.created() {
                    job_histories
                        .entry(job)
                        .or_default()
                        .enqueues
                        .push(exchange);
                }
            }
            Operation::Lease { .. } => {
                if let Outcome::Leased(all) = &exchange.outcome {
                    for lease in all {
                        job_histories
                            .entry(&lease.job)
                            .or_default()
                            .grants
                            .push(Grant { exchange, lease });
                    }
                }
            }
            Operation::Renew { lease }
            | Operation::Complete { lease, .. }
            | Operation::Fail { lease }
            | Operation::Release { lease } => {
                job_histories
                    .entry(&lease.job)
                    .or_default()
                    .reports
                    .push(exchange);
            }
        }
    }
    for found in &history.found {
        job_histories.entry(&found.job).or_default().found = Some(found);
    }
    job_histories
}

fn is_done(exchange: &Exchange) -> bool {
    matches!(exchange.outcome, Outcome::Done { .. })
}

fn was_sent(exchange: &Exchange) -> bool {
    exchange.outcome != Outcome::NotSent
}

fn lease_of(exchange: &Exchange) -> Option<&Lease> {
    match &exchange.operation {
        Operation::Renew { lease }
        | Operation::Complete { lease, .. }
        | Operation::Fail { lease }
        | Operation::Release { lease } => Some(lease),
        Operation::Enqueue { .. } | Operation::Submit { .. } | Operation::Lease { .. } => None,
    }
}

/// Whether the operation ends an attempt if it takes effect.
fn ends_attempt(exchange: &Exchange) -> bool {
    matches!(
        exchange.operation,
        Operation::Complete { .. } | Operation::Fail { .. } | Operation::Release { .. }
    )
}

/// `rel L2`: no two leases have the same token.
fn check_tokens(job_histories: &BTreeMap<&str, JobHistory<'_>>, violations: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for grant in job_histories
        .values()
        .flat_map(|job_history| &job_history.grants)
    {
        if !seen.insert(&grant.lease.token) {
            violations.push(Violation {
                rule: "L2",
                evidence: format!(
                    "job {}: attempt {} has a token that was issued before",
                    grant.lease.job, grant.lease.attempt
                ),
            });
        }
    }
}

/// `rel D2`, `rel P6`, `rel P1`: acknowledged jobs exist, refused or unsent ones do not, and repeats are recognised.
fn check_existence(job_history: &JobHistory<'_>, report: &mut impl FnMut(&'static str, String)) {
    let is_acknowledged = job_history
        .enqueues
        .iter()
        .any(|exchange| is_done(exchange));
    let may_exist = is_acknowledged
        || job_history
            .enqueues
            .iter()
            .any(|exchange| exchange.outcome == Outcome::Unknown);
    match job_history.found {
        None if is_acknowledged => report("D2", "was acknowledged but is missing".to_owned()),
        Some(_) if !may_exist => report(
            "P6",
            "exists although no enqueue of it can have succeeded".to_owned(),
        ),
        _ => {}
    }
    for exchange in &job_history.enqueues {
        if exchange.outcome == Outcome::Refused("id_taken".to_owned()) {
            report(
                "P1",
                "a repeat of its enqueue was refused as another job".to_owned(),
            );
        }
    }
    if !may_exist && !job_history.grants.is_empty() {
        report(
            "P6",
            "was leased although no enqueue of it can have succeeded".to_owned(),
        );
    }
}

/// `rel T8`, `rel L3`, `rel D10`: the job has ended by at most one completion, whose result is stored.
fn check_outcome(job_history: &JobHistory<'_>, report: &mut impl FnMut(&'static str, String)) {
    let Some(found) = job_history.found else {
        return;
    };
    if found.state != "succeeded" {
        report(
            "T8",
            format!(
                "is {} at the end although workers drained the queue",
                found.state
            ),
        );
    }
    let completions = || {
        job_history
            .reports
            .iter()
            .filter_map(|exchange| match &exchange.operation {
                Operation::Complete { lease, result } => Some((*exchange, lease, result)),
                _ => None,
            })
    };
    let accepted: BTreeSet<&String> = completions()
        .filter(|(exchange, ..)| is_done(exchange))
        .map(|(_, lease, _)| &lease.token)
        .collect();
    if accepted.len() > 1 {
        report(
            "L3",
            format!("{} attempts got their completion accepted", accepted.len()),
        );
    }
    let firsts = completions()
        .filter(|(exchange, ..)| exchange.outcome == Outcome::Done { is_repeat: false })
        .count();
    if firsts > 1 {
        report(
            "L3",
            format!("{firsts} completions were accepted as the first"),
        );
    }
    for (exchange, lease, result) in completions() {
        if is_done(exchange) && found.result.as_ref() != Some(result) {
            report(
                "D10",
                format!(
                    "attempt {} completed with {result:?}, but {:?} is stored",
                    lease.attempt, found.result
                ),
            );
        }
    }
    let is_explained = completions().any(|(exchange, _, result)| {
        matches!(exchange.outcome, Outcome::Done { .. } | Outcome::Unknown)
            && found.result.as_ref() == Some(result)
    });
    if found.state == "succeeded" && !is_explained {
        report(
            "D5",
            format!(
                "has the result {:?}, which no possible completion reported",
                found.result
            ),
        );
    }
}

/// `rel R2`, `rel L8`: attempts are numbered 1, 2, 3 and so on, without gaps or repeats, in the job's history and in leases.
fn check_attempts(job_history: &JobHistory<'_>, report: &mut impl FnMut(&'static str, String)) {
    let mut numbers = BTreeSet::new();
    for grant in &job_history.grants {
        if !numbers.insert(grant.lease.attempt) {
            report(
                "R2",
                format!("attempt {} was leased twice", grant.lease.attempt),
            );
        }
    }
    if let Some(found) = job_history.found {
        let expected: Vec<u32> = (1..=found.attempt).collect();
        if found.attempts != expected {
            report(
                "R2",
                format!(
                    "made {} attempts, but its history lists {:?}",
                    found.attempt, found.attempts
                ),
            );
        }
        if let Some(beyond) = numbers.iter().find(|number| **number > found.attempt) {
            report(
                "R2",
                format!(
                    "attempt {beyond} was leased, but {} are recorded",
                    found.attempt
                ),
            );
        }
    }
    for earlier in &job_history.grants {
        for later in &job_history.grants {
            if earlier.exchange.answered_at < later.exchange.sent_at
                && earlier.lease.attempt > later.lease.attempt
            {
                report(
                    "L8",
                    format!(
                        "attempt {} was leased before attempt {}",
                        earlier.lease.attempt, later.lease.attempt
                    ),
                );
            }
        }
    }
}

/// Returns the time until which a lease is certainly live: its length from the sending of the request or the last renewal,
/// or the first report of its holder that may have ended it, if that is earlier.
fn certain_expiry(grant: &Grant<'_>, job_history: &JobHistory<'_>) -> Elapsed {
    let Operation::Lease { lease_for, .. } = &grant.exchange.operation else {
        return Elapsed::ZERO;
    };
    let mine = || {
        job_history
            .reports
            .iter()
            .filter(|exchange| lease_of(exchange) == Some(grant.lease))
    };
    let renewed_at = mine()
        .filter(|exchange| {
            matches!(exchange.operation, Operation::Renew { .. }) && is_done(exchange)
        })
        .map(|exchange| exchange.sent_at)
        .max();
    let expiry = renewed_at.unwrap_or(grant.exchange.sent_at) + *lease_for;
    let ended_at = mine()
        .filter(|exchange| ends_attempt(exchange) && was_sent(exchange))
        .map(|exchange| exchange.sent_at)
        .min();
    ended_at.map_or(expiry, |ended_at| ended_at.min(expiry))
}

/// `rel L1`, `rel L5`: no job is leased again while a lease is certainly live, and no report is accepted after a newer
/// lease.
fn check_leases(job_history: &JobHistory<'_>, report: &mut impl FnMut(&'static str, String)) {
    for grant in &job_history.grants {
        let until = certain_expiry(grant, job_history);
        for other in &job_history.grants {
            let is_inside = other.exchange.sent_at >= grant.exchange.answered_at
                && other.exchange.answered_at <= until;
            if other.lease != grant.lease && is_inside {
                report(
                    "L1",
                    format!(
                        "attempt {} was leased while the lease of attempt {} was live",
                        other.lease.attempt, grant.lease.attempt
                    ),
                );
            }
        }
    }
    for exchange in job_history
        .reports
        .iter()
        .filter(|exchange| exchange.outcome == Outcome::Done { is_repeat: false })
    {
        let Some(reporter) = lease_of(exchange) else {
            continue;
        };
        let newer = job_history.grants.iter().find(|grant| {
            grant.lease.attempt > reporter.attempt && grant.exchange.answered_at <= exchange.sent_at
        });
        if let Some(newer) = newer {
            report(
                "L5",
                format!(
                    "the report of attempt {} was accepted after attempt {} had been leased",
                    reporter.attempt, newer.lease.attempt
                ),
            );
        }
    }
}

/// `rel T6`, `rel L4`: a report under a certainly live lease is not refused, even after a restart.
fn check_refusals(job_history: &JobHistory<'_>, report: &mut impl FnMut(&'static str, String)) {
    for exchange in &job_history.reports {
        let (Some(reporter), Outcome::Refused(code)) = (lease_of(exchange), &exchange.outcome)
        else {
            continue;
        };
        if TEMPORARY_REFUSALS.contains(&code.as_str()) {
            continue;
        }
        let Some(grant) = job_history
            .grants
            .iter()
            .find(|grant| grant.lease == reporter)
        else {
            report(
                "L2",
                format!("attempt {} was reported but never leased", reporter.attempt),
            );
            continue;
        };
        let has_reported = job_history.reports.iter().any(|earlier| {
            lease_of(earlier) == Some(reporter)
                && ends_attempt(earlier)
                && was_sent(earlier)
                && earlier.sent_at < exchange.sent_at
        });
        let Operation::Lease { lease_for, .. } = &grant.exchange.operation else {
            continue;
        };
        if !has_reported && exchange.answered_at < grant.exchange.sent_at + *lease_for {
            report(
                "T6",
                format!(
                    "attempt {} was refused with {code} while its lease was live",
                    reporter.attempt
                ),
            );
        }
    }
}

fn counts(history: &History, job_histories: &BTreeMap<&str, JobHistory<'_>>) -> Counts {
    let gaps: Vec<Elapsed> = history
        .exchanges
        .iter()
        .filter(|exchange| exchange.outcome == Outcome::Unknown)
        .map(|exchange| exchange.answered_at)
        .collect();
    let mut counts = Counts {
        unknown: gaps.len(),
        ..Counts::default()
    };
    for job_history in job_histories.values() {
        counts.acknowledged += usize::from(
            job_history
                .enqueues
                .iter()
                .any(|exchange| is_done(exchange)),
        );
        counts.grants += job_history.grants.len();
        for exchange in &job_history.reports {
            let is_completion = matches!(exchange.operation, Operation::Complete { .. });
            match &exchange.outcome {
                Outcome::Done { is_repeat: false } if is_completion => {
                    counts.completed += 1;
                    let granted = job_history
                        .grants
                        .iter()
                        .find(|grant| Some(grant.lease) == lease_of(exchange));
                    let is_over_a_gap = granted.is_some_and(|grant| {
                        gaps.iter()
                            .any(|gap| (grant.exchange.answered_at..exchange.sent_at).contains(gap))
                    });
                    counts.leases_over_a_gap += usize::from(is_over_a_gap);
                }
                Outcome::Refused(code) if code == "lease_lost" => counts.leases_lost += 1,
                _ => {}
            }
        }
    }
    counts
}

#[cfg(test)]
mod tests;

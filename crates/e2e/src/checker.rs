//! Judges a history: does what the clients saw contradict the promise?
//!
//! Each rule names the invariant it checks. The rules use only what clients can know: sending times, answer times, and
//! what was found at the end. An exchange without an answer may have happened or not, and both must be allowed.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Elapsed, Exchange, FinalJob, History, Lease, Operation, Outcome};

/// Refusals that say nothing of the lease: the server could not serve at that moment.
const TEMPORARY_REFUSALS: &[&str] = &["overloaded", "store_full"];

/// One contradiction: the rule and the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Invariant that the run contradicts.
    pub rule: &'static str,
    /// What was seen that contradicts the invariant.
    pub evidence: String,
}

/// What happened in the run, to tell whether it proves anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs whose enqueue was acknowledged.
    pub acknowledged: usize,
    /// Exchanges without an answer.
    pub unknown: usize,
    /// Number of attempts that the server leased to workers.
    pub grants: usize,
    /// Completions accepted, repeats apart.
    pub completed: usize,
    /// Reports refused because the lease was lost.
    pub leases_lost: usize,
    /// Leases that were granted before and reported after an exchange without an answer.
    pub leases_over_a_gap: usize,
}

/// Everything known of one job.
#[derive(Default)]
struct JobHistory<'a> {
    enqueues: Vec<&'a Exchange>,
    grants: Vec<Grant<'a>>,
    reports: Vec<&'a Exchange>,
    found: Option<&'a FinalJob>,
}

/// An attempt that a worker was handed.
struct Grant<'a> {
    exchange: &'a Exchange,
    lease: &'a Lease,
}

/// Every contradiction in the history, and what happened in it.
pub fn check(history: &History) -> (Vec<Violation>, Counts) {
    let job_histories = job_histories(history);
    let mut violations = Vec::new();
    check_tokens(&job_histories, &mut violations);
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
            Operation::Enqueue { jobs } => {
                for job in jobs {
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
        Operation::Enqueue { .. } | Operation::Lease { .. } => None,
    }
}

/// Whether the request, if it took effect, ended an attempt.
fn ends_attempt(exchange: &Exchange) -> bool {
    matches!(
        exchange.operation,
        Operation::Complete { .. } | Operation::Fail { .. } | Operation::Release { .. }
    )
}

/// `rel L2`: no two grants have the same token.
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

/// `rel D2`, `rel P6`, `rel P1`: what was acknowledged is there; what was refused or never sent is not; repeats are known.
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
        None if is_acknowledged => report("D2", "was acknowledged and is lost".to_owned()),
        Some(_) if !may_exist => report(
            "P6",
            "exists although no request for it can have succeeded".to_owned(),
        ),
        _ => {}
    }
    for exchange in &job_history.enqueues {
        if exchange.outcome == Outcome::Refused("id_taken".to_owned()) {
            report(
                "P1",
                "a repeat of its enqueue was taken for another job".to_owned(),
            );
        }
    }
    if !may_exist && !job_history.grants.is_empty() {
        report(
            "P6",
            "was handed out although no request for it can have succeeded".to_owned(),
        );
    }
}

/// `rel T8`, `rel L3`, `rel D10`: the job has ended, by at most one completion, whose result is the one kept.
fn check_outcome(job_history: &JobHistory<'_>, report: &mut impl FnMut(&'static str, String)) {
    let Some(found) = job_history.found else {
        return;
    };
    if found.state != "succeeded" {
        report(
            "T8",
            format!(
                "is {} at the end, although honest workers drained the queue",
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
            format!(
                "{} attempts were told that their completion counts",
                accepted.len()
            ),
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
                    "attempt {} completed with {result:?}, kept is {:?}",
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
                "has the result {:?}, which no completion that can have happened brought",
                found.result
            ),
        );
    }
}

/// Attempts are 1, 2, 3 and so on, without gaps or repeats, in the job's own history and as handed out.
fn check_attempts(job_history: &JobHistory<'_>, report: &mut impl FnMut(&'static str, String)) {
    let mut numbers = BTreeSet::new();
    for grant in &job_history.grants {
        if !numbers.insert(grant.lease.attempt) {
            report(
                "R2",
                format!("attempt {} was handed out twice", grant.lease.attempt),
            );
        }
    }
    if let Some(found) = job_history.found {
        let expected: Vec<u32> = (1..=found.attempt).collect();
        if found.attempts != expected {
            report(
                "R2",
                format!(
                    "made {} attempts, its history lists {:?}",
                    found.attempt, found.attempts
                ),
            );
        }
        if let Some(beyond) = numbers.iter().find(|number| **number > found.attempt) {
            report(
                "R2",
                format!(
                    "attempt {beyond} was handed out, {} are recorded",
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
                        "attempt {} was handed out before attempt {}",
                        earlier.lease.attempt, later.lease.attempt
                    ),
                );
            }
        }
    }
}

/// Until when a grant is certainly live: its length, counted from before it was asked for or last renewed, cut short
/// by the first report of its holder that may have ended it.
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

/// `rel L1`, `rel L5`: no second grant while one is certainly live; no report accepted after a newer grant was there.
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
                        "attempt {} was handed out while attempt {} was live",
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
                    "attempt {} was heard after attempt {} had been handed out",
                    reporter.attempt, newer.lease.attempt
                ),
            );
        }
    }
}

/// `rel T6`, `rel L4`: a report under a lease that is certainly live is not refused, restart or not.
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
                format!(
                    "attempt {} was reported but never handed out",
                    reporter.attempt
                ),
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

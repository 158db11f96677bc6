//! Judges a history: does what the clients saw contradict the promise?
//!
//! Each rule names the invariant it checks. The rules use only what clients can know: sending times, answer times, and
//! what was found at the end. An exchange without an answer may have happened or not, and both must be allowed.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Answered, Asked, Exchange, Found, Held, History, Moment};

/// Refusals that say nothing of the lease: the server could not serve at that moment.
const NO_JUDGEMENT: &[&str] = &["overloaded", "store_full"];

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
pub struct Tally {
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
struct Story<'a> {
    enqueues: Vec<&'a Exchange>,
    grants: Vec<Grant<'a>>,
    reports: Vec<&'a Exchange>,
    found: Option<&'a Found>,
}

/// An attempt that a worker was handed.
struct Grant<'a> {
    exchange: &'a Exchange,
    held: &'a Held,
}

/// Every contradiction in the history, and what happened in it.
pub fn check(history: &History) -> (Vec<Violation>, Tally) {
    let stories = stories(history);
    let mut violations = Vec::new();
    check_tokens(&stories, &mut violations);
    for (job, story) in &stories {
        let mut report = |rule: &'static str, evidence: String| {
            violations.push(Violation {
                rule,
                evidence: format!("job {job}: {evidence}"),
            });
        };
        check_existence(story, &mut report);
        check_outcome(story, &mut report);
        check_attempts(story, &mut report);
        check_leases(story, &mut report);
        check_refusals(story, &mut report);
    }
    (violations, tally(history, &stories))
}

fn stories(history: &History) -> BTreeMap<&str, Story<'_>> {
    let mut stories: BTreeMap<&str, Story<'_>> = BTreeMap::new();
    for exchange in &history.exchanges {
        match &exchange.asked {
            Asked::Enqueue { jobs } => {
                for job in jobs {
                    stories.entry(job).or_default().enqueues.push(exchange);
                }
            }
            Asked::Lease { .. } => {
                if let Answered::Leased(all) = &exchange.answered {
                    for held in all {
                        stories
                            .entry(&held.job)
                            .or_default()
                            .grants
                            .push(Grant { exchange, held });
                    }
                }
            }
            Asked::Renew { held }
            | Asked::Complete { held, .. }
            | Asked::Fail { held }
            | Asked::Release { held } => {
                stories.entry(&held.job).or_default().reports.push(exchange);
            }
        }
    }
    for found in &history.found {
        stories.entry(&found.job).or_default().found = Some(found);
    }
    stories
}

fn is_done(exchange: &Exchange) -> bool {
    matches!(exchange.answered, Answered::Done { .. })
}

fn was_sent(exchange: &Exchange) -> bool {
    exchange.answered != Answered::NotSent
}

fn held(exchange: &Exchange) -> Option<&Held> {
    match &exchange.asked {
        Asked::Renew { held }
        | Asked::Complete { held, .. }
        | Asked::Fail { held }
        | Asked::Release { held } => Some(held),
        Asked::Enqueue { .. } | Asked::Lease { .. } => None,
    }
}

/// Whether the request, if it took effect, ended an attempt.
fn ends_attempt(exchange: &Exchange) -> bool {
    matches!(
        exchange.asked,
        Asked::Complete { .. } | Asked::Fail { .. } | Asked::Release { .. }
    )
}

/// `rel L2`: no two grants have the same token.
fn check_tokens(stories: &BTreeMap<&str, Story<'_>>, violations: &mut Vec<Violation>) {
    let mut seen = BTreeSet::new();
    for grant in stories.values().flat_map(|story| &story.grants) {
        if !seen.insert(&grant.held.token) {
            violations.push(Violation {
                rule: "L2",
                evidence: format!(
                    "job {}: attempt {} has a token that was issued before",
                    grant.held.job, grant.held.attempt
                ),
            });
        }
    }
}

/// `rel D2`, `rel P6`, `rel P1`: what was acknowledged is there; what was refused or never sent is not; repeats are known.
fn check_existence(story: &Story<'_>, report: &mut impl FnMut(&'static str, String)) {
    let is_acknowledged = story.enqueues.iter().any(|exchange| is_done(exchange));
    let may_exist = is_acknowledged
        || story
            .enqueues
            .iter()
            .any(|exchange| exchange.answered == Answered::Unknown);
    match story.found {
        None if is_acknowledged => report("D2", "was acknowledged and is lost".to_owned()),
        Some(_) if !may_exist => report(
            "P6",
            "exists although no request for it can have succeeded".to_owned(),
        ),
        _ => {}
    }
    for exchange in &story.enqueues {
        if exchange.answered == Answered::Refused("id_taken".to_owned()) {
            report(
                "P1",
                "a repeat of its enqueue was taken for another job".to_owned(),
            );
        }
    }
    if !may_exist && !story.grants.is_empty() {
        report(
            "P6",
            "was handed out although no request for it can have succeeded".to_owned(),
        );
    }
}

/// `rel T8`, `rel L3`, `rel D10`: the job has ended, by at most one completion, whose result is the one kept.
fn check_outcome(story: &Story<'_>, report: &mut impl FnMut(&'static str, String)) {
    let Some(found) = story.found else {
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
        story
            .reports
            .iter()
            .filter_map(|exchange| match &exchange.asked {
                Asked::Complete { held, result } => Some((*exchange, held, result)),
                _ => None,
            })
    };
    let accepted: BTreeSet<&String> = completions()
        .filter(|(exchange, ..)| is_done(exchange))
        .map(|(_, held, _)| &held.token)
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
        .filter(|(exchange, ..)| exchange.answered == Answered::Done { is_repeat: false })
        .count();
    if firsts > 1 {
        report(
            "L3",
            format!("{firsts} completions were accepted as the first"),
        );
    }
    for (exchange, held, result) in completions() {
        if is_done(exchange) && found.result.as_ref() != Some(result) {
            report(
                "D10",
                format!(
                    "attempt {} completed with {result:?}, kept is {:?}",
                    held.attempt, found.result
                ),
            );
        }
    }
    let is_explained = completions().any(|(exchange, _, result)| {
        matches!(exchange.answered, Answered::Done { .. } | Answered::Unknown)
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
fn check_attempts(story: &Story<'_>, report: &mut impl FnMut(&'static str, String)) {
    let mut numbers = BTreeSet::new();
    for grant in &story.grants {
        if !numbers.insert(grant.held.attempt) {
            report(
                "R2",
                format!("attempt {} was handed out twice", grant.held.attempt),
            );
        }
    }
    if let Some(found) = story.found {
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
    for earlier in &story.grants {
        for later in &story.grants {
            if earlier.exchange.answered_at < later.exchange.sent_at
                && earlier.held.attempt > later.held.attempt
            {
                report(
                    "L8",
                    format!(
                        "attempt {} was handed out before attempt {}",
                        earlier.held.attempt, later.held.attempt
                    ),
                );
            }
        }
    }
}

/// Until when a grant is certainly live: its length, counted from before it was asked for or last renewed, cut short
/// by the first report of its holder that may have ended it.
fn certainly_until(grant: &Grant<'_>, story: &Story<'_>) -> Moment {
    let Asked::Lease { lease_for, .. } = &grant.exchange.asked else {
        return Moment::ZERO;
    };
    let mine = || {
        story
            .reports
            .iter()
            .filter(|exchange| held(exchange) == Some(grant.held))
    };
    let renewed_at = mine()
        .filter(|exchange| matches!(exchange.asked, Asked::Renew { .. }) && is_done(exchange))
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
fn check_leases(story: &Story<'_>, report: &mut impl FnMut(&'static str, String)) {
    for grant in &story.grants {
        let until = certainly_until(grant, story);
        for other in &story.grants {
            let is_inside = other.exchange.sent_at >= grant.exchange.answered_at
                && other.exchange.answered_at <= until;
            if other.held != grant.held && is_inside {
                report(
                    "L1",
                    format!(
                        "attempt {} was handed out while attempt {} was live",
                        other.held.attempt, grant.held.attempt
                    ),
                );
            }
        }
    }
    for exchange in story
        .reports
        .iter()
        .filter(|exchange| exchange.answered == Answered::Done { is_repeat: false })
    {
        let Some(reporter) = held(exchange) else {
            continue;
        };
        let newer = story.grants.iter().find(|grant| {
            grant.held.attempt > reporter.attempt && grant.exchange.answered_at <= exchange.sent_at
        });
        if let Some(newer) = newer {
            report(
                "L5",
                format!(
                    "attempt {} was heard after attempt {} had been handed out",
                    reporter.attempt, newer.held.attempt
                ),
            );
        }
    }
}

/// `rel T6`, `rel L4`: a report under a lease that is certainly live is not refused, restart or not.
fn check_refusals(story: &Story<'_>, report: &mut impl FnMut(&'static str, String)) {
    for exchange in &story.reports {
        let (Some(reporter), Answered::Refused(code)) = (held(exchange), &exchange.answered) else {
            continue;
        };
        if NO_JUDGEMENT.contains(&code.as_str()) {
            continue;
        }
        let Some(grant) = story.grants.iter().find(|grant| grant.held == reporter) else {
            report(
                "L2",
                format!(
                    "attempt {} was reported but never handed out",
                    reporter.attempt
                ),
            );
            continue;
        };
        let has_reported = story.reports.iter().any(|earlier| {
            held(earlier) == Some(reporter)
                && ends_attempt(earlier)
                && was_sent(earlier)
                && earlier.sent_at < exchange.sent_at
        });
        let Asked::Lease { lease_for, .. } = &grant.exchange.asked else {
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

fn tally(history: &History, stories: &BTreeMap<&str, Story<'_>>) -> Tally {
    let gaps: Vec<Moment> = history
        .exchanges
        .iter()
        .filter(|exchange| exchange.answered == Answered::Unknown)
        .map(|exchange| exchange.answered_at)
        .collect();
    let mut tally = Tally {
        unknown: gaps.len(),
        ..Tally::default()
    };
    for story in stories.values() {
        tally.acknowledged += usize::from(story.enqueues.iter().any(|exchange| is_done(exchange)));
        tally.grants += story.grants.len();
        for exchange in &story.reports {
            let is_completion = matches!(exchange.asked, Asked::Complete { .. });
            match &exchange.answered {
                Answered::Done { is_repeat: false } if is_completion => {
                    tally.completed += 1;
                    let granted = story
                        .grants
                        .iter()
                        .find(|grant| Some(grant.held) == held(exchange));
                    let is_over_a_gap = granted.is_some_and(|grant| {
                        gaps.iter()
                            .any(|gap| (grant.exchange.answered_at..exchange.sent_at).contains(gap))
                    });
                    tally.leases_over_a_gap += usize::from(is_over_a_gap);
                }
                Answered::Refused(code) if code == "lease_lost" => tally.leases_lost += 1,
                _ => {}
            }
        }
    }
    tally
}

#[cfg(test)]
mod tests;

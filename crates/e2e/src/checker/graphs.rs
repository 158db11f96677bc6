//! Checks of graphs over several shards.

use std::collections::BTreeMap;

use super::{Grant, JobHistory, Violation, is_done};
use crate::history::{Exchange, GraphJob, History, Operation, Outcome};

/// Codes with which a graph may be refused: its client repeats it then.
const REPEATABLE: &[&str] = &[
    "id_busy",
    "idempotency_busy",
    "overloaded",
    "store_full",
    "not_prepared",
    "not_reserved",
];

pub(super) fn check(
    history: &History,
    jobs: &BTreeMap<&str, JobHistory<'_>>,
    violations: &mut Vec<Violation>,
) {
    let mut graphs: BTreeMap<&str, (&[GraphJob], Vec<&Exchange>)> = BTreeMap::new();
    for exchange in &history.exchanges {
        if let Operation::Submit { jobs } = &exchange.operation {
            let graph = graphs.entry(&jobs[0].id).or_insert((jobs, Vec::new()));
            graph.1.push(exchange);
        }
    }
    for (first, (members, submissions)) in graphs {
        let mut report = |rule: &'static str, evidence: String| {
            let evidence = format!("job {first}: the graph of which it is the first {evidence}");
            violations.push(Violation { rule, evidence });
        };
        check_submissions(members, &submissions, jobs, &mut report);
        for member in members {
            for grant in &jobs[member.id.as_str()].grants {
                check_inputs(member, grant, jobs, &mut report);
            }
        }
    }
}

/// `rel G8`, `rel P1`: all jobs exist or none, and a repeat is taken.
fn check_submissions(
    members: &[GraphJob],
    submissions: &[&Exchange],
    jobs: &BTreeMap<&str, JobHistory<'_>>,
    report: &mut impl FnMut(&'static str, String),
) {
    let is_there = |member: &&GraphJob| jobs[member.id.as_str()].found.is_some();
    let found = members.iter().filter(is_there).count();
    if found != 0 && found != members.len() {
        let all = members.len();
        report("G8", format!("exists in part: {found} of {all} jobs"));
    }
    for submission in submissions {
        if let Outcome::Refused(code) = &submission.outcome
            && !REPEATABLE.contains(&code.as_str())
        {
            report("P1", format!("was refused with {code}"));
        }
    }
}

/// `rel G1`, `rel G2`: a job runs after all of its dependencies have succeeded, with their results.
fn check_inputs(
    member: &GraphJob,
    grant: &Grant<'_>,
    jobs: &BTreeMap<&str, JobHistory<'_>>,
    report: &mut impl FnMut(&'static str, String),
) {
    let (id, attempt) = (&member.id, grant.lease.attempt);
    if grant.lease.inputs.len() != member.inputs.len() {
        let got = &grant.lease.inputs;
        report(
            "G2",
            format!("has {id}, whose attempt {attempt} got {got:?}"),
        );
    }
    for (input, value) in member.inputs.iter().zip(&grant.lease.inputs) {
        let dependency = &jobs[input.as_str()];
        let completed = dependency.reports.iter().any(|exchange| {
            let was_sent = is_done(exchange) || exchange.outcome == Outcome::Unknown;
            matches!(exchange.operation, Operation::Complete { .. })
                && was_sent
                && exchange.sent_at <= grant.exchange.answered_at
        });
        if !completed {
            let early = format!("has {id}, whose attempt {attempt} ran before {input} completed");
            report("G1", early);
        }
        let result = dependency.found.and_then(|found| found.result.as_ref());
        if result != Some(value) {
            let other = format!("has {id}, whose attempt {attempt} got {value:?} for {result:?}");
            report("G2", other);
        }
    }
}

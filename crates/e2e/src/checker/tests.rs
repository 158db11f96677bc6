//! Tests of the checker: a good history passes, and each kind of corruption is found.

use std::time::Duration;

use super::check;
use crate::history::{Exchange, FinalJob, GraphJob, History, Lease, Operation, Outcome};

const DONE: Outcome = Outcome::Done { is_repeat: false };

fn exchange(sent: u64, answered_at: u64, operation: Operation, outcome: Outcome) -> Exchange {
    Exchange {
        sent_at: Duration::from_millis(sent),
        answered_at: Duration::from_millis(answered_at),
        operation,
        outcome,
    }
}

fn attempt(number: u32) -> Lease {
    Lease {
        job: "a".to_owned(),
        attempt: number,
        token: format!("token-{number}"),
        inputs: Vec::new(),
    }
}

fn lease(sent: u64, answered_at: u64, lease: Lease) -> Exchange {
    let operation = Operation::Lease {
        worker: "w".to_owned(),
        lease_for: Duration::from_millis(1_000),
    };
    exchange(sent, answered_at, operation, Outcome::Leased(vec![lease]))
}

fn complete(sent: u64, answered_at: u64, lease: Lease, outcome: Outcome) -> Exchange {
    let result = format!("result-{}", lease.attempt);
    exchange(
        sent,
        answered_at,
        Operation::Complete { lease, result },
        outcome,
    )
}

/// Returns the history of a job that is enqueued, leased, lost by its first worker, leased again after a restart, and
/// completed.
fn good() -> History {
    let enqueue = Operation::Enqueue {
        jobs: vec!["a".to_owned()],
    };
    History {
        exchanges: vec![
            exchange(0, 10, enqueue, DONE),
            lease(20, 30, attempt(1)),
            exchange(500, 510, Operation::Renew { lease: attempt(1) }, DONE),
            lease(1_600, 1_700, attempt(2)),
            complete(
                1_800,
                1_810,
                attempt(1),
                Outcome::Refused("lease_lost".to_owned()),
            ),
            complete(1_900, 2_000, attempt(2), Outcome::Unknown),
            complete(2_100, 2_200, attempt(2), Outcome::Done { is_repeat: true }),
        ],
        found: vec![FinalJob {
            job: "a".to_owned(),
            state: "succeeded".to_owned(),
            attempt: 2,
            result: Some("result-2".to_owned()),
            attempts: vec![1, 2],
        }],
    }
}

/// Returns the history of a graph: `b` has the result of `a` as its input.
fn good_graph() -> History {
    let mut history = good();
    let [a, b] = [("a", vec![]), ("b", vec!["a".to_owned()])].map(|(id, inputs)| GraphJob {
        id: id.to_owned(),
        inputs,
    });
    let submit = Operation::Submit { jobs: vec![a, b] };
    history.exchanges[0] = exchange(0, 10, submit, DONE);
    let held = Lease {
        job: "b".to_owned(),
        token: "token-b".to_owned(),
        inputs: vec!["result-2".to_owned()],
        ..attempt(1)
    };
    history.exchanges.push(lease(2_300, 2_310, held.clone()));
    history.exchanges.push(complete(2_400, 2_410, held, DONE));
    history.found.push(FinalJob {
        job: "b".to_owned(),
        result: Some("result-1".to_owned()),
        attempt: 1,
        attempts: vec![1],
        ..history.found[0].clone()
    });
    history
}

/// Returns the rules that a corrupted history violates.
fn violated(corrupt: impl FnOnce(&mut History)) -> Vec<&'static str> {
    rules_after(good(), corrupt)
}

/// Returns the rules that a corrupted history of a graph violates.
fn violated_by_graph(corrupt: impl FnOnce(&mut History)) -> Vec<&'static str> {
    rules_after(good_graph(), corrupt)
}

fn rules_after(mut history: History, corrupt: impl FnOnce(&mut History)) -> Vec<&'static str> {
    corrupt(&mut history);
    let mut rules: Vec<_> = check(&history)
        .0
        .into_iter()
        .map(|violation| violation.rule)
        .collect();
    rules.dedup();
    rules
}

#[test]
fn a_good_history_passes() {
    assert_eq!(violated(|_| {}), [""; 0]);
}

#[test]
fn a_good_graph_passes() {
    assert_eq!(violated_by_graph(|_| {}), [""; 0]);
}

#[test]
fn a_graph_that_exists_in_part_is_found() {
    let rules = violated_by_graph(|history| {
        history.exchanges[0].outcome = Outcome::Unknown;
        history.exchanges.truncate(history.exchanges.len() - 2);
        history.found.pop();
    });
    assert_eq!(rules, ["G8"]);
}

#[test]
fn a_graph_that_is_refused_for_good_is_found() {
    let rules = violated_by_graph(|history| {
        let mut refused = history.exchanges[0].clone();
        refused.outcome = Outcome::Refused("id_empty".to_owned());
        history.exchanges.insert(0, refused);
    });
    assert_eq!(rules, ["P1"]);
}

#[test]
fn a_job_that_runs_before_its_dependency_is_found() {
    let rules = violated_by_graph(|history| {
        let early = history.exchanges.len() - 2;
        history.exchanges[early].sent_at = Duration::from_millis(1_820);
        history.exchanges[early].answered_at = Duration::from_millis(1_830);
    });
    assert_eq!(rules, ["G1"]);
}

#[test]
fn an_input_that_is_not_the_result_is_found() {
    let other = |value: &str| {
        let value = value.to_owned();
        violated_by_graph(|history| {
            let grant = history.exchanges.len() - 2;
            if let Outcome::Leased(leases) = &mut history.exchanges[grant].outcome {
                leases[0].inputs = vec![value];
            }
            if let Operation::Complete { lease, .. } = &mut history.exchanges[grant + 1].operation {
                lease.inputs = vec!["result-2".to_owned()];
            }
        })
    };
    assert!(other("result-1").contains(&"G2"));
    let none = violated_by_graph(|history| {
        let grant = history.exchanges.len() - 2;
        if let Outcome::Leased(leases) = &mut history.exchanges[grant].outcome {
            leases[0].inputs.clear();
        }
    });
    assert!(none.contains(&"G2"));
}

#[test]
fn the_counts_match_the_history() {
    let (_, counts) = check(&good());
    assert_eq!(
        (counts.acknowledged, counts.unknown, counts.grants),
        (1, 1, 2)
    );
    assert_eq!((counts.completed, counts.leases_lost), (0, 1));
}

#[test]
fn a_lost_job_is_found() {
    assert_eq!(violated(|history| history.found.clear()), ["D2"]);
}

#[test]
fn a_job_that_was_refused_and_exists_is_found() {
    let rules = violated(|history| {
        history.exchanges[0].outcome = Outcome::Refused("queue_full".to_owned());
    });
    assert_eq!(rules, ["P6"]);
}

#[test]
fn a_repeat_refused_as_another_job_is_found() {
    let rules = violated(|history| {
        let mut again = history.exchanges[0].clone();
        again.outcome = Outcome::Refused("id_taken".to_owned());
        history.exchanges.insert(1, again);
    });
    assert_eq!(rules, ["P1"]);
}

#[test]
fn a_job_that_never_ended_is_found() {
    assert!(violated(|history| history.found[0].state = "ready".to_owned()).contains(&"T8"));
}

#[test]
fn two_accepted_completions_are_found() {
    let rules = violated(|history| history.exchanges[4].outcome = DONE);
    assert!(rules.contains(&"L3") && rules.contains(&"L5"), "{rules:?}");
}

#[test]
fn a_completion_accepted_twice_as_the_first_is_found() {
    let rules = violated(|history| {
        history.exchanges[5].outcome = DONE;
        history.exchanges[6].outcome = DONE;
    });
    assert_eq!(rules, ["L3"]);
}

#[test]
fn a_wrong_result_is_found() {
    let rules = violated(|history| history.found[0].result = Some("result-1".to_owned()));
    assert!(rules.contains(&"D10"), "{rules:?}");
}

#[test]
fn a_result_from_nowhere_is_found() {
    let rules = violated(|history| {
        history.exchanges.truncate(5);
    });
    assert_eq!(rules, ["D5"]);
}

#[test]
fn a_gap_in_the_attempts_is_found() {
    assert_eq!(
        violated(|history| history.found[0].attempts = vec![2]),
        ["R2"]
    );
}

#[test]
fn an_attempt_leased_twice_is_found() {
    let rules = violated(|history| {
        let mut again = lease(3_000, 3_010, attempt(2));
        if let Outcome::Leased(leases) = &mut again.outcome {
            leases[0].token = "another".to_owned();
        }
        history.exchanges.push(again);
    });
    assert!(rules.contains(&"R2"), "{rules:?}");
}

#[test]
fn an_attempt_missing_in_the_record_is_found() {
    let rules = violated(|history| {
        history.found[0].attempt = 1;
        history.found[0].attempts = vec![1];
    });
    assert!(rules.contains(&"R2"), "{rules:?}");
}

#[test]
fn a_token_issued_twice_is_found() {
    let rules = violated(|history| {
        let again = Lease {
            job: "b".to_owned(),
            ..attempt(2)
        };
        let enqueue = Operation::Enqueue {
            jobs: vec!["b".to_owned()],
        };
        history
            .exchanges
            .push(exchange(2_300, 2_310, enqueue, Outcome::Unknown));
        history.exchanges.push(lease(2_400, 2_410, again));
    });
    assert_eq!(rules, ["L2"]);
}

#[test]
fn two_live_leases_are_found() {
    let rules = violated(|history| history.exchanges[3] = lease(600, 700, attempt(2)));
    assert!(rules.contains(&"L1"), "{rules:?}");
}

#[test]
fn a_lease_lost_before_its_time_is_found() {
    let rules = violated(|history| {
        let refused = Outcome::Refused("lease_lost".to_owned());
        history
            .exchanges
            .insert(3, complete(600, 610, attempt(1), refused));
    });
    assert_eq!(rules, ["T6"]);
}

//! Tests of the model: it does what PostgreSQL was seen to do.

use ganger_store_postgres::rules::{Fault, Place, Target, in_rows};
use ganger_types::ShardId;

use super::server::{Effect, Servers};
use super::statement::{FenceUse, Reply, Statement};
use super::tables::IDENTITY;
use crate::rng::Rng;

/// Servers whose effects come as soon as they can; the standby receives when the test says so.
struct Bench {
    servers: Servers,
    answers: Vec<(u64, Result<Reply, Fault>, Option<String>)>,
    closed: Vec<u64>,
    calls: u64,
}

impl Bench {
    fn new() -> Self {
        Self {
            servers: Servers::new(&ShardId::default(), true, Rng::new(1)),
            answers: Vec::new(),
            closed: Vec::new(),
            calls: 0,
        }
    }

    fn connect(&mut self, name: &str) -> u64 {
        let newest = self.servers.newest();
        self.servers.connect(newest, name)
    }

    fn settle(&mut self) {
        loop {
            let effects = std::mem::take(&mut self.servers.effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                match effect {
                    Effect::Step { session, .. } => self.servers.step(1, session),
                    Effect::Answer {
                        call,
                        result,
                        warning,
                        ..
                    } => self.answers.push((call, result, warning)),
                    Effect::Closed { session } => self.closed.push(session),
                    Effect::LockWaited { .. } | Effect::Idled { .. } | Effect::Replicate { .. } => {
                    }
                }
            }
        }
        assert_eq!(self.servers.broken, None);
    }

    fn begin(&mut self, session: u64, statement: Statement) -> u64 {
        self.calls += 1;
        self.servers.begin(1, session, self.calls, statement);
        self.settle();
        self.calls
    }

    fn replicate(&mut self) {
        let newest = self.servers.newest();
        assert!(self.servers.replicate(1, newest));
        self.settle();
    }

    /// The answer to a call and its warning; `None` if it has not come.
    fn answer(&mut self, call: u64) -> Option<(Result<Reply, Fault>, Option<String>)> {
        let place = self.answers.iter().position(|answer| answer.0 == call)?;
        let (_, result, warning) = self.answers.remove(place);
        Some((result, warning))
    }

    fn done(&mut self, session: u64, statement: Statement) -> Reply {
        let call = self.begin(session, statement);
        let (result, _) = self.answer(call).expect("nothing is in its way");
        result.expect("it is allowed")
    }
}

/// A record whose commit only the rows have.
fn append(epoch: u64, sequence: u64, fence: FenceUse) -> Statement {
    let place = Place {
        identity: IDENTITY,
        epoch,
        sequence,
    };
    Statement::Append {
        target: Target { slot: 0, before: 0 },
        place,
        owner: String::new(),
        body: in_rows(place),
        fence,
    }
}

fn count(reply: Result<Reply, Fault>) -> u64 {
    match reply {
        Ok(Reply::Count(count)) => count,
        other => panic!("not a count: {other:?}"),
    }
}

fn raise(bench: &mut Bench, session: u64, epoch: u64) {
    let write = Statement::WriteFence {
        row: ganger_store_postgres::rules::FenceRow::Log,
        epoch,
        owner: "another".to_owned(),
    };
    bench.done(session, write);
}

#[test]
fn a_claim_waits_for_a_commit_on_its_way_and_sees_it() {
    let mut bench = Bench::new();
    let (owner, claim) = (bench.connect("ganger/0/0"), bench.connect("ganger/0/claim"));
    let appended = bench.begin(owner, append(0, 1, FenceUse::Locked));
    bench.done(claim, Statement::Begin(1));
    let locked = bench.begin(claim, Statement::ReadFence { locks: true });
    assert!(bench.answer(appended).is_none(), "no standby has it");
    assert!(bench.answer(locked).is_none(), "the commit holds the fence");
    bench.replicate();
    let (result, warning) = bench.answer(appended).expect("a standby has it");
    assert_eq!((count(result), warning), (1, None));
    assert!(bench.answer(locked).is_some());
    let ends = bench.done(
        claim,
        Statement::ReadEnds {
            stops_at_gap: false,
        },
    );
    assert!(matches!(ends, Reply::Ends(ends) if ends[0].last == Some(1)));
    raise(&mut bench, claim, 1);
    // What came meanwhile finds the newest version of the row.
    let late = bench.begin(owner, append(0, 2, FenceUse::Locked));
    assert!(bench.answer(late).is_none());
    bench.begin(claim, Statement::Commit);
    bench.replicate();
    let (result, _) = bench.answer(late).expect("nothing is in its way");
    assert_eq!(count(result), 0);
}

#[test]
fn a_weak_lock_lets_a_commit_and_a_claim_pass_each_other() {
    let mut bench = Bench::new();
    let (owner, claim) = (bench.connect("ganger/0/0"), bench.connect("ganger/0/claim"));
    bench.done(claim, Statement::Begin(1));
    bench.done(claim, Statement::ReadFence { locks: true });
    let appended = bench.begin(owner, append(0, 1, FenceUse::Weak));
    bench.replicate();
    let (result, _) = bench.answer(appended).expect("it waits for nobody");
    assert_eq!(count(result), 1);
}

#[test]
fn a_cancelled_wait_answers_success_with_a_warning_and_leaves_no_copy() {
    let mut bench = Bench::new();
    let owner = bench.connect("ganger/0/0");
    let appended = bench.begin(owner, append(0, 1, FenceUse::Locked));
    assert!(bench.servers.cancel_a_wait(0));
    bench.settle();
    let (result, warning) = bench.answer(appended).expect("it waits no more");
    assert_eq!(count(result), 1);
    assert!(warning.is_some_and(|warning| warning.contains("synchronous replication")));
    assert_eq!(bench.servers.all[0].tables.last(), 1);
    assert!(!bench.servers.has_copy(0, 1));
    bench.servers.crash(0);
    assert_eq!(bench.servers.promote(), 1, "the standby never had it");
    assert_eq!(bench.servers.all[1].tables.last(), 0);
}

#[test]
fn a_commit_without_a_client_goes_on_and_a_crash_keeps_what_was_written() {
    let mut bench = Bench::new();
    let (owner, other) = (bench.connect("ganger/0/0"), bench.connect("other"));
    bench.begin(owner, append(0, 1, FenceUse::Locked));
    bench.servers.client_is_gone(owner);
    bench.replicate();
    assert_eq!(bench.servers.all[0].tables.last(), 1);
    assert_eq!(bench.closed, [owner]);
    let appended = bench.begin(other, append(0, 2, FenceUse::Locked));
    bench.servers.crash(0);
    bench.settle();
    assert!(bench.answer(appended).is_none());
    assert_eq!(bench.servers.all[0].tables.last(), 2);
}

#[test]
fn a_claim_gives_up_and_ends_the_sessions_of_the_owner() {
    let mut bench = Bench::new();
    let (owner, claim) = (bench.connect("ganger/0/0"), bench.connect("ganger/0/claim"));
    bench.begin(owner, append(0, 1, FenceUse::Locked));
    bench.done(claim, Statement::Begin(1));
    let locked = bench.begin(claim, Statement::ReadFence { locks: true });
    bench.servers.lock_waited(claim, locked, 1);
    bench.settle();
    let (result, _) = bench.answer(locked).expect("it waited long enough");
    assert!(result.is_err_and(|fault| fault.is_lock_timeout()));
    bench.done(claim, Statement::Rollback);
    bench.done(claim, Statement::EndOwner);
    assert_eq!(bench.closed, [owner]);
    bench.done(claim, Statement::Begin(1));
    bench.done(claim, Statement::ReadFence { locks: true });
}

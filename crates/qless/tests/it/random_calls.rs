//! Random calls of all commands, on few names and on times that go back and forth. After each call the indexes agree
//! with the rows, and a refused call has changed nothing. A state that is loaded from the rows has the same rows and
//! gives the same replies to later calls.

use bytes::Bytes;
use ganger_qless::Qless;
use ganger_types::Elapsed;
use ganger_types::qless::{
    Generation, QlessAnswer, QlessJob, QlessKey, QlessMessage, QlessReply, QlessRequest, QlessRow,
    QlessSet, QlessState,
};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;

/// A call: the caller's generation, the server's time, and the words of the call.
#[derive(Clone, Debug)]
struct Step {
    generation: Generation,
    at: Elapsed,
    words: Vec<String>,
    /// Whether the state is loaded from its rows before the call.
    is_restarted: bool,
}

/// The arguments of each command: a letter for each kind, which [`argument`] explains; arguments after `*` may occur
/// any number of times. A command is called as often as it occurs here.
const COMMANDS: [(&str, &str); 74] = [
    ("put", "wqjkdt*O"),
    ("put", "wqjkdt*O"),
    ("put", "wqjkdt*O"),
    ("put", "wqjkdt*O"),
    ("put", "wqjkdt*O"),
    ("put", "wqjkdt*O"),
    ("requeue", "wqjkdt*O"),
    ("pop", "qwn"),
    ("pop", "qwn"),
    ("pop", "qwn"),
    ("pop", "qwn"),
    ("pop", "qwn"),
    ("pop", "qwn"),
    ("peek", "qnn"),
    ("complete", "JWQd*N"),
    ("complete", "JWQd*N"),
    ("complete", "JWQd*N"),
    ("complete", "JWQd"),
    ("complete", "JWQd"),
    ("fail", "JWgm"),
    ("fail", "JWgmd"),
    ("fail", "JWgmd"),
    ("retry", "JQWtgm"),
    ("retry", "JQW"),
    ("retry", "JqWtg"),
    ("unfail", "qgn"),
    ("failed", "gnn"),
    ("failed", ""),
    ("cancel", "*j"),
    ("cancel", "*j"),
    ("heartbeat", "JW"),
    ("heartbeat", "JWd"),
    ("depends", "jo*j"),
    ("depends", "jo*j"),
    ("depends", "jo*j"),
    ("timeout", "J"),
    ("timeout", "J"),
    ("timeout", "J*j"),
    ("priority", "jn"),
    ("get", "j"),
    ("multiget", "*j"),
    ("track", "xj"),
    ("track", ""),
    ("jobs", "sqnn"),
    ("log", "jmd"),
    ("tag", "ajjj"),
    ("tag", "aqqq"),
    ("tag", "ann"),
    ("recur", "qrkdit*R"),
    ("recur", "qrkdit*R"),
    ("recur", "qrkdit*R"),
    ("recur.get", "r"),
    ("recur.update", "r*U"),
    ("recur.tag", "r*q"),
    ("recur.untag", "r*q"),
    ("unrecur", "r"),
    ("length", "q"),
    ("queues", "*q"),
    ("pause", "q"),
    ("unpause", "q"),
    ("unpause", "q"),
    ("unpause", "q"),
    ("queue.forget", "q"),
    ("stats", "qt"),
    ("workers", "*w"),
    ("worker.deregister", "w"),
    ("config.get", "*c"),
    ("config.set", "cn"),
    ("config.unset", "c"),
    ("throttle.set", "Tnt"),
    ("throttle.delete", "T"),
    ("throttle.release", "Tj"),
    ("queue.throttle.set", "qn"),
    ("queue.throttle.get", "q"),
];

const JIDS: [&str; 9] = ["a", "a", "a", "b", "b", "c", "r-1", "r-2", "''"];
const TIMES: [&str; 10] = [
    "0", "1", "1.5", "59.75", "60", "61", "75", "140", "700000", "-5",
];

/// Generates an argument of a kind; some kinds are several words.
fn argument(kind: char) -> BoxedStrategy<Vec<String>> {
    let one_of = |words: &'static [&'static str]| {
        select(words)
            .prop_map(|words| words.split(' ').map(str::to_owned).collect())
            .boxed()
    };
    match kind {
        'w' => one_of(&["w", "w", "w", "w", "v", "''"]),
        'q' => one_of(&["q", "q", "q", "q", "p"]),
        'j' => one_of(&JIDS),
        'r' => one_of(&["r", "r", "r", "a"]),
        // `@` stands for a job that a worker holds at the time of the call.
        'J' => one_of(&["@jid", "@jid", "@jid", "@jid", "@jid", "@jid", "a"]),
        'W' => one_of(&["@worker", "@worker", "@worker", "@worker", "@worker", "v"]),
        'Q' => one_of(&["@queue", "@queue", "@queue", "@queue", "@queue", "p"]),
        'k' | 'm' => one_of(&["k", "m\n"]),
        'd' => one_of(&["{}", "{}", "[1,2]", "{\"a\":\"b\"}", "{}", "{}", "{}", "no"]),
        't' => one_of(&["0", "0", "0", "0", "0", "0", "1.5", "30", "-10", "x"]),
        'n' => one_of(&["0", "1", "1", "1", "2", "2", "3", "5", "-1", "0.5", "x"]),
        'i' => one_of(&[
            "interval 60",
            "interval 7.5",
            "interval 60",
            "interval 0.25",
            "daily 1",
        ]),
        'g' => one_of(&["failed-retries-q", "g", "h"]),
        'o' => one_of(&["on", "off", "on", "off", "off all", "maybe"]),
        'x' => one_of(&["track", "untrack"]),
        'a' => one_of(&["add", "remove", "get", "top"]),
        's' => one_of(&[
            "complete",
            "running",
            "stalled",
            "scheduled",
            "depends",
            "recurring",
            "throttled",
        ]),
        'c' => one_of(&[
            "heartbeat",
            "q-heartbeat",
            "grace-period",
            "max-job-history",
            "jobs-history",
            "jobs-history-count",
            "q-max-concurrency",
            "max-worker-age",
            "max-pop-retry",
        ]),
        'T' => one_of(&["T", "ql:q:q"]),
        'O' => pair(&[
            ("depends", "[\"a\"]"),
            ("depends", "[\"b\",\"r-1\"]"),
            ("depends", "[]"),
            ("priority", "1"),
            ("priority", "-2.5"),
            ("retries", "0"),
            ("retries", "1"),
            ("tags", "[\"q\",1,\"q\"]"),
            ("tags", "{}"),
            ("throttles", "[\"T\"]"),
            ("throttles", "[\"T\",\"ql:q:p\"]"),
            ("tags", "{\"a\":1}"),
        ]),
        'N' => pair(&[
            ("next", "q"),
            ("next", "p"),
            ("delay", "0"),
            ("delay", "20"),
            ("depends", "[\"a\",\"b\"]"),
            ("depends", "[]"),
        ]),
        'R' => pair(&[
            ("backlog", "1"),
            ("priority", "3"),
            ("retries", "1"),
            ("tags", "[\"q\"]"),
            ("throttles", "[\"T\"]"),
        ]),
        'U' => pair(&[
            ("interval", "10"),
            ("interval", "0.25"),
            ("queue", "p"),
            ("backlog", "-1"),
            ("klass", "l"),
            ("unknown", "1"),
        ]),
        kind => unreachable!("no kind {kind}"),
    }
}

fn pair(pairs: &'static [(&'static str, &'static str)]) -> BoxedStrategy<Vec<String>> {
    select(pairs)
        .prop_map(|(option, value)| vec![option.to_owned(), value.to_owned()])
        .boxed()
}

fn arguments(kinds: &str) -> BoxedStrategy<Vec<String>> {
    let (fixed, repeated) = kinds.split_once('*').unwrap_or((kinds, ""));
    let fixed: Vec<_> = fixed.chars().map(argument).collect();
    let repeated: Vec<_> = repeated
        .chars()
        .map(|kind| prop::collection::vec(argument(kind), 0..4).prop_map(|it| it.concat()))
        .collect();
    (fixed, repeated)
        .prop_map(|(fixed, repeated)| [fixed.concat(), repeated.concat()].concat())
        .boxed()
}

fn step() -> impl Strategy<Value = Step> {
    let words = select(&COMMANDS[..]).prop_flat_map(|(command, kinds)| {
        (select(&TIMES[..]), arguments(kinds)).prop_map(move |(now, arguments)| {
            let mut words = vec![command.to_owned(), now.to_owned()];
            words.extend(arguments);
            words
        })
    });
    // The first generation is the least frequent.
    let generation = select(vec![
        Generation::Two,
        Generation::Three,
        Generation::Two,
        Generation::Three,
        Generation::One,
    ]);
    let at = (0..100_u64).prop_map(|seconds| Elapsed(seconds * 1_000_001));
    let is_restarted = (0..10_u8).prop_map(|it| it == 0);
    (generation, at, words, is_restarted).prop_map(|(generation, at, words, is_restarted)| Step {
        generation,
        at,
        words,
        is_restarted,
    })
}

fn call(qless: &mut Qless, step: &Step) -> (QlessAnswer, Vec<QlessMessage>) {
    let held = held_job(qless, step);
    let mut messages = Vec::new();
    let words = step.words.iter().map(|word| match (&held, &word[..]) {
        (_, "''") => Bytes::new(),
        (Some(job), "@jid") => job.jid.clone(),
        (Some(job), "@worker") => job.worker.clone(),
        (Some(job), "@queue") => job.queue.clone(),
        (_, word) => Bytes::from(word.to_owned()),
    });
    let mut words: Vec<Bytes> = words.collect();
    // Calls of the first generation do not contain the worker.
    if step.generation == Generation::One && words[0] == "put" {
        words.remove(2);
    }
    let request = QlessRequest::Script {
        generation: step.generation,
        words,
    };
    let answer = qless.call(step.at, request, &mut messages);
    (answer, messages)
}

/// Returns one of the jobs that a worker holds, if the step refers to one and there is one.
fn held_job(qless: &Qless, step: &Step) -> Option<QlessJob> {
    let is_about_one = step.words.iter().any(|word| word.starts_with('@'));
    let mut held = qless.rows();
    held.retain(|row| matches!(row, QlessRow::Job(job) if job.state == QlessState::Running));
    let wanted = usize::try_from(step.at.0).ok()?.checked_rem(held.len())?;
    match held.swap_remove(wanted) {
        QlessRow::Job(job) if is_about_one => Some(QlessJob::clone(&job)),
        _ => None,
    }
}

fn assert_sound(qless: &Qless, step: &Step) {
    let mut wrong = Vec::new();
    qless.check(&mut wrong);
    assert!(wrong.is_empty(), "after {:?}: {wrong:#?}", step.words);
}

/// Checks that exactly the jobs that changed were touched, and that each was reported with its correct earlier
/// position.
fn assert_touched(qless: &mut Qless, before: &[QlessRow], step: &Step) {
    let jobs = |rows: &[QlessRow]| -> BTreeMap<Bytes, QlessJob> {
        let job = |row: &QlessRow| match row {
            QlessRow::Job(job) => Some((job.jid.clone(), QlessJob::clone(job))),
            _ => None,
        };
        rows.iter().filter_map(job).collect()
    };
    let (mut stood, now) = (jobs(before), jobs(&qless.rows()));
    qless.take_touched(|touched| {
        let (jid, old) = (&touched.job.jid, stood.get(&touched.job.jid));
        let told = touched
            .before
            .map(|it| (it.state, &it.queue, it.handed_out));
        let expected = old.map(|it| (it.state, &it.queue, it.handed_out));
        assert_eq!(told, expected, "{jid:?} after {:?}", step.words);
        if touched.is_gone {
            stood.remove(jid);
        } else {
            assert_eq!(now.get(jid), Some(touched.job));
            stood.insert(jid.clone(), touched.job.clone());
        }
    });
    assert_eq!(stood, now, "after {:?}", step.words);
}

/// Loads a state from rows, in reverse order.
fn read_back(rows: &BTreeMap<QlessKey, QlessRow>) -> Qless {
    let mut qless = Qless::default();
    for row in rows.values().rev() {
        qless.load(row.clone());
    }
    assert!(qless.take_changed().is_empty());
    qless
}

/// Returns the replies of several commands to a copy of the state.
fn answers(qless: &Qless) -> Vec<(QlessAnswer, Vec<QlessMessage>)> {
    let lines = [
        "queues 61",
        "workers 61",
        "workers 61 w",
        "failed 0",
        "failed 0 g",
        "tag 0 top 0 25",
        "tag 0 get q",
        "track 0",
        "jobs 0 complete 0 25",
        "jobs 0 depends q",
        "jobs 0 recurring q",
        "jobs 0 throttled q",
        "stats 0 q 0",
        "config.get 0",
        "throttle.locks 0 T",
        "throttle.pending 0 T",
        "peek 61 q 0 100",
        "peek 61 p 0 100",
        "multiget 0 a b c r r-1 r-2",
    ];
    let mut copy = qless.clone();
    lines
        .iter()
        .map(|line| {
            let step = Step {
                generation: Generation::Three,
                at: Elapsed(0),
                words: line.split(' ').map(str::to_owned).collect(),
                is_restarted: false,
            };
            call(&mut copy, &step)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_called_the_state_is_sound_and_reads_back_the_same(steps in prop::collection::vec(step(), 1..120)) {
        let mut qless = Qless::default();
        // The rows in the store: what each call reports as changed.
        let mut stored = BTreeMap::new();
        for step in &steps {
            if step.is_restarted {
                qless = read_back(&stored);
            }
            let before = qless.rows();
            let (answer, messages) = call(&mut qless, step);
            assert_sound(&qless, step);
            assert_touched(&mut qless, &before, step);
            let changed = qless.take_changed();
            if answer.is_err() {
                prop_assert_eq!(&qless.rows(), &before);
                prop_assert!(messages.is_empty() && changed.is_empty());
            }
            for (key, row) in changed {
                match row {
                    Some(row) => drop(stored.insert(key, row)),
                    None => drop(stored.remove(&key)),
                }
            }
            let rows: Vec<QlessRow> = stored.values().cloned().collect();
            prop_assert_eq!(&qless.rows(), &rows, "after {:?}", step.words);
        }
        let again = read_back(&stored);
        prop_assert_eq!(again.rows(), qless.rows());
        prop_assert_eq!(answers(&again), answers(&qless));
    }

    #[test]
    fn nothing_is_left_after_everything_is_cleared(steps in prop::collection::vec(step(), 1..40)) {
        let mut qless = Qless::default();
        for step in &steps {
            call(&mut qless, step).0.ok();
        }
        let known: Vec<QlessKey> = qless.rows().iter().map(QlessRow::key).collect();
        qless.take_changed();
        prop_assert_eq!(qless.call(Elapsed(0), QlessRequest::Clear, &mut Vec::new()), Ok(QlessReply::Nil));
        let changed = qless.take_changed();
        prop_assert!(changed.iter().all(|(_, row)| row.is_none()));
        let gone: Vec<QlessKey> = changed.into_iter().map(|(key, _)| key).collect();
        prop_assert_eq!(gone, known);
        let work = QlessRequest::Count { queue: Bytes::from("q"), set: QlessSet::Work };
        prop_assert_eq!(qless.call(Elapsed(0), work, &mut Vec::new()), Ok(QlessReply::Number(0)));
    }
}

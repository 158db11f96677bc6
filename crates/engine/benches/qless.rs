//! The cost of a job of qless in the engine: put, then pop and complete one by one and by fifties.
//!
//! `cargo bench -p ganger-engine --bench qless` prints operations a second of the engine alone, without the port,
//! without the store. Jids are as random as the ones that clients make.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock; the engine does not"
)]
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails should stop")]
#![allow(missing_docs, reason = "a benchmark has no readers of its items")]

use std::time::Instant;

use ganger_engine::{Effects, Engine, Loader, PrefetchedRows, Start};
use ganger_types::qless::{Generation, QlessReply, QlessRequest};
use ganger_types::{
    Bytes, Command, Elapsed, Epoch, ExternalReply, Meta, Namespace, Now, QlessCall, Reply,
    Timestamp,
};

/// Number of jobs in a load.
const JOBS: u32 = 80_000;
/// Number of calls in a turn.
const TURN: u32 = 200;
const DATA: &str = r#"{"text":"0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"}"#;

fn main() {
    let mut host = Host::new();
    let jids: Vec<String> = (0..2 * JOBS).map(jid).collect();
    let (first, second) = jids.split_at(jids.len() / 2);
    measure("put", || host.put(first));
    measure("pop + complete", || host.pop(1));
    host.put(second);
    measure("pop of 50 + complete of each", || host.pop(50));
}

fn measure(what: &str, load: impl FnOnce()) {
    let begun = Instant::now();
    load();
    let rate = f64::from(JOBS) / begun.elapsed().as_secs_f64();
    let (each, jobs) = (1e6 / rate, rate.round());
    println!("{what:<30} {jobs:>9} a second, {each:>6.2} us each");
}

/// 32 hexadecimal digits that look random.
fn jid(number: u32) -> String {
    let high = u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{high:016x}{:016x}", high.rotate_left(29))
}

/// The engine with its host, which calls it in turns.
struct Host {
    engine: Engine,
    out: Effects,
    calls: u32,
}

impl Host {
    fn new() -> Self {
        let start = Start {
            shard: ganger_types::ShardId::default(),
            epoch: Epoch(1),
            seed: [1; 32],
            meta: Meta::default(),
            now: now(0),
        };
        Self {
            engine: Loader::new(start).finish(),
            out: Effects::default(),
            calls: 0,
        }
    }

    fn put(&mut self, jids: &[String]) {
        for jid in jids {
            self.call(&["put", "1763769600.5", "w", "load", jid, "k", DATA, "0"]);
        }
    }

    /// Pops and completes jobs until none is left.
    fn pop(&mut self, at_once: usize) {
        let count = at_once.to_string();
        loop {
            let popped = self.call(&["pop", "1763769601.5", "load", "w", &count]);
            let jids = jids_in(&popped);
            if jids.is_empty() {
                return;
            }
            for jid in jids {
                self.call(&["complete", "1763769602.5", jid, "w", "load", DATA]);
            }
        }
    }

    /// Calls the script with copied words, as the port does.
    fn call(&mut self, words: &[&str]) -> String {
        let words = words
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()));
        let request = QlessRequest::Script {
            generation: Generation::Two,
            words: words.collect(),
        };
        let command = Command::from(QlessCall {
            namespace: Namespace::default(),
            request,
        });
        let now = now(u64::from(self.calls));
        let known = PrefetchedRows::default();
        let answer = self.engine.apply(now, command, &known, &mut self.out);
        self.calls += 1;
        if self.calls.is_multiple_of(TURN) {
            self.engine.end_turn(now, &mut self.out);
            self.out = Effects::default();
        }
        match answer.unwrap() {
            Reply::External(ExternalReply::Qless(Ok(QlessReply::Text(text)))) => {
                String::from_utf8(text.into()).unwrap()
            }
            other => panic!("a call is answered with text, not with {other:?}"),
        }
    }
}

fn now(micros: u64) -> Now {
    Now {
        elapsed: Elapsed(micros),
        wall: Timestamp(1_763_769_600_000_000 + micros),
    }
}

/// The values of every key `jid` in some JSON.
fn jids_in(json: &str) -> Vec<&str> {
    let rest = json.split(r#""jid":""#).skip(1);
    rest.filter_map(|rest| rest.split('"').next()).collect()
}

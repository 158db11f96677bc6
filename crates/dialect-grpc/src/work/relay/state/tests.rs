//! A worker, a relay and a shard in memory: the inner stream breaks anywhere.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;

use super::*;

/// Deliveries of the shard in one message.
const IN_MESSAGE: usize = 2;

/// Number of kinds of steps.
const STEPS: u8 = 16;
/// Kind of step: the worker drops its credits.
const DROP: u8 = 3;
/// Kind of step: the inner stream breaks.
const BREAK: u8 = 13;

/// The shard: its session with the worker outlives the inner streams.
#[derive(Default)]
struct Shard {
    jobs: u32,
    /// The last batch, by its number.
    granted: Option<(u64, Vec<String>)>,
    completed: BTreeSet<String>,
    /// Whether it has granted a batch again.
    has_repeated: bool,
    /// Of the inner stream.
    has_hello: bool,
    credits: u32,
    received: u64,
    batch: u64,
}

impl Shard {
    fn receive(&mut self, message: &WorkerEnvelope) -> ServerEnvelope {
        self.received += 1;
        let mut answer = ServerEnvelope::default();
        if let Some(hello) = &message.hello {
            assert!(!std::mem::replace(&mut self.has_hello, true), "one hello");
            let hello = v1::Hello::decode(hello.clone()).expect("a hello");
            self.batch = hello.batches_received;
            answer.welcome = Some(Bytes::from_static(b"\x0a\x01v"));
        }
        assert!(self.has_hello, "hello comes first");
        if message.credits_dropped {
            self.credits = 0;
        }
        self.credits += message.credits_added;
        for report in &message.reports {
            let report = v1::Report::decode(report.clone()).expect("a report");
            let Some(v1::report::What::Complete(done)) = report.what else {
                panic!("it is a completion");
            };
            if self.completed.insert(done.held.expect("a job").job) {
                answer.completed.push(report.number);
            } else {
                let repeat = v1::ReportAnswer {
                    number: report.number,
                    outcome: None,
                };
                answer.answers.push(repeat.encode_to_vec().into());
            }
        }
        answer
    }

    /// Grants at most so many jobs; those of a batch that was lost are granted again.
    fn grant(&mut self, max: u32) -> Vec<ServerEnvelope> {
        if self.credits == 0 || !self.has_hello {
            return Vec::new();
        }
        let jobs = match self.granted.take() {
            Some((batch, jobs)) if batch == self.batch + 1 => {
                let live = jobs.into_iter().filter(|job| !self.completed.contains(job));
                self.has_repeated = true;
                live.collect()
            }
            _ => {
                let new = self.jobs..self.jobs + max.min(self.credits);
                self.jobs = new.end;
                new.map(|job| job.to_string()).collect::<Vec<_>>()
            }
        };
        self.batch += 1;
        self.granted = Some((self.batch, jobs.clone()));
        self.credits = self
            .credits
            .saturating_sub(u32::try_from(jobs.len()).expect("few"));
        let mut messages: Vec<_> = jobs
            .chunks(IN_MESSAGE)
            .map(|jobs| ServerEnvelope {
                deliveries: jobs.iter().map(|job| delivery(job)).collect(),
                heard: self.received,
                ..ServerEnvelope::default()
            })
            .collect();
        if messages.is_empty() {
            messages.push(ServerEnvelope::default());
        }
        messages.last_mut().expect("there is one").batch = self.batch;
        messages
    }

    /// The inner stream has ended.
    fn forget(&mut self) {
        (self.has_hello, self.credits, self.received) = (false, 0, 0);
    }
}

fn delivery(job: &str) -> Bytes {
    let delivery = v1::Delivery {
        job: job.to_owned(),
        token: Bytes::from(format!("token {job}")),
        ..v1::Delivery::default()
    };
    delivery.encode_to_vec().into()
}

/// The worker, and what it has seen of its stream.
#[derive(Default)]
struct Worker {
    sent: u64,
    /// Number of the message that dropped the credits.
    dropped_at: u64,
    credits: u32,
    held: VecDeque<(String, Bytes)>,
    seen: BTreeSet<String>,
    /// Whether each job uses a credit. Not so once credits were dropped and a batch was granted again: it may have been
    /// granted for them.
    is_exact: bool,
    /// Jobs that were reported, by the numbers of the reports without an answer.
    unanswered: BTreeMap<u64, String>,
    batch: u64,
    is_welcomed: bool,
}

impl Worker {
    fn hello(&mut self) -> WorkerEnvelope {
        self.sent = 1;
        let hello = v1::Hello {
            worker: "w".to_owned(),
            session: "s".to_owned(),
            ..v1::Hello::default()
        };
        WorkerEnvelope {
            hello: Some(hello.encode_to_vec().into()),
            ..WorkerEnvelope::default()
        }
    }

    fn speak(
        &mut self,
        credits_added: u32,
        credits_dropped: bool,
        reports: usize,
    ) -> WorkerEnvelope {
        self.sent += 1;
        if credits_dropped {
            (self.credits, self.dropped_at) = (0, self.sent);
        }
        self.credits += credits_added;
        let count = reports.min(self.held.len());
        let done: Vec<_> = self.held.drain(..count).collect();
        let reports = done.into_iter().map(|(job, token)| {
            let number = job.parse().expect("a number");
            let held = Some(v1::Held {
                job: job.clone(),
                token,
            });
            let done = v1::Completion {
                held,
                ..v1::Completion::default()
            };
            self.unanswered.insert(number, job);
            let report = v1::Report {
                number,
                what: Some(v1::report::What::Complete(done)),
            };
            Bytes::from(report.encode_to_vec())
        });
        WorkerEnvelope {
            hello: None,
            credits_added,
            credits_dropped,
            reports: reports.collect(),
        }
    }

    fn hear(&mut self, message: &ServerEnvelope) {
        if message.welcome.is_some() {
            assert!(
                !std::mem::replace(&mut self.is_welcomed, true),
                "one welcome"
            );
        }
        assert!(!message.drain, "the worker's node goes on");
        assert!(message.heard <= self.sent);
        for number in &message.completed {
            assert!(self.unanswered.remove(number).is_some(), "answered once");
        }
        for answer in &message.answers {
            let number = number(answer).expect("a number");
            assert!(self.unanswered.remove(&number).is_some(), "answered once");
        }
        for delivery in &message.deliveries {
            let Delivered { job, token } = Delivered::read(delivery).expect("a delivery");
            assert!(
                self.seen.insert(job.clone()),
                "job {job} was delivered twice"
            );
            self.held.push_back((job, token));
            if message.heard >= self.dropped_at {
                assert!(!self.is_exact || self.credits > 0, "each job uses a credit");
                self.credits = self.credits.saturating_sub(1);
            }
        }
        if message.batch > 0 {
            assert_eq!(message.batch, self.batch + 1, "batches are counted on");
            self.batch = message.batch;
        }
    }
}

/// All of them, and what is on its way.
#[derive(Default)]
struct World {
    worker: Worker,
    relay: StreamState,
    shard: Shard,
    is_open: bool,
    to_shard: VecDeque<WorkerEnvelope>,
    to_relay: VecDeque<ServerEnvelope>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            is_open: true,
            ..Self::default()
        };
        let hello = world.worker.hello();
        world.say(hello);
        world
    }

    fn say(&mut self, message: WorkerEnvelope) {
        self.relay.receive(&message);
        if self.is_open {
            let message = self.relay.pass_in(message);
            self.to_shard.push_back(message);
        }
    }

    fn shard_reads(&mut self) -> bool {
        let read = self.to_shard.pop_front();
        if let Some(message) = &read {
            let answer = self.shard.receive(message);
            self.to_relay.push_back(answer);
        }
        read.is_some()
    }

    fn relay_reads(&mut self) -> bool {
        let read = self.to_relay.pop_front();
        let is_read = read.is_some();
        if let Some(message) = read {
            let message = self.relay.pass_out(message);
            self.worker.is_exact = self.worker.dropped_at == 0 || !self.shard.has_repeated;
            self.worker.hear(&message);
        }
        is_read
    }

    fn break_off(&mut self) {
        self.is_open = false;
        self.to_shard.clear();
        self.to_relay.clear();
        self.shard.forget();
    }

    fn open_again(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.to_shard = self.relay.resume().into();
        }
    }

    fn step(&mut self, step: u8) {
        let amount = u32::from(step / STEPS);
        match step % STEPS {
            0..=2 => {
                let message = self.worker.speak(amount, false, 2);
                self.say(message);
            }
            DROP => {
                let message = self.worker.speak(amount, true, 1);
                self.say(message);
            }
            4..=6 => drop(self.shard_reads()),
            7..=9 => {
                let granted = self.shard.grant(1 + amount);
                self.to_relay.extend(granted);
            }
            10..=12 => drop(self.relay_reads()),
            BREAK => self.break_off(),
            _ => self.open_again(),
        }
    }

    /// Lets everything arrive, and looks at the end.
    fn settle(&mut self) {
        self.open_again();
        while self.shard_reads() || self.relay_reads() {}
        // The shard grants again what was lost.
        let granted = self.shard.grant(0);
        self.to_relay.extend(granted);
        while self.relay_reads() {}
        let message = self.worker.speak(0, false, usize::MAX);
        self.say(message);
        while self.shard_reads() || self.relay_reads() {}
        self.worker.is_exact = self.worker.dropped_at == 0 || !self.shard.has_repeated;
        if self.worker.is_exact {
            let credits = (self.shard.credits, self.worker.credits);
            assert_eq!(credits.0, credits.1, "no credit is lost or made");
        }
        assert!(self.worker.unanswered.is_empty(), "each report is answered");
        assert_eq!(self.relay.unanswered_bytes(), 0);
    }
}

proptest! {
    #[test]
    fn a_worker_notices_nothing_of_inner_streams_that_break(
        steps in prop::collection::vec(any::<u8>(), 0..200),
        without in prop::sample::select(vec![None, Some(DROP), Some(BREAK)]),
    ) {
        let mut world = World::new();
        for step in steps {
            if Some(step % STEPS) != without {
                world.step(step);
            }
        }
        world.settle();
    }
}

#[test]
fn credits_on_their_way_do_not_count_twice_when_a_batch_is_sent_again() {
    let mut world = World::new();
    // Nine credits and a batch of nine jobs, of which two arrive; three credits more while it comes again.
    for step in [144, 212, 202, 148, 231, 138, 218, 221, 78, 148, 183, 48] {
        world.step(step);
    }
    world.settle();
}

#[test]
fn a_new_inner_stream_begins_with_all_reports_in_messages_of_a_bounded_size() {
    let mut state = StreamState::default();
    let report = |number: u64, bytes: usize| {
        let done = v1::Completion {
            result: Some(vec![0; bytes].into()),
            ..v1::Completion::default()
        };
        let report = v1::Report {
            number,
            what: Some(v1::report::What::Complete(done)),
        };
        Bytes::from(report.encode_to_vec())
    };
    let many = u64::try_from(REPORTS_MAX).expect("it fits");
    let small = (0..=many).map(|number| report(number, 1));
    let large = (10_001..=10_003).map(|number| report(number, MESSAGE_BYTES_MAX));
    let reports: Vec<_> = small.chain(large).collect();
    state.receive(&WorkerEnvelope {
        hello: Some(v1::Hello::default().encode_to_vec().into()),
        credits_added: 7,
        reports: reports.clone(),
        ..WorkerEnvelope::default()
    });
    let messages = state.resume();
    assert_eq!(
        messages.len(),
        5,
        "two of small reports, three of a large one"
    );
    assert!(messages[0].hello.is_some() && messages[0].credits_added == 7);
    assert!(
        messages[1..]
            .iter()
            .all(|it| it.hello.is_none() && it.credits_added == 0)
    );
    let sent: Vec<_> = messages.into_iter().flat_map(|it| it.reports).collect();
    assert!(sent == reports, "all are there, in their order");
    assert!(state.has_room(), "three megabytes are not too much");
}

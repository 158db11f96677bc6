//! Seeds of the record target: the records that an engine writes in a short run.

use std::time::Duration;

use ganger_engine::{Effects, Engine, Loader, PrefetchedRows, Start};
use ganger_store::encoding::encode;
use ganger_types::command::{
    Complete, ConfigureQueue, Dependency, Enqueue, Fail, Lease, LeaseRef, NewEdge, NewInput,
    NewJob, QueueChange, TakeFrom, Unique,
};
use ganger_types::{
    Bytes, Change, Command, Elapsed, Epoch, FailurePolicy, Group, IdempotencyKey, Kind, Meta, Now,
    Queue, QueueSettings, Reply, Tag, Timestamp, UniqueKey, Worker,
};

/// Returns one input for each written record, with its kind as first byte.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut run = EngineRun::new();
    let edge = NewEdge {
        dependency: Dependency::Member(0),
        policy: FailurePolicy::Ignore,
    };
    let first = NewJob {
        kind: Kind::from_static("first"),
        payload: Bytes::from_static(b"{\"a\": 1}"),
        tags: vec![Tag::from_static("tag")],
        unique: Some(Unique {
            key: UniqueKey::from_static("key"),
            window: Some(Duration::from_mins(1)),
        }),
        tracked: true,
        ..NewJob::default()
    };
    let second = NewJob {
        kind: Kind::from_static("second"),
        inputs: vec![
            NewInput::Value(Bytes::from_static(b"1")),
            NewInput::Result(edge),
        ],
        ..NewJob::default()
    };
    run.apply(Command::ConfigureQueue(Box::new(ConfigureQueue {
        namespace: <_>::default(),
        queue: Queue::default(),
        change: QueueChange::All(QueueSettings::default()),
    })));
    run.apply(Command::Enqueue(Box::new(Enqueue {
        jobs: vec![first, second],
        idempotency_key: Some(IdempotencyKey::from_static("claim")),
        graph: true,
        ..Enqueue::default()
    })));
    for is_failing in [true, false] {
        run.run_one(is_failing);
    }
    run.inputs
}

struct EngineRun {
    engine: Engine,
    now: Now,
    inputs: Vec<Vec<u8>>,
}

impl EngineRun {
    fn new() -> Self {
        let now = Now {
            elapsed: Elapsed(1_000_000),
            wall: Timestamp(1_900_000_000_000_000),
        };
        let engine = Loader::new(Start {
            shard: ganger_types::ShardId::default(),
            epoch: Epoch(1),
            seed: [7; 32],
            meta: Meta::default(),
            now,
        })
        .finish();
        Self {
            engine,
            now,
            inputs: Vec::new(),
        }
    }

    /// Runs a turn with one command, a minute after the last one.
    fn apply(&mut self, command: Command) -> Option<Reply> {
        self.now.elapsed.0 += 60_000_000;
        self.now.wall.0 += 60_000_000;
        let mut effects = Effects::default();
        self.engine.advance(self.now, 100, &mut effects);
        let answer = self
            .engine
            .apply(self.now, command, &PrefetchedRows::default(), &mut effects);
        self.engine.end_turn(self.now, &mut effects);
        self.inputs.extend(effects.changes.iter().filter_map(input));
        let mut meta = vec![9];
        meta.extend(encode(&self.engine.meta()));
        self.inputs.push(meta);
        answer.ok()
    }

    /// Leases a job and ends its attempt.
    fn run_one(&mut self, is_failing: bool) {
        let lease = Lease {
            queues: vec![TakeFrom {
                queue: Queue::default(),
                weight: 1,
            }],
            worker: Some(Worker::from_static("worker")),
            jobs_max: 1,
            ..Lease::default()
        };
        let Some(Reply::Leased(grants)) = self.apply(Command::Lease(Box::new(lease))) else {
            return;
        };
        for grant in grants {
            let held = LeaseRef {
                namespace: grant.namespace,
                job: grant.job,
                token: grant.token,
            };
            self.apply(if is_failing {
                Command::Fail(Box::new(Fail {
                    held,
                    group: Group::from_static("group"),
                    message: "message".to_owned(),
                    permanent: false,
                    retry_after: Some(Duration::ZERO),
                    lost: false,
                }))
            } else {
                Command::Complete(Box::new(Complete {
                    held,
                    result: Some(Bytes::from_static(b"2")),
                    next: None,
                }))
            });
        }
    }
}

/// Returns the input for a change; `None` if the change writes no record.
fn input(change: &Change) -> Option<Vec<u8>> {
    let (kind, bytes) = match change {
        Change::PutJob(record) | Change::FinishJob { record, .. } | Change::PutFinished(record) => {
            (0, encode(record.as_ref()))
        }
        Change::PutLease(record) => (1, encode(record.as_ref())),
        Change::PutInput(row) => (2, encode(row)),
        Change::PutQueue(record) => (3, encode(record.as_ref())),
        Change::PutNamespace(record) => (4, encode(record.as_ref())),
        Change::PutSchedule(record) => (5, encode(record.as_ref())),
        Change::PutStatistics(record) => (6, encode(record.as_ref())),
        Change::PutUnique(record) => (7, encode(record.as_ref())),
        Change::PutIdempotencyRecord(record) => (8, encode(record.as_ref())),
        _ => return None,
    };
    let mut input = vec![kind];
    input.extend(bytes);
    Some(input)
}

#[cfg(test)]
mod tests {
    use super::seeds;

    #[test]
    fn a_short_run_writes_most_kinds_of_records() {
        let mut kinds: Vec<u8> = seeds()
            .iter()
            .filter_map(|input| input.first().copied())
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert!(kinds.len() >= 8, "{kinds:?}");
    }
}

//! Several shards, and the delivery of messages between them: in order, twice, late, or not at all.

use std::collections::BTreeMap;

use ganger_engine::{ShardParts, ShardedSubmission};
use ganger_types::command::*;
use ganger_types::query::Query;
use ganger_types::*;

use super::World;

pub struct Cluster {
    pub shards: BTreeMap<ShardId, World>,
}

pub fn shard(name: &str) -> ShardId {
    ShardId::new(name).expect("a good name")
}

impl Cluster {
    pub fn new(names: &[&str]) -> Self {
        let shards = names.iter().map(|name| shard(name));
        Self {
            shards: shards
                .map(|id| (id.clone(), World::of_shard(&id)))
                .collect(),
        }
    }

    pub fn at(&mut self, shard: &ShardId) -> &mut World {
        self.shards.get_mut(shard).expect("the shard exists")
    }

    pub fn named(&mut self, name: &str) -> &mut World {
        self.at(&shard(name))
    }

    /// Reserves numbers on every shard and splits the submission.
    pub fn cut(&mut self, spread: ShardedSubmission) -> ShardParts {
        spread.check().expect("the submission is sound");
        let mut numbers = BTreeMap::new();
        for (shard, jobs) in spread.counts() {
            let reply = self.at(&shard).ok(Command::Reserve(Reserve { jobs }));
            let Reply::Reserved { first, id_tag } = reply else {
                panic!("{reply:?}");
            };
            numbers.insert(shard, (first, id_tag));
        }
        spread.split(&numbers)
    }

    pub fn prepare(&mut self, parts: &ShardParts) {
        for (shard, part) in &parts.parts {
            self.at(shard).ok(Command::Prepare(Box::new(part.clone())));
        }
    }

    pub fn decide(&mut self, parts: &ShardParts, is_committed: bool) -> Answer {
        let decider = &parts.parts[0].0;
        self.at(decider).run(Command::Decide(Box::new(Decide {
            namespace: Namespace::default(),
            graph: parts.graph.clone(),
            is_committed,
        })))
    }

    pub fn submit(&mut self, jobs: Vec<(&str, NewJob)>) -> Vec<JobRef> {
        let jobs = jobs.into_iter();
        let spread = ShardedSubmission {
            namespace: Namespace::default(),
            idempotency_key: None,
            jobs: jobs.map(|(name, job)| (shard(name), job)).collect(),
        };
        let parts = self.cut(spread);
        self.prepare(&parts);
        self.decide(&parts, true).expect("it was prepared");
        parts.ids
    }

    /// The waiting messages of one shard for another, with their results.
    pub fn batch(&mut self, from: &ShardId, to: &ShardId, limit: usize) -> Receive {
        let world = self.at(from);
        let query = Query::Outbox(to.clone(), 0, limit);
        let Reply::Outbox(mut messages) = world.query(query) else {
            panic!("not an outbox");
        };
        for message in &mut messages {
            if let Message::Ended { result, .. } = &mut message.message
                && let MessageResult::Stored(key) = result
            {
                let bytes = world.rows.results.get(key);
                *result = MessageResult::Bytes(bytes.expect("the result is kept").clone());
            }
        }
        let record = self.peer(from, to);
        Receive {
            from: from.clone(),
            stream_epoch: record.stream_epoch,
            last_sent: record.last_sent,
            confirmed: record.confirmed,
            messages,
            waits: self.waits_due(from, to),
        }
    }

    /// The waits that one shard would ask another about now.
    pub fn waits_due(&mut self, of: &ShardId, other: &ShardId) -> Vec<Wait> {
        match self.at(of).query(Query::Waits(other.clone())) {
            Reply::Waits(waits) => waits,
            reply => panic!("{reply:?}"),
        }
    }

    /// Exchanges the due questions and answers between all shards.
    pub fn ask(&mut self) {
        for (from, to) in self.pairs() {
            let batch = self.batch(&from, &to, 0);
            let Some(last) = batch.waits.last() else {
                continue;
            };
            let up_to = (last.dependent, last.slot);
            let Reply::Received {
                unknown,
                stopped: None,
                ..
            } = self.at(&to).ok(Command::Receive(Box::new(batch)))
            else {
                continue;
            };
            let confirmed = self.peer(&from, &to).confirmed;
            self.answer(&from, &to, confirmed, Some(CheckedWaits { up_to, unknown }));
        }
    }

    pub fn pairs(&self) -> Vec<(ShardId, ShardId)> {
        let names = self.shards.keys();
        let pairs = names.flat_map(|from| self.shards.keys().map(move |to| (from, to)));
        let others = pairs.filter(|(from, to)| from != to);
        others
            .map(|(from, to)| (from.clone(), to.clone()))
            .collect()
    }

    /// The record that one shard has of another.
    pub fn peer(&mut self, of: &ShardId, other: &ShardId) -> PeerRecord {
        let Reply::Peers(views) = self.at(of).query(Query::Peers) else {
            panic!("not peers");
        };
        let view = views.into_iter().find(|view| view.record.shard == *other);
        view.map_or_else(|| PeerRecord::new(other.clone()), |view| view.record)
    }

    /// Delivers a batch. Returns the last number that the receiver has, and why traffic is stopped.
    pub fn deliver(&mut self, to: &ShardId, batch: Receive) -> (u64, Option<String>) {
        match self.at(to).ok(Command::Receive(Box::new(batch))) {
            Reply::Received { up_to, stopped, .. } => (up_to, stopped),
            other => panic!("{other:?}"),
        }
    }

    pub fn confirm(&mut self, from: &ShardId, to: &ShardId, up_to: u64) {
        self.answer(from, to, up_to, None);
    }

    fn answer(&mut self, from: &ShardId, to: &ShardId, up_to: u64, looked: Option<CheckedWaits>) {
        let record = self.peer(from, to);
        let there = self.peer(to, from);
        let confirm = Confirm {
            peer: to.clone(),
            stream_epoch: record.stream_epoch,
            up_to,
            tag: if there.received == up_to {
                there.received_tag
            } else {
                0
            },
            checked_waits: looked,
        };
        self.at(from).ok(Command::Confirm(confirm));
    }

    /// Delivers messages until none waits.
    pub fn pump(&mut self) {
        while self.pump_once() {}
    }

    fn pump_once(&mut self) -> bool {
        let mut moved = false;
        for (from, to) in self.pairs() {
            let batch = self.batch(&from, &to, 100);
            if batch.messages.is_empty() {
                continue;
            }
            let (up_to, stopped) = self.deliver(&to, batch);
            assert_eq!(stopped, None);
            self.confirm(&from, &to, up_to);
            moved = true;
        }
        moved
    }

    pub fn state(&self, job: &JobRef) -> Option<JobState> {
        self.shards[&job.shard].state(&job.id)
    }

    pub fn restart_all(&mut self) {
        self.shards.values_mut().for_each(World::restart);
    }

    pub fn pass(&mut self, time: std::time::Duration) {
        self.shards.values_mut().for_each(|world| world.pass(time));
    }
}

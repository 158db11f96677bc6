//! Rows about other shards.

use ganger_types::command::NewJob;
use ganger_types::{
    Bytes, Change, Dependent, FailurePolicy, Graph, IdTag, InputRow, InputState, JobId, JobKey,
    JobRef, Message, MessageResult, Namespace, OutboxRecord, Outcome, Part, PartRecord, PeerRecord,
    ShardId,
};

use super::StoreFixture;
use super::sample::{self, MORNING};
use super::script::{Script, put};
use crate::reader::Reader;
use crate::store::Loaded;

fn shard(name: &str) -> ShardId {
    ShardId::new(name).expect("it has the right form")
}

fn id(name: &str) -> JobId {
    JobId::new(name).expect("short")
}

fn peer(name: &str, given: u64) -> PeerRecord {
    PeerRecord {
        last_sent: given,
        confirmed: 1,
        received: 9,
        stopped: Some("it went back in time".to_owned()),
        ..PeerRecord::new(shard(name))
    }
}

fn message(to: &str, number: u64) -> OutboxRecord {
    let message = Message::Ended {
        namespace: Namespace::default(),
        dependency: id("up"),
        dependent: JobKey(7),
        slot: 2,
        outcome: Outcome::Succeeded,
        result: MessageResult::Stored(JobKey(1)),
    };
    OutboxRecord {
        to: shard(to),
        number,
        tag: u64::MAX,
        at: MORNING,
        message,
    }
}

fn dependent(name: &str, key: u64, slot: u32) -> Dependent {
    Dependent {
        shard: shard(name),
        key: JobKey(key),
        slot,
        id: id("down"),
        policy: FailurePolicy::Fail,
        is_member: true,
    }
}

fn part(graph: &'static str) -> Part {
    let record = PartRecord {
        namespace: Namespace::default(),
        graph: Graph::from_static(graph),
        decider: shard("2"),
        shards: vec![shard("1"), shard("2")],
        first: JobKey(40),
        count: 2,
        id_tag: IdTag(7),
        client_ids: vec![(JobKey(41), id("mine"))],
        outside: Vec::new(),
        prepared_at: MORNING,
        is_committed: false,
        cancelled: None,
        answer: None,
    };
    Part {
        record,
        jobs: vec![NewJob::default(); 2],
        prints: vec![0, 7],
        dependents: vec![(1, dependent("2", 5, 0))],
    }
}

fn put_peer(record: PeerRecord) -> Change {
    Change::PutPeer(Box::new(record))
}

fn put_message(record: OutboxRecord) -> Change {
    Change::PutOutbox(Box::new(record))
}

fn put_part(part: &Part) -> [Change; 2] {
    [
        Change::PutPart(Box::new(part.record.clone())),
        Change::PutPartJobs(Box::new(part.clone())),
    ]
}

fn put_dependent(dependency: u64, dependent: Dependent) -> Change {
    Change::PutDependent(JobKey(dependency), Box::new(dependent))
}

/// Messages are loaded by receiver and number, also if numbers and names have different lengths.
pub fn rows_about_other_shards_are_given_back_in_order<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut changes = vec![
        put(&sample::job(1)),
        put(&sample::job(300)),
        put_dependent(300, dependent("2", 1, 0)),
        put_dependent(1, dependent("2", 256, 0)),
        put_dependent(1, dependent("10", 9, 3)),
        put_dependent(1, dependent("2", 2, InputRow::EDGE_FIRST)),
    ];
    changes.extend(put_part(&part("2/g")));
    for (to, number) in [("2", 300), ("2", 2), ("10", 2), ("2", 70_000), ("2", 3)] {
        changes.push(put_message(message(to, number)));
    }
    changes.extend([peer("2", 70_000), peer("10", 2)].map(put_peer));
    script.put(changes);
    let mut expected: Vec<Loaded> = [1, 300]
        .map(|key| Loaded::Job(Box::new(sample::job(key))))
        .into();
    expected.extend([peer("10", 2), peer("2", 70_000)].map(|row| Loaded::Peer(Box::new(row))));
    let messages = [("10", 2), ("2", 2), ("2", 3), ("2", 300), ("2", 70_000)];
    expected.extend(messages.map(|(to, number)| Loaded::Outbox(Box::new(message(to, number)))));
    expected.push(Loaded::Part(Box::new(part("2/g").record)));
    let waiting = [
        (1, dependent("10", 9, 3)),
        (1, dependent("2", 2, InputRow::EDGE_FIRST)),
        (1, dependent("2", 256, 0)),
        (300, dependent("2", 1, 0)),
    ];
    expected.extend(waiting.map(|(key, row)| Loaded::Dependent(JobKey(key), Box::new(row))));
    assert_eq!(script.loaded(), expected);
    script.crash();
    assert_eq!(script.loaded(), expected);
}

/// Rows change independently of each other.
pub fn rows_about_other_shards_are_replaced_and_removed<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(vec![
        put(&sample::job(1)),
        put_peer(peer("2", 2)),
        put_message(message("2", 2)),
        put_message(message("3", 2)),
        put_dependent(1, dependent("2", 5, 0)),
        put_dependent(1, dependent("2", 5, 1)),
    ]);
    let stranger = Dependent {
        is_member: false,
        ..dependent("2", 5, 1)
    };
    script.put(vec![
        put_peer(peer("2", 3)),
        put_message(message("2", 3)),
        Change::RemoveOutbox(shard("2"), 2),
        Change::RemoveDependent(JobKey(1), shard("2"), JobKey(5), 0),
        put_dependent(1, stranger.clone()),
        // Created and removed within one commit.
        put_message(message("3", 3)),
        Change::RemoveOutbox(shard("3"), 3),
    ]);
    let left = [
        Loaded::Job(Box::new(sample::job(1))),
        Loaded::Peer(Box::new(peer("2", 3))),
        Loaded::Outbox(Box::new(message("2", 3))),
        Loaded::Outbox(Box::new(message("3", 2))),
        Loaded::Dependent(JobKey(1), Box::new(stranger)),
    ];
    assert_eq!(script.loaded(), left);
    script.crash();
    assert_eq!(script.loaded(), left);
}

/// The jobs of a part are written once; its record changes.
pub fn the_jobs_of_a_part_are_read_with_its_record_of_now<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut part = part("2/g");
    script.put(put_part(&part).into());
    let (namespace, graph) = (part.record.namespace.clone(), part.record.graph.clone());
    let read = |script: &mut Script<'_, G>| {
        let mut reader = script.reader();
        reader.part(&namespace, &graph).expect("it is readable")
    };
    assert_eq!(read(&mut script).as_ref(), Some(&part));
    part.record.cancelled = Some("not wanted".to_owned());
    script.put(vec![Change::PutPart(Box::new(part.record.clone()))]);
    assert_eq!(read(&mut script).as_ref(), Some(&part));
    part.record.is_committed = true;
    let (namespace, graph) = (part.record.namespace.clone(), part.record.graph.clone());
    script.put(vec![
        Change::RemovePartJobs(namespace, graph),
        Change::PutPart(Box::new(part.record.clone())),
    ]);
    assert_eq!(read(&mut script), None);
    assert_eq!(script.loaded(), [Loaded::Part(Box::new(part.record))]);
}

/// This also holds within one commit, and if another part of the same name follows.
pub fn the_removal_of_a_part_takes_its_jobs_along<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let (old, other) = (part("2/g"), part("2/h"));
    let (namespace, graph) = (old.record.namespace.clone(), old.record.graph.clone());
    let remove = || Change::RemovePart(namespace.clone(), graph.clone());
    script.put([put_part(&old), put_part(&other)].concat());
    script.put(vec![remove()]);
    assert_eq!(
        script.reader().part(&namespace, &graph).expect("reads"),
        None
    );
    assert_eq!(
        script.loaded(),
        [Loaded::Part(Box::new(other.record.clone()))]
    );
    let found = script.reader().part(&namespace, &other.record.graph);
    assert_eq!(found.expect("reads"), Some(other));
    let mut changes: Vec<Change> = put_part(&old).into();
    changes.push(remove());
    script.put(changes);
    // If its jobs were still stored, they would appear under a new record.
    script.put(vec![Change::PutPart(Box::new(old.record.clone()))]);
    assert_eq!(
        script.reader().part(&namespace, &graph).expect("reads"),
        None
    );
    let mut changes = vec![remove()];
    changes.extend(put_part(&old));
    script.put(changes);
    let found = script.reader().part(&namespace, &graph);
    assert_eq!(found.expect("reads"), Some(old));
}

/// Received inputs are read when the job is leased.
pub fn inputs_from_other_shards_are_loaded_while_they_are_missing<G: StoreFixture>(
    fixture: &mut G,
) {
    let mut script = Script::start(fixture);
    let (dependency, policy) = (
        JobRef {
            shard: shard("2"),
            id: id("up"),
        },
        FailurePolicy::Wait,
    );
    let row = |slot, state| InputRow {
        job: JobKey(2),
        slot,
        state,
    };
    let missing = || InputState::Remote {
        dependency: dependency.clone(),
        policy,
        is_member: true,
    };
    let received = InputState::Received {
        dependency: dependency.clone(),
        policy,
        value: Bytes::from_static(b"result"),
    };
    let rows = [row(0, missing()), row(1, missing())];
    let mut changes = vec![put(&sample::job(2))];
    changes.extend(rows.clone().map(Change::PutInput));
    script.put(changes);
    let job = Loaded::Job(Box::new(sample::job(2)));
    let [first, second] = rows.map(Loaded::Input);
    assert_eq!(script.loaded(), [job.clone(), first, second.clone()]);
    script.put(vec![Change::PutInput(row(0, received.clone()))]);
    assert_eq!(script.loaded(), [job, second]);
    assert_eq!(
        script.reader().inputs(JobKey(2), 0, 9).expect("reads"),
        [row(0, received), row(1, missing())]
    );
    for key in 0..4 {
        let found = script.reader().dependents(JobKey(key), 9).expect("reads");
        assert_eq!(found, [], "it waits for no job of this shard");
    }
}

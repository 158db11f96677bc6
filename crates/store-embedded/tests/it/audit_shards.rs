//! The audit compares rows about other shards with each other and with the jobs.

use ganger_store::suite::sample::{self, MORNING};
use ganger_store_embedded::check;
use ganger_types::command::NewJob;
use ganger_types::{
    Change, Dependent, FailurePolicy, Graph, IdTag, JobId, JobKey, Message, Namespace,
    OutboxRecord, Part, PartRecord, PeerRecord, ShardId,
};

fn shard() -> ShardId {
    ShardId::new("2").expect("it has the right form")
}

fn peer(given: u64, confirmed: u64) -> Change {
    Change::PutPeer(Box::new(PeerRecord {
        last_sent: given,
        confirmed,
        ..PeerRecord::new(shard())
    }))
}

fn message(number: u64) -> Change {
    Change::PutOutbox(Box::new(OutboxRecord {
        to: shard(),
        number,
        tag: 1,
        at: MORNING,
        message: Message::Inquire {
            namespace: Namespace::default(),
            graph: Graph::from_static("g"),
        },
    }))
}

fn part(is_committed: bool) -> Part {
    Part {
        record: PartRecord {
            namespace: Namespace::default(),
            graph: Graph::from_static("g"),
            decider: shard(),
            shards: vec![shard()],
            first: JobKey(40),
            count: 1,
            id_tag: IdTag(7),
            client_ids: Vec::new(),
            outside: Vec::new(),
            prepared_at: MORNING,
            is_committed,
            cancelled: None,
            answer: None,
        },
        jobs: vec![NewJob::default()],
        prints: vec![0],
        dependents: Vec::new(),
    }
}

fn known(part: Part) -> Change {
    Change::PutPart(Box::new(part.record))
}

fn jobs(part: Part) -> Change {
    Change::PutPartJobs(Box::new(part))
}

fn dependent(dependency: u64) -> Change {
    Change::PutDependent(
        JobKey(dependency),
        Box::new(Dependent {
            shard: shard(),
            key: JobKey(5),
            slot: 0,
            id: JobId::new("down").expect("short"),
            policy: FailurePolicy::Fail,
            is_member: false,
        }),
    )
}

/// Returns the tables in which the audit finds something after these changes.
fn found(changes: Vec<Change>) -> Vec<String> {
    let directory = crate::kit::directory();
    let path = directory.path().join("1.db");
    let mut store = crate::kit::open(&path).expect("a store can be made");
    crate::kit::write(&mut store, vec![changes]);
    drop(store);
    let report = check(&path, |_| {}).expect("it can be read");
    let findings = report.findings.into_iter();
    findings.map(|finding| finding.table).collect()
}

#[test]
fn rows_about_other_shards_that_fit_each_other_pass() {
    let fitting = vec![
        Change::PutJob(Box::new(sample::job(1))),
        Change::PutPayload {
            key: JobKey(1),
            payload: "payload".into(),
        },
        dependent(1),
        peer(4, 2),
        message(3),
        message(4),
        known(part(false)),
        jobs(part(false)),
    ];
    assert_eq!(found(fitting), [""; 0]);
    assert_eq!(found(vec![peer(4, 4), known(part(true))]), [""; 0]);
}

#[test]
fn messages_that_do_not_fit_the_counts_of_their_peer_are_reported() {
    assert_eq!(found(vec![peer(3, 4)]), ["peers"]);
    assert_eq!(found(vec![message(1)]), ["outbox"], "for nobody");
    assert_eq!(found(vec![peer(4, 2), message(3)]), ["outbox"], "lost");
    let gap = vec![peer(5, 2), message(3), message(5)];
    assert_eq!(found(gap), ["outbox"], "lost between others");
    let confirmed = vec![peer(4, 3), message(3), message(4)];
    assert_eq!(found(confirmed), ["outbox"], "kept for nothing");
    let beyond = vec![peer(3, 2), message(3), message(4)];
    assert_eq!(found(beyond), ["outbox"], "not counted");
}

#[test]
fn parts_that_do_not_fit_their_jobs_are_reported() {
    assert_eq!(found(vec![known(part(false))]), ["parts"], "without jobs");
    let decided = vec![known(part(true)), jobs(part(true))];
    assert_eq!(found(decided), ["parts"], "decided, with jobs");
    assert_eq!(found(vec![jobs(part(false))]), ["part_jobs"]);
}

#[test]
fn dependents_of_a_job_that_is_not_there_are_reported() {
    assert_eq!(found(vec![dependent(1)]), ["dependents"]);
}

#[test]
fn two_jobs_of_one_id_are_reported() {
    let given = |key, id: &str| {
        let mut record = sample::job(key);
        record.id = JobId::new(id).expect("an id is short");
        record.id_is_given = true;
        let payload = "payload".into();
        let key = record.key;
        [
            Change::PutJob(Box::new(record)),
            Change::PutPayload { key, payload },
        ]
    };
    assert_eq!(found([given(1, "x"), given(2, "y")].concat()), [""; 0]);
    assert_eq!(found([given(1, "x"), given(2, "x")].concat()), ["jobs"]);
}

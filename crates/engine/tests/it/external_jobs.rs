//! Items of raw keys are shown among jobs, and external jobs of both kinds are listed, retried, removed or refused.

#![allow(missing_docs, reason = "tests")]

use std::time::Duration;

use crate::support::{World, cancel, job, named, retry};
use ganger_types::command::Delete;
use ganger_types::external::ExternalReason;
use ganger_types::keys::{
    Condition, End, Expiry, KeyAnswers, KeyCall, KeyCalls, KeyReply, KeyUpkeep,
};
use ganger_types::qless::{Generation, QlessReply, QlessRequest};
use ganger_types::query::{JobQuery, Query};
use ganger_types::reply::ExternalJobView;
use ganger_types::why::Reason;
use ganger_types::{
    Bytes, Command, ExternalJob, ExternalReply, JobId, JobKey, JobState, Namespace, PageCursor,
    QlessCall, Queue, Reply, Worker,
};

const SECOND: Duration = Duration::from_secs(1);

fn b(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn id(text: &str) -> JobId {
    JobId::new(text).expect("short")
}

fn run(world: &mut World, call: KeyCall) -> KeyReply {
    let calls = KeyCalls {
        namespace: Namespace::default(),
        watched: Vec::new(),
        calls: vec![call],
    };
    match world.ok(Command::from(calls)) {
        Reply::External(ExternalReply::Keys(KeyAnswers::Each(mut answers))) => {
            answers.remove(0).expect("accepted")
        }
        other => panic!("{other:?}"),
    }
}

fn set(world: &mut World, key: &str, value: &str, expiry: Expiry) {
    let set = KeyCall::Set {
        key: b(key),
        value: b(value),
        expiry,
        condition: Condition::Always,
        gets: false,
    };
    run(world, set);
}

fn push(world: &mut World, list: &str, value: &str) {
    let push = KeyCall::Push {
        key: b(list),
        end: End::Left,
        values: vec![b(value)],
        condition: Condition::Always,
    };
    run(world, push);
}

fn add(world: &mut World, queue: &str, item: &str) {
    set(
        world,
        &format!("{queue}:item:{item}"),
        "data",
        Expiry::Never,
    );
    push(world, &format!("{queue}:queue"), item);
}

fn take(world: &mut World, queue: &str, end: End) {
    let pop = KeyCall::Move {
        from: b(&format!("{queue}:queue")),
        to: b(&format!("{queue}:processing")),
        from_end: end,
        to_end: End::Left,
    };
    assert!(matches!(run(world, pop), KeyReply::Value(_)));
}

fn lease(world: &mut World, queue: &str, item: &str, seconds: u64) {
    let until = Expiry::After(Duration::from_secs(seconds));
    set(world, &format!("{queue}:lease:{item}"), "session-1", until);
}

fn elements(world: &mut World, list: &str) -> Vec<Bytes> {
    let range = KeyCall::Range {
        key: b(list),
        start: 0,
        stop: -1,
    };
    match run(world, range) {
        KeyReply::Values(values) => values,
        other => panic!("{other:?}"),
    }
}

fn tended() -> World {
    let mut world = World::new();
    let settings = KeyUpkeep::default();
    world.engine.begin_key_upkeep(world.now, settings);
    world
}

fn find(world: &mut World, name: &str) -> Option<ExternalJobView> {
    match world.query(Query::ExternalJob(Namespace::default(), id(name))) {
        Reply::ExternalJob(found) => found.map(|job| *job),
        other => panic!("{other:?}"),
    }
}

fn state(world: &mut World, name: &str) -> Option<JobState> {
    find(world, name).map(|job| job.record.state)
}

fn why(world: &mut World, name: &str) -> Vec<Reason> {
    match world.query(Query::Why(Namespace::default(), id(name))) {
        Reply::Why(why) => why.reasons,
        other => panic!("{other:?}"),
    }
}

fn script(world: &mut World, words: &str) -> QlessReply {
    let words = words.split(' ').map(b);
    let call = QlessCall {
        namespace: Namespace::default(),
        request: QlessRequest::Script {
            generation: Generation::Three,
            words: words.collect(),
        },
    };
    match world.ok(Command::from(call)) {
        Reply::External(ExternalReply::Qless(Ok(reply))) => reply,
        other => panic!("{other:?}"),
    }
}

fn ids(world: &mut World, query: JobQuery) -> (Vec<String>, Option<ExternalJob>) {
    match world.query(Query::ExternalJobs(Box::new(query))) {
        Reply::ExternalJobs(found, rest) => {
            let names = found.iter().map(|(_, job)| job.record.id.to_string());
            (names.collect(), rest)
        }
        other => panic!("{other:?}"),
    }
}

fn all(world: &mut World) -> Vec<String> {
    let query = JobQuery {
        limit: 1_000,
        ..JobQuery::default()
    };
    ids(world, query).0
}

fn delete(names: &[&str]) -> Command {
    Command::Delete(Delete {
        namespace: Namespace::default(),
        jobs: names.iter().map(|name| id(name)).collect(),
    })
}

#[test]
fn an_item_is_a_job_of_its_queue_with_its_data_as_payload() {
    let mut world = tended();
    add(&mut world, "mail", "7");
    let item = find(&mut world, "7").expect("it is there");
    assert_eq!(item.record.key, JobKey::OF_KEYS);
    assert_eq!(item.record.id, id("7"));
    assert_eq!(item.record.queue, Queue::from_static("mail"));
    assert_eq!(item.record.state, JobState::Ready);
    assert_eq!(
        (&item.payload[..], item.record.payload_bytes),
        (&b"data"[..], 4)
    );
    assert_eq!(item.lease, None);
    assert_eq!(find(&mut world, "mail:item:7"), Some(item));
    assert_eq!(find(&mut world, "8"), None);
}

#[test]
fn state_and_reasons_follow_from_the_keys() {
    let mut world = tended();
    add(&mut world, "q", "a");
    add(&mut world, "q", "b");
    set(&mut world, "q:item:c", "data", Expiry::Never);
    push(&mut world, "q:queue", "ghost");
    assert_eq!(why(&mut world, "a"), [Reason::Next]);
    let behind = Reason::Behind {
        jobs: 1,
        more: false,
    };
    assert_eq!(why(&mut world, "b"), [behind]);
    assert_eq!(state(&mut world, "c"), Some(JobState::Scheduled));
    let staged = ExternalReason::KeyStaged {
        queued_after: Some(60 * SECOND),
    }
    .into();
    assert_eq!(why(&mut world, "c"), [staged]);
    assert_eq!(state(&mut world, "ghost"), None);

    take(&mut world, "q", End::Right);
    assert_eq!(state(&mut world, "a"), Some(JobState::Running));
    assert_eq!(find(&mut world, "a").expect("there").lease, None);
    let taken = ExternalReason::KeyTaken {
        back_after: Some(10 * SECOND),
    }
    .into();
    assert_eq!(why(&mut world, "a"), [taken]);

    lease(&mut world, "q", "a", 30);
    world.pass(10 * SECOND);
    let held = find(&mut world, "a").expect("there").lease.expect("leased");
    assert_eq!(held.worker, Worker::from_static("session-1"));
    assert_eq!(held.lease_for, 20 * SECOND);
    let leased = ExternalReason::KeyLeased {
        session: "session-1".to_owned(),
        left: Some(20 * SECOND),
        goes_back: true,
    }
    .into();
    assert_eq!(why(&mut world, "a"), [leased]);

    world.pass(20 * SECOND);
    assert_eq!(state(&mut world, "a"), Some(JobState::Ready));
    let done = KeyCall::Delete {
        keys: vec![b("q:item:a")],
    };
    run(&mut world, done);
    assert_eq!(state(&mut world, "a"), None);
}

#[test]
fn without_upkeep_a_cleaner_is_named() {
    let mut world = World::new();
    add(&mut world, "q", "a");
    take(&mut world, "q", End::Right);
    set(&mut world, "q:item:c", "data", Expiry::Never);
    assert_eq!(
        why(&mut world, "a"),
        [ExternalReason::KeyTaken { back_after: None }.into()]
    );
    let staged = ExternalReason::KeyStaged { queued_after: None }.into();
    assert_eq!(why(&mut world, "c"), [staged]);
}

#[test]
fn a_queue_is_known_while_one_of_its_lists_is_there_and_counts_as_its_clients_do() {
    let mut world = tended();
    let queues =
        |world: &mut World| match world.query(Query::Queues(Namespace::default(), None, 1_000)) {
            Reply::Queues(views) => views,
            other => panic!("{other:?}"),
        };
    assert!(queues(&mut world).is_empty());
    add(&mut world, "q", "a");
    add(&mut world, "q", "a");
    add(&mut world, "q", "b");
    push(&mut world, "other", "x");
    take(&mut world, "q", End::Left);
    let views = queues(&mut world);
    assert_eq!(views.len(), 1);
    assert_eq!(views[0].queue, Queue::from_static("q"));
    assert_eq!((views[0].counts.ready, views[0].counts.running), (2, 1));

    // A queue of the engine with that name has its own jobs as well.
    world.enqueue_one(ganger_types::command::NewJob {
        queue: Queue::from_static("q"),
        ..job()
    });
    let views = queues(&mut world);
    assert_eq!(views.len(), 1);
    assert_eq!(views[0].counts.ready, 3);

    world.restart();
    assert_eq!(queues(&mut world)[0].counts.ready, 3);
    let gone = KeyCall::Delete {
        keys: vec![b("q:queue"), b("q:processing")],
    };
    run(&mut world, gone);
    assert_eq!(queues(&mut world)[0].counts.ready, 1);
    assert_eq!(
        state(&mut world, "a"),
        None,
        "nobody knows the queue any more"
    );
}

#[test]
fn an_id_that_is_not_one_items_alone_is_the_whole_key() {
    let mut world = tended();
    add(&mut world, "p", "7");
    assert_eq!(all(&mut world), ["7"]);
    add(&mut world, "q", "7");
    assert_eq!(all(&mut world), ["p:item:7", "q:item:7"]);
    assert_eq!(find(&mut world, "7"), None);
    let second = find(&mut world, "q:item:7").expect("it is there");
    assert_eq!(second.record.queue, Queue::from_static("q"));
    // Nor is an id that a job of the engine or of qless has.
    add(&mut world, "q", "a");
    add(&mut world, "q", "j");
    world.enqueue_one(named("a"));
    script(&mut world, "put 1 w z j k {} 0");
    assert_eq!(find(&mut world, "a"), None);
    assert_eq!(
        all(&mut world),
        ["j", "p:item:7", "q:item:7", "q:item:a", "q:item:j"]
    );
}

#[test]
fn a_key_that_can_be_read_in_two_ways_is_one_item() {
    let mut world = tended();
    push(&mut world, "p:item:x:queue", "other");
    add(&mut world, "p", "x:item:y");
    assert_eq!(all(&mut world), ["x:item:y"]);
    let item = find(&mut world, "p:item:x:item:y").expect("it is there");
    assert_eq!(item.record.queue, Queue::from_static("p"));
}

#[test]
fn external_jobs_are_listed_page_by_page_and_by_what_is_asked_for() {
    let mut world = tended();
    for jid in ["j1", "j2", "j3"] {
        script(
            &mut world,
            &format!("put 1 w q {jid} mail {{}} 0 tags [\"x\"]"),
        );
    }
    script(&mut world, "put 1 w r j4 send {} 60");
    for item in ["i1", "i2"] {
        add(&mut world, "q", item);
    }
    take(&mut world, "q", End::Right);
    assert_eq!(all(&mut world), ["j1", "j2", "j3", "j4", "i1", "i2"]);

    let mut query = JobQuery {
        limit: 2,
        ..JobQuery::default()
    };
    let mut pages = Vec::new();
    loop {
        let (page, rest) = ids(&mut world, query.clone());
        pages.push(page);
        let Some(rest) = rest else { break };
        query.go_on(PageCursor::ExternalJob(rest));
    }
    pages.retain(|page| !page.is_empty());
    assert_eq!(pages, [["j1", "j2"], ["j3", "j4"], ["i1", "i2"]]);

    let mut listed = |change: &dyn Fn(&mut JobQuery)| {
        let mut query = JobQuery {
            limit: 10,
            ..JobQuery::default()
        };
        change(&mut query);
        ids(&mut world, query).0
    };
    let queue = |query: &mut JobQuery| query.queue = Some(Queue::from_static("q"));
    assert_eq!(listed(&queue), ["j1", "j2", "j3", "i1", "i2"]);
    let later = listed(&|query| query.queue = Some(Queue::from_static("r")));
    assert_eq!(later, ["j4"]);
    let tagged = listed(&|query| query.tags = vec![ganger_types::Tag::from_static("x")]);
    assert_eq!(tagged, ["j1", "j2", "j3"]);
    let graph = listed(&|query| query.graph = Some(ganger_types::Graph::from_static("g")));
    assert!(graph.is_empty());
}

#[test]
fn an_ended_job_of_qless_is_put_back_with_all_it_had() {
    let mut world = World::new();
    script(
        &mut world,
        "put 1 w q a k {\"n\":1} 0 priority 3 retries 2 tags [\"x\"]",
    );
    script(&mut world, "pop 2 q w 1");
    let live = world.ok(retry(&[id("a")]));
    let skipped = |names: &[&str]| Reply::Changed {
        count: 0,
        skipped: names.iter().map(|name| id(name)).collect(),
    };
    assert_eq!(live, skipped(&["a"]));
    script(&mut world, "fail 3 a w bad why");
    let changed = Reply::Changed {
        count: 1,
        skipped: Vec::new(),
    };
    assert_eq!(world.ok(retry(&[id("a")])), changed);
    let job = find(&mut world, "a").expect("it is there");
    assert_eq!(job.record.state, JobState::Ready);
    assert_eq!(job.record.queue, Queue::from_static("q"));
    assert_eq!(job.record.priority.millionths(), -3_000_000);
    assert_eq!(job.record.retry.retries_max, 2);
    assert_eq!(job.record.tags.len(), 1);
    assert_eq!(job.payload, "{\"n\":1}");
    assert_eq!(
        script(&mut world, "failed 4"),
        QlessReply::Text("{}".into())
    );

    script(&mut world, "pop 5 q w 1");
    script(&mut world, "complete 6 a w q {}");
    assert_eq!(world.ok(retry(&[id("a")])), changed);
    assert_eq!(state(&mut world, "a"), Some(JobState::Ready));
    world.restart();
    assert_eq!(state(&mut world, "a"), Some(JobState::Ready));
}

#[test]
fn a_job_of_qless_is_deleted_by_the_rules_of_cancel() {
    let mut world = World::new();
    for words in [
        "put 1 w q done k {} 0",
        "pop 2 q w 1",
        "complete 3 done w q {}",
        "put 4 w q first k {} 0",
        "put 4 w q next k {} 0 depends [\"first\"]",
    ] {
        script(&mut world, words);
    }
    assert_eq!(world.refused(delete(&["done"])), "wrong_state");
    assert_eq!(world.refused(delete(&["first"])), "wrong_state");
    assert_eq!(world.refused(delete(&["nobody"])), "job_not_found");
    let mixed = world.ok(delete(&["done", "first", "next"]));
    let expected = Reply::Changed {
        count: 2,
        skipped: vec![id("done")],
    };
    assert_eq!(mixed, expected);
    assert_eq!(state(&mut world, "first"), None);
    assert_eq!(state(&mut world, "done"), Some(JobState::Succeeded));
}

#[test]
fn nobody_but_its_clients_ends_or_moves_an_item() {
    let mut world = tended();
    add(&mut world, "q", "a");
    world.enqueue_one(named("ours"));
    for command in [cancel(&[id("a")]), retry(&[id("a")]), delete(&["a"])] {
        assert_eq!(world.refused(command), "wrong_state");
    }
    let both = world.ok(cancel(&[id("a"), id("ours")]));
    let expected = Reply::Changed {
        count: 1,
        skipped: vec![id("a")],
    };
    assert_eq!(both, expected);
    assert_eq!(state(&mut world, "a"), Some(JobState::Ready));
}

fn give_back(world: &mut World, item: &str) -> KeyReply {
    let call = KeyCall::GiveBack {
        list: b("q:queue"),
        value: b(item),
    };
    run(world, call)
}

#[test]
fn an_item_goes_back_if_its_client_disconnects_before_any_client_reads_it() {
    let mut world = tended();
    for item in ["a", "b", "c"] {
        add(&mut world, "q", item);
    }
    take(&mut world, "q", End::Right);
    assert_eq!(give_back(&mut world, "a"), KeyReply::Number(1));
    assert_eq!(elements(&mut world, "q:queue"), ["c", "b", "a"]);
    assert!(elements(&mut world, "q:processing").is_empty());
    take(&mut world, "q", End::Left);
    assert_eq!(give_back(&mut world, "c"), KeyReply::Number(1));
    assert_eq!(elements(&mut world, "q:queue"), ["c", "b", "a"]);
    assert_eq!(world.engine.key_upkeep_counts().returned, 2);
    // The item goes back only once.
    assert_eq!(give_back(&mut world, "c"), KeyReply::Number(0));
}

#[test]
fn an_item_that_a_client_read_or_leased_stays_with_it() {
    let touch: [&dyn Fn(&mut World); 4] = [
        &|world| drop(run(world, KeyCall::Get { key: b("q:item:a") })),
        &|world| {
            let keys = vec![b("x"), b("q:item:a")];
            drop(run(world, KeyCall::GetMany { keys }));
        },
        &|world| lease(world, "q", "a", 30),
        &|world| set(world, "q:leased_by_session:a", "s", Expiry::After(SECOND)),
    ];
    for touch in touch {
        let mut world = tended();
        add(&mut world, "q", "a");
        take(&mut world, "q", End::Right);
        touch(&mut world);
        assert_eq!(give_back(&mut world, "a"), KeyReply::Number(0));
        assert_eq!(elements(&mut world, "q:processing"), ["a"]);
    }
}

#[test]
fn what_is_no_item_or_was_taken_twice_or_is_in_line_does_not_get_into_line() {
    let mut world = tended();
    push(&mut world, "q:queue", "ghost");
    take(&mut world, "q", End::Right);
    assert_eq!(give_back(&mut world, "ghost"), KeyReply::Number(0));
    // Two clients took the item, so it is not known which of them still has it.
    add(&mut world, "q", "a");
    push(&mut world, "q:queue", "a");
    take(&mut world, "q", End::Right);
    take(&mut world, "q", End::Right);
    assert_eq!(give_back(&mut world, "a"), KeyReply::Number(0));
    // An item that was pushed again meanwhile is only removed from processing.
    add(&mut world, "q", "b");
    take(&mut world, "q", End::Right);
    push(&mut world, "q:queue", "b");
    assert_eq!(give_back(&mut world, "b"), KeyReply::Number(1));
    assert_eq!(elements(&mut world, "q:queue"), ["b"]);
    assert_eq!(elements(&mut world, "q:processing"), ["a", "a", "ghost"]);
}

#[test]
fn nothing_goes_back_if_that_is_switched_off() {
    let mut world = World::new();
    add(&mut world, "q", "a");
    take(&mut world, "q", End::Right);
    assert_eq!(give_back(&mut world, "a"), KeyReply::Number(0));
}

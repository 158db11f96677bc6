//! Listings: every filter, and pages both ways.

use ganger_types::query::JobQuery;
use ganger_types::{
    Change, Graph, Group, JobKey, JobRecord, JobState, JobStates, Kind, LabelKey, LabelValue,
    Namespace, Outcome, Queue, ScheduleId, Tag, Timestamp, Worker,
};

use super::StoreFixture;
use super::sample::{MORNING, ended, failure, job, lease};
use super::script::{Script, finish, put};
use crate::reader::{Page, Reader};

fn label(value: &'static str) -> (LabelKey, LabelValue) {
    (
        LabelKey::from_static("tenant"),
        LabelValue::from_static(value),
    )
}

/// Jobs 1 to 12, each with a property of its own; 13 is in another namespace.
fn jobs() -> Vec<JobRecord> {
    let mut jobs: Vec<JobRecord> = (1..=13).map(job).collect();
    jobs[1].queue = Queue::from_static("images");
    jobs[2].kind = Kind::from_static("thumb");
    jobs[3].tags = vec![Tag::from_static("red"), Tag::from_static("blue")];
    jobs[4].labels = vec![label("a")];
    jobs[5].graph = Some(Graph::from_static("g"));
    jobs[6].schedule = Some(ScheduleId::from_static("nightly"));
    jobs[7].state = JobState::Scheduled;
    jobs[8].failure = Some(failure("io", "connection reset"));
    jobs[9] = ended(jobs[9].clone(), Outcome::Failed, 1, 5);
    jobs[9].failure = Some(failure("io", "connection refused"));
    jobs[10] = ended(jobs[10].clone(), Outcome::Succeeded, 2, 6);
    jobs[10].tags = vec![Tag::from_static("red")];
    jobs[11] = ended(jobs[11].clone(), Outcome::Cancelled, 3, 7);
    jobs[12].namespace = Namespace::from_static("other");
    jobs[12].tags = vec![Tag::from_static("red")];
    jobs
}

fn fill<G: StoreFixture>(script: &mut Script<'_, G>) {
    for record in jobs() {
        let change = if record.finished.is_some() {
            finish(&record)
        } else {
            put(&record)
        };
        script.put(vec![change]);
    }
    script.put(vec![Change::PutLease(Box::new(lease(1, "w1")))]);
}

fn keys(page: &Page) -> Vec<u64> {
    page.jobs.iter().map(|job| job.record.key.0).collect()
}

fn at(key: u64) -> Timestamp {
    Timestamp(MORNING.0 + key * 1_000)
}

type Case = (JobQuery, Vec<u64>);

fn asking(set: impl FnOnce(&mut JobQuery), expected: impl Into<Vec<u64>>) -> Case {
    let mut query = JobQuery {
        limit: 100,
        ..JobQuery::default()
    };
    set(&mut query);
    (query, expected.into())
}

fn by_place_and_time() -> Vec<Case> {
    vec![
        asking(|_| {}, (1..=12).collect::<Vec<_>>()),
        asking(|q| q.queue = Some(Queue::from_static("images")), [2]),
        asking(|q| q.kind = Some(Kind::from_static("thumb")), [3]),
        asking(|q| q.namespace = Namespace::from_static("other"), [13]),
        asking(|q| q.namespace = Namespace::from_static("none"), []),
        asking(|q| q.created_from = Some(at(11)), [11, 12]),
        asking(
            |q| (q.created_from, q.created_before) = (Some(at(3)), Some(at(6))),
            [3, 4, 5],
        ),
    ]
}

fn by_state() -> Vec<Case> {
    let state = |state: JobState, expected: &[u64]| asking(|q| q.states = state.into(), expected);
    let states = |words: &str, expected: &[u64]| {
        let states = JobStates::parse(words).expect("they are states");
        asking(|q| q.states = states, expected)
    };
    vec![
        states("ready,running", &[1, 2, 3, 4, 5, 6, 7, 9]),
        states("scheduled,blocked", &[8]),
        states("running,scheduled", &[1, 8]),
        states("failed,cancelled", &[10, 12]),
        states("succeeded,failed,cancelled", &[10, 11, 12]),
        states("cancelled,running,scheduled", &[1, 8, 12]),
        asking(|q| q.states = JobStates::NONE, []),
        asking(
            |q| (q.queue, q.states) = (Some(Queue::default()), JobStates::ENDED),
            [10, 11, 12],
        ),
        asking(
            |q| (q.queue, q.states) = (Some(Queue::from_static("images")), JobStates::LIVE),
            [2],
        ),
        asking(
            |q| {
                q.worker = Some(Worker::from_static("w1"));
                q.states = JobState::Ready.into();
            },
            [],
        ),
        state(JobState::Scheduled, &[8]),
        state(JobState::Blocked, &[]),
        state(JobState::Ready, &[2, 3, 4, 5, 6, 7, 9]),
        state(JobState::Running, &[1]),
        state(JobState::Failed, &[10]),
        state(JobState::Succeeded, &[11]),
        state(JobState::Cancelled, &[12]),
        asking(|q| q.worker = Some(Worker::from_static("w1")), [1]),
        asking(|q| q.worker = Some(Worker::from_static("w2")), []),
    ]
}

fn by_words() -> Vec<Case> {
    let red = || vec![Tag::from_static("red")];
    vec![
        asking(|q| q.tags = red(), [4, 11]),
        asking(
            |q| q.tags = vec![Tag::from_static("red"), Tag::from_static("blue")],
            [4],
        ),
        asking(|q| q.kind_prefix = Some(b"thu".to_vec()), [3]),
        asking(|q| q.tracked = Some(true), []),
        asking(|q| q.attempt_min = Some(1_000), []),
        asking(|q| q.finished_from = Some(MORNING), [10, 11, 12]),
        asking(|q| q.finished_before = Some(Timestamp(1)), []),
        asking(
            |q| (q.tags, q.states) = (red(), JobState::Succeeded.into()),
            [11],
        ),
        asking(|q| (q.tags, q.states) = (red(), JobStates::LIVE), [4]),
        asking(
            |q| (q.tags, q.queue) = (red(), Some(Queue::from_static("images"))),
            [],
        ),
        asking(
            |q| (q.tags, q.queue) = (red(), Some(Queue::default())),
            [4, 11],
        ),
        asking(
            |q| {
                q.namespace = Namespace::from_static("other");
                q.tags = red();
            },
            [13],
        ),
        asking(
            |q| (q.group, q.states) = (Some(Group::from_static("io")), JobStates::ENDED),
            [10],
        ),
        asking(|q| (q.labels, q.tags) = (vec![label("a")], red()), []),
        asking(|q| q.labels = vec![label("a")], [5]),
        asking(|q| q.labels = vec![label("b")], []),
        asking(|q| q.graph = Some(Graph::from_static("g")), [6]),
        asking(
            |q| q.schedule = Some(ScheduleId::from_static("nightly")),
            [7],
        ),
        asking(|q| q.group = Some(Group::from_static("io")), [10]),
        asking(
            |q| q.failure_text = Some("connection re".to_owned()),
            [9, 10],
        ),
        asking(|q| q.failure_text = Some("refused".to_owned()), [10]),
    ]
}

/// Every condition, one by one and some together.
pub fn listings_follow_every_filter<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    fill(&mut script);
    let mut reader = script.reader();
    let cases = [by_place_and_time(), by_state(), by_words()].concat();
    for (query, expected) in cases {
        let page = reader.list(&query).expect("lists");
        assert_eq!(
            (keys(&page), page.next),
            (expected.clone(), None),
            "{query:?}"
        );
        let part = JobQuery {
            after: Some(JobKey(2)),
            limit: 1,
            ..query.clone()
        };
        for query in [&query, &part] {
            let count = reader.count(query).expect("counts");
            assert_eq!(usize::try_from(count.jobs), Ok(expected.len()), "{query:?}");
            assert!(!count.looked.is_cut, "{query:?}");
        }
        let newest = JobQuery {
            newest_first: true,
            ..query
        };
        let page = reader.list(&newest).expect("lists");
        assert!(keys(&page).iter().rev().eq(&expected), "{newest:?}");
    }
}

/// Removed tags and labels are not found any more, for live and finished jobs.
pub fn listings_follow_changed_tags_and_labels<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut record = job(1);
    let tagged = |tags: &[&'static str], record: &JobRecord| {
        let tags = tags.iter().map(|tag| Tag::from_static(tag)).collect();
        JobRecord {
            tags,
            ..record.clone()
        }
    };
    let mut steps = vec![
        put(&tagged(&["a", "b"], &record)),
        put(&tagged(&["b"], &record)),
    ];
    steps.push(put(&tagged(&[], &record)));
    steps.push(put(&tagged(&["c"], &record)));
    record = ended(record, Outcome::Failed, 1, 1);
    steps.push(finish(&tagged(&["c", "d"], &record)));
    steps.push(Change::PutFinished(Box::new(tagged(&["e"], &record))));
    let expected = ["ab", "b", "", "c", "cd", "e"];
    for (step, expected) in steps.into_iter().zip(expected) {
        script.put(vec![step]);
        script.crash();
        let mut reader = script.reader();
        for tag in ["a", "b", "c", "d", "e"] {
            let query = JobQuery {
                tags: vec![Tag::from_static(tag)],
                limit: 9,
                ..JobQuery::default()
            };
            let found = reader.list(&query).expect("lists").jobs.len();
            assert_eq!(
                found,
                usize::from(expected.contains(tag)),
                "{tag} after {expected:?}"
            );
        }
    }
}

/// Pages of live and finished jobs.
pub fn pages_meet_without_gap_or_overlap_both_ways<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    fill(&mut script);
    let mut reader = script.reader();
    for newest_first in [false, true] {
        for limit in [1, 3, 4, 12, 13] {
            let mut query = JobQuery {
                limit,
                newest_first,
                ..JobQuery::default()
            };
            let mut seen = Vec::new();
            loop {
                let page = reader.list(&query).expect("lists");
                assert!(page.jobs.len() <= limit);
                seen.extend(keys(&page));
                query.after = page.next;
                if query.after.is_none() {
                    break;
                }
            }
            if newest_first {
                seen.reverse();
            }
            assert!(
                seen.iter().copied().eq(1..=12),
                "{limit} {newest_first}: {seen:?}"
            );
        }
    }
}

/// `next` is set exactly if another page has jobs.
pub fn a_filtered_page_knows_whether_there_is_more<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    fill(&mut script);
    let mut reader = script.reader();
    let tags = vec![Tag::from_static("red")];
    let mut query = JobQuery {
        tags,
        limit: 1,
        ..JobQuery::default()
    };
    let page = reader.list(&query).expect("lists");
    assert_eq!((keys(&page), page.next), (vec![4], Some(JobKey(4))));
    query.after = page.next;
    let page = reader.list(&query).expect("lists");
    assert_eq!((keys(&page), page.next), (vec![11], None));
}

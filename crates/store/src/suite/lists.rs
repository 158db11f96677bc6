//! Listings with a budget, by the end of jobs, and by the values of the index.

use ganger_types::query::{Budget, JobQuery};
use ganger_types::{
    Bytes, Change, Graph, JobKey, JobRecord, JobStates, LabelKey, LabelValue, Namespace, Outcome,
    Queue,
};

use super::StoreFixture;
use super::sample::{MORNING, ended, job};
use super::script::{Script, finish, put};
use crate::reader::{IndexedValue, Reader, ValueQuery};

fn put_all<G: StoreFixture>(script: &mut Script<'_, G>, records: Vec<JobRecord>) {
    for record in records {
        let change = if record.finished.is_some() {
            finish(&record)
        } else {
            put(&record)
        };
        script.put(vec![change]);
    }
}

fn within(records: u64) -> JobQuery {
    JobQuery {
        limit: 100,
        budget: Budget {
            records: Some(records),
            time: None,
        },
        ..JobQuery::default()
    }
}

/// A page looks at no more records than its budget, and its cursor goes on where it stopped, whether it found
/// anything or not.
pub fn a_budget_ends_a_page_and_its_cursor_goes_on<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    put_all(&mut script, (1..=10).map(job).collect());
    let mut reader = script.reader();
    let mut query = JobQuery {
        id_prefix: Some(job(9).id.as_bytes().to_vec()),
        ..within(4)
    };
    let mut found = Vec::new();
    let mut pages = 0;
    loop {
        let page = reader.list(&query).expect("lists");
        assert!(page.looked.records <= 4, "{:?}", page.looked);
        found.extend(page.jobs.iter().map(|job| job.record.key.0));
        pages += 1;
        let Some(next) = page.next else {
            assert!(!page.looked.is_cut, "{:?}", page.looked);
            break;
        };
        assert!(page.looked.is_cut && page.looked.back_to.is_some());
        query.after = Some(next);
    }
    assert_eq!((found, pages), (vec![9], 3));
}

/// A count says whether it has counted all.
pub fn a_count_within_a_budget_says_whether_it_is_exact<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut records: Vec<JobRecord> = (1..=8).map(job).collect();
    for record in &mut records[4..] {
        *record = ended(
            record.clone(),
            Outcome::Succeeded,
            record.key.0,
            record.key.0,
        );
    }
    put_all(&mut script, records);
    let mut reader = script.reader();
    for (states, records, jobs, is_cut) in [
        (JobStates::ALL, 100, 8, false),
        (JobStates::LIVE, 3, 3, true),
        (JobStates::LIVE, 100, 4, false),
    ] {
        let query = JobQuery {
            states,
            ..within(records)
        };
        let count = reader.count(&query).expect("counts");
        assert_eq!(
            (count.jobs, count.looked.is_cut),
            (jobs, is_cut),
            "{query:?}"
        );
    }
    // Stores look at ended jobs in different orders, some at live ones first.
    let ended = JobQuery {
        states: JobStates::ENDED,
        ..within(2)
    };
    let count = reader.count(&ended).expect("counts");
    assert!(count.jobs <= 2 && count.looked.is_cut, "{count:?}");
}

/// Jobs in the order of their ends, over queues and outcomes, page by page.
pub fn jobs_are_listed_by_their_ends<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut records = vec![job(20), job(21)];
    let outcomes = [Outcome::Succeeded, Outcome::Failed, Outcome::Cancelled];
    // Job 1 ends last, job 9 first; 3, 6 and 9 are in another queue.
    for key in 1..=9 {
        let index = usize::try_from(key % 3).expect("small");
        let mut record = ended(job(key), outcomes[index], 10 - key, 10 - key);
        if index == 0 {
            record.queue = Queue::from_static("images");
        }
        records.push(record);
    }
    let mut other = ended(job(10), Outcome::Succeeded, 11, 11);
    other.namespace = Namespace::from_static("other");
    records.push(other);
    put_all(&mut script, records);
    let mut reader = script.reader();
    let mut list = |query: &JobQuery| {
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let page = reader.list_by_end(query, after).expect("lists");
            keys.extend(page.jobs.iter().map(|job| job.record.key.0));
            let Some(next) = page.next else {
                return keys;
            };
            after = Some(next);
        }
    };
    let pages_of_two = JobQuery {
        limit: 2,
        ..JobQuery::default()
    };
    assert_eq!(list(&pages_of_two), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let images = JobQuery {
        queue: Some(Queue::from_static("images")),
        ..pages_of_two.clone()
    };
    assert_eq!(list(&images), [3, 6, 9]);
    let failed = JobQuery {
        states: ganger_types::JobState::Failed.into(),
        ..within(2)
    };
    assert_eq!(list(&failed), [1, 4, 7]);
    let none = JobQuery {
        states: JobStates::LIVE,
        ..pages_of_two
    };
    assert!(list(&none).is_empty());
}

/// Values of labels and graphs, with the number of jobs and of those that have not ended.
pub fn values_of_the_index_are_counted<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let label = |key, value| (LabelKey::from_static(key), LabelValue::from_static(value));
    let mut records: Vec<JobRecord> = (1..=5).map(job).collect();
    records[0].labels = vec![label("tenant", "acme"), label("order", "1")];
    records[1].labels = vec![label("tenant", "acme")];
    records[2].labels = vec![label("tenant", "b")];
    records[3].graph = Some(Graph::from_static("g-1"));
    records[1] = ended(records[1].clone(), Outcome::Succeeded, 1, 1);
    put_all(&mut script, records);
    script.put(vec![Change::PutFinished(Box::new({
        let mut record = ended(job(6), Outcome::Failed, 2, 2);
        record.labels = vec![label("tenant", "acme")];
        record
    }))]);
    let mut reader = script.reader();
    let query = |prefix: &str| ValueQuery {
        prefix: prefix.into(),
        limit: 10,
        count_max: 100,
        ..ValueQuery::default()
    };
    let mut values = |of: &IndexedValue, query: &ValueQuery| {
        let page = reader.values(&Namespace::default(), of, query);
        let page = page.expect("reads the index");
        let values = page.values.into_iter();
        let values = values.map(|it| {
            let value = String::from_utf8(it.value).expect("text");
            (value, it.jobs, it.live)
        });
        values.collect::<Vec<_>>()
    };
    let keys = values(&IndexedValue::LabelKey, &query(""));
    assert_eq!(keys, [("order".into(), 1, 1), ("tenant".into(), 4, 2)]);
    let tenant = IndexedValue::Label(LabelKey::from_static("tenant"));
    let all = [("b".into(), 1, 1), ("acme".into(), 3, 1)];
    assert_eq!(values(&tenant, &query("")), all);
    assert_eq!(values(&tenant, &query("ac")), all[1..]);
    assert_eq!(
        values(&IndexedValue::Graph, &query("g")),
        [("g-1".into(), 1, 1)]
    );
}

/// The length of the log of an attempt.
pub fn the_length_of_a_log_is_known<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(vec![put(&job(1))]);
    for (offset, bytes) in [(0, "first "), (6, "second")] {
        script.put(vec![Change::AppendLog {
            key: JobKey(1),
            attempt: 2,
            offset,
            at: MORNING,
            bytes: Bytes::from_static(bytes.as_bytes()),
        }]);
    }
    let mut reader = script.reader();
    let mut length = |attempt| reader.log_bytes(JobKey(1), attempt).expect("reads");
    assert_eq!([length(1), length(2), length(3)], [0, 12, 0]);
}

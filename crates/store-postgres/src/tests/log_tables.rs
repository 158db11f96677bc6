//! The tables of the log, and the ranges of jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ganger_store::suite::sample::{ended, job};
use ganger_store::{Reader, Store, StoreError};
use ganger_types::command::ExpiredJobsQuery;
use ganger_types::{Bytes, Change, Epoch, JobKey, Outcome, Timestamp};

use super::support::{DATABASE, Ground, commit, store, with_changes};
use crate::fence::Ownership;
use crate::limits::Limits;
use crate::log;
use crate::settings::Settings;
use crate::store::PostgresStore;

/// Settings with small log tables, and rows that are written when the test says so.
fn by_hand(ground: &Ground) -> Settings {
    let mut settings = ground.settings();
    settings.limits = Limits {
        has_row_thread: false,
        slot_bytes: 1_000,
        ..Limits::default()
    };
    settings
}

/// Number of records in each log table.
fn records(ground: &Ground, number: u32) -> Vec<u64> {
    (0..3)
        .map(|slot| {
            let sql = format!("SELECT count(*) FROM ganger_s_{number}.log_{slot}");
            ground.sql(&sql).parse().expect("it is a number")
        })
        .collect()
}

fn put(
    store: &mut PostgresStore,
    epoch: ganger_types::Epoch,
    sequences: std::ops::RangeInclusive<u64>,
) {
    for sequence in sequences {
        store
            .commit(&commit(epoch, sequence))
            .expect("it owns the shard");
    }
}

#[test]
fn log_tables_are_used_in_turn_and_emptied_once_their_rows_are_written() {
    let Some(mut ground) = Ground::start("log_tables_are_used_in_turn") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = store(by_hand(&ground), number);
    let epoch = store.open().expect("it opens").epoch;
    put(&mut store, epoch, 1..=60);
    let before = records(&ground, number);
    assert!(before.iter().all(|count| *count > 0), "{before:?}");
    assert_eq!(before.iter().sum::<u64>(), 61);
    store.idle().expect("rows can be written");
    let after = records(&ground, number);
    assert_eq!((after[0], after[1]), (0, 0));
    assert_eq!(after[2], before[2], "the last record stays");
    for round in 0..20 {
        put(&mut store, epoch, 61 + round * 10..=70 + round * 10);
        store.idle().expect("rows can be written");
    }
    let after: u64 = records(&ground, number).iter().sum();
    assert!(after < 60, "{after} records");
    drop(store);
    let mut again = ground.store(number);
    assert_eq!(again.open().expect("it opens").sequence, 260);
    let mut jobs = 0;
    again.load(&mut |_| jobs += 1).expect("it loads");
    assert_eq!(jobs, 260);
}

/// As `pg_dump` holds them.
#[test]
fn a_log_table_in_use_by_a_dump_is_emptied_later_and_commits_go_on() {
    let Some(mut ground) = Ground::start("a_log_table_in_use_by_a_dump") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = store(by_hand(&ground), number);
    let epoch = store.open().expect("it opens").epoch;
    put(&mut store, epoch, 1..=60);
    let admin = super::support::admin_settings(&ground.instance);
    let mut dump = crate::session::Session::connect(&admin, "dump").expect("it is there");
    let lock = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE ganger_s_{number}.log_0, ganger_s_{number}.log_1, \
         ganger_s_{number}.log_2 IN ACCESS SHARE MODE"
    );
    dump.run(async |wire| wire.batch(&lock).await)
        .expect("it may");
    for round in 0..5 {
        put(&mut store, epoch, 61 + round * 10..=70 + round * 10);
        store.idle().expect("rows can be written");
    }
    assert_eq!(records(&ground, number).iter().sum::<u64>(), 111);
    let log = store.log_state();
    assert_eq!((log.times_busy, log.commits_behind), (5, 0));
    dump.run(async |wire| wire.batch("COMMIT").await)
        .expect("it may");
    store.idle().expect("rows can be written");
    let after = records(&ground, number);
    assert_eq!(
        after.iter().filter(|count| **count == 0).count(),
        2,
        "{after:?}"
    );
    assert!(store.log_state().bytes < log.bytes);
    put(&mut store, epoch, 111..=120);
    assert_eq!(store.log_state().commits_behind, 10);
}

/// A statement that comes late, from another owner or about another state of the log.
#[test]
fn a_late_truncation_empties_nothing_that_is_needed() {
    let Some(mut ground) = Ground::start("a_late_truncation_empties_nothing") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = store(by_hand(&ground), number);
    let epoch = store.open().expect("it opens").epoch;
    put(&mut store, epoch, 1..=60);
    let mut session =
        crate::session::Session::connect(&ground.settings(), "test").expect("it is there");
    let names = crate::names::Names::new("test", number);
    let before = records(&ground, number);
    let owner = ground.sql("SELECT owner FROM ganger_s_0.fence WHERE what = 'log'");
    let mut empty_as = |epoch: Epoch, owner: &str, slot| {
        let ours = Ownership {
            epoch: epoch.0,
            owner: owner.into(),
        };
        log::empty(&mut session, &names, &ours, slot).expect("it answers")
    };
    let mut empty = |slot| empty_as(epoch, &owner, slot);
    // No rows are written, so every table is needed.
    assert!((0..3).all(|slot| !empty(slot)));
    assert_eq!(records(&ground, number), before);
    store
        .shared_for_test()
        .settle()
        .expect("rows can be written");
    assert!(!empty(2), "the last record is there");
    let other = Epoch(epoch.0 + 1);
    assert!(!empty_as(other, &owner, 0), "another epoch owns the shard");
    assert!(!empty_as(epoch, "another'$$\\", 0), "another store owns it");
    assert_eq!(records(&ground, number), before);
    assert!(empty_as(epoch, &owner, 0));
    assert_eq!(records(&ground, number), [0, before[1], before[2]]);
}

#[test]
fn a_gap_and_a_changed_byte_in_the_log_are_found_before_anything_is_used() {
    let Some(mut ground) = Ground::start("a_gap_and_a_changed_byte_in_the_log") else {
        return;
    };
    for damage in [
        "DELETE FROM {t} WHERE seq = 3",
        "UPDATE {t} SET body = set_byte(body, 20, 255 - get_byte(body, 20)) WHERE seq = 3",
        "UPDATE {t} SET epoch = epoch + 1 WHERE seq = 3",
        "UPDATE {t} SET body = (SELECT body FROM {t} WHERE seq = 2) WHERE seq = 3",
    ] {
        let number = ground.add_shard();
        let mut settings = by_hand(&ground);
        settings.limits.slot_bytes = u64::MAX;
        let mut store = store(settings, number);
        let epoch = store.open().expect("it opens").epoch;
        put(&mut store, epoch, 1..=5);
        drop(store);
        ground.sql(&damage.replace("{t}", &format!("ganger_s_{number}.log_0")));
        let refused = ground.store(number).open();
        assert!(
            matches!(refused, Err(StoreError::Damaged { .. })),
            "{damage}: {refused:?}"
        );
    }
}

#[test]
fn lost_rows_are_noticed_when_the_shard_is_loaded() {
    let Some(mut ground) = Ground::start("lost_rows_are_noticed") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = ground.store(number);
    let epoch = store.open().expect("it opens").epoch;
    put(&mut store, epoch, 1..=5);
    store.load(&mut |_| {}).expect("it is whole");
    ground.sql(&format!("DELETE FROM ganger_s_{number}.jobs WHERE key = 2"));
    let refused = store.load(&mut |_| {});
    assert!(
        matches!(refused, Err(StoreError::Damaged { .. })),
        "{refused:?}"
    );
}

fn life(key: u64) -> Vec<Change> {
    let record = ended(job(key), Outcome::Succeeded, key, 5);
    vec![
        Change::PutPayload {
            key: JobKey(key),
            payload: Bytes::from_static(b"payload"),
        },
        Change::FinishJob {
            record: Box::new(record),
            result: None,
        },
    ]
}

#[test]
fn tables_for_ranges_of_jobs_are_made_ahead_and_dropped_once_their_jobs_are_gone() {
    let Some(mut ground) = Ground::start("tables_for_ranges_of_jobs") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = store(by_hand(&ground), number);
    let epoch = store.open().expect("it opens").epoch;
    let parts = |ground: &Ground| {
        ground.sql(&format!(
            "SELECT string_agg(part::text, ' ' ORDER BY part) FROM ganger_s_{number}.ranges"
        ))
    };
    assert_eq!(parts(&ground), "0 1");
    let far = (5 << 20) + 3;
    let changes = [life(1), life(far)].concat();
    store
        .commit(&with_changes(epoch, 1, changes))
        .expect("it owns the shard");
    store.idle().expect("rows can be written");
    assert_eq!(parts(&ground), "0 1 5 6");
    let shared = Arc::clone(store.shared_for_test());
    assert!(shared.drop_old_parts().expect("it answers"));
    assert_eq!(parts(&ground), "0 1 5 6", "a finished job is kept");
    let changes = vec![
        Change::RemoveJob(JobKey(1)),
        Change::PutJob(Box::new(job(2))),
    ];
    store
        .commit(&with_changes(epoch, 2, changes))
        .expect("it owns the shard");
    store.idle().expect("rows can be written");
    assert!(shared.drop_old_parts().expect("it answers"));
    assert_eq!(parts(&ground), "0 1 5 6", "a live job is kept");
    let changes = vec![Change::RemoveJob(JobKey(2))];
    store
        .commit(&with_changes(epoch, 3, changes))
        .expect("it owns the shard");
    store.idle().expect("rows can be written");
    // A reader of another program holds the tables: they are dropped later, and that is no failure.
    let held = "BEGIN; SELECT count(*) FROM ganger_s_1.finished; SELECT pg_sleep(1)";
    let held = held.replace("ganger_s_1", &format!("ganger_s_{number}"));
    let instance = &ground.instance;
    thread::scope(|scope| {
        let holding = scope.spawn(|| instance.sql(DATABASE, &held));
        let is_held = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(1)%' AND wait_event = 'PgSleep'";
        while ground.sql(is_held) == "0" {
            thread::sleep(Duration::from_millis(5));
        }
        shared.drop_old_parts().expect("it answers");
        assert_eq!(parts(&ground), "0 1 5 6");
        holding.join().expect("no panic").expect("it reads");
    });
    // A search for expired jobs reads all of them too, and one follows the other under load.
    let is_over = AtomicBool::new(false);
    let mut searching = store.reader().expect("opens");
    thread::scope(|scope| {
        scope.spawn(|| {
            let everything = ExpiredJobsQuery::ByOwnTime {
                before: Timestamp(1),
            };
            for _ in 0..10_000 {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                searching.expired_jobs(&everything, 100).expect("reads");
            }
        });
        for left in ["1 5 6", "5 6", "5 6"] {
            while !shared.drop_old_parts().expect("it answers") {
                thread::yield_now();
            }
            assert_eq!(parts(&ground), left);
        }
        is_over.store(true, Ordering::Relaxed);
    });
    // Rows of a range that is gone make its tables again.
    store
        .commit(&with_changes(epoch, 4, life(7)))
        .expect("it owns the shard");
    store.idle().expect("rows can be written");
    let mut reader = store.reader().expect("opens");
    for key in [7, far] {
        assert!(reader.job(JobKey(key)).expect("reads").is_some());
        assert!(reader.payload(JobKey(key)).expect("reads").is_some());
    }
}

/// Reads of single jobs do not wait for rows, whatever is written and what is not.
#[test]
fn jobs_are_read_over_commits_whose_rows_are_not_written() {
    let Some(mut ground) = Ground::start("jobs_are_read_over_commits") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = store(by_hand(&ground), number);
    let epoch = store.open().expect("it opens").epoch;
    let mut given = job(3);
    given.id = ganger_types::JobId::new("mine").expect("short");
    given.id_is_given = true;
    let changes = [
        life(1),
        life(2),
        vec![Change::PutJob(Box::new(given.clone()))],
    ]
    .concat();
    store
        .commit(&with_changes(epoch, 1, changes))
        .expect("it owns the shard");
    let mut reader = store.reader().expect("opens");
    let checkpoint = format!("SELECT sequence FROM ganger_s_{number}.checkpoint");
    assert!(reader.job(JobKey(1)).expect("reads").is_some());
    assert!(reader.payload(JobKey(2)).expect("reads").is_some());
    let found = reader.find(&given.namespace, &given.id).expect("reads");
    assert_eq!(found.map(|job| job.record.key), Some(JobKey(3)));
    assert_eq!(ground.sql(&checkpoint), "0");
    store.idle().expect("rows can be written");
    assert_eq!(ground.sql(&checkpoint), "1");
    let changes = vec![Change::RemoveJob(JobKey(1)), Change::RemoveJob(JobKey(3))];
    store
        .commit(&with_changes(epoch, 2, changes))
        .expect("it owns the shard");
    assert_eq!(reader.job(JobKey(1)).expect("reads"), None);
    assert_eq!(reader.payload(JobKey(1)).expect("reads"), None);
    assert_eq!(
        reader.find(&given.namespace, &given.id).expect("reads"),
        None
    );
    assert!(reader.payload(JobKey(2)).expect("reads").is_some());
    assert_eq!(ground.sql(&checkpoint), "1");
}

#[test]
fn many_jobs_are_loaded_in_order_over_several_connections() {
    let Some(mut ground) = Ground::start("many_jobs_are_loaded_in_order") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = ground.store(number);
    let epoch = store.open().expect("it opens").epoch;
    // More than one range of jobs; each commit goes into the rows at once, being large.
    for sequence in 1..=4 {
        let first = (sequence - 1) * 10_000;
        let changes = (first..first + 10_000).map(|key| Change::PutJob(Box::new(job(key))));
        let commit = with_changes(epoch, sequence, changes.collect());
        store.commit(&commit).expect("it owns the shard");
    }
    let mut keys = Vec::new();
    let mut each = |row| {
        if let ganger_store::Loaded::Job(job) = row {
            keys.push(job.key.0);
        }
    };
    store.load(&mut each).expect("it loads");
    assert!(keys.iter().copied().eq(0..40_000));
    drop(store);
    let opened = ground.store(number).open().expect("it opens");
    assert_eq!(opened.sequence, 4);
}

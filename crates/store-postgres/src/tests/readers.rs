//! Connections that read, and commits that wait for rows.

use std::sync::Arc;
use std::thread;

use ganger_store::{Reader, Store};
use ganger_types::{JobKey, ShardId};

use super::support::{Ground, commit, store};
use crate::session::Session;
use crate::{Database, DatabaseAges, PostgresStore};

/// The role of the nodes sees the age of a snapshot that another role holds.
#[test]
fn the_ages_in_the_database_show_a_snapshot_that_is_held() {
    let Some(ground) = Ground::start("the_ages_in_the_database") else {
        return;
    };
    let database = Database::new(ground.settings()).expect("they are possible");
    let ages = || DatabaseAges::read(&database).expect("it is there");
    let before = ages();
    let admin = super::support::admin_settings(&ground.instance);
    let mut holder = Session::connect(&admin, "holder").expect("it is there");
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
    let held = holder.run(async |wire| wire.batch(snapshot).await);
    held.expect("it may");
    for _ in 0..50 {
        ground.sql("SELECT txid_current()");
    }
    let after = ages();
    assert!(after.snapshot >= 50, "{after:?}");
    assert!(after.transaction >= before.transaction + 50, "{after:?}");
    let ended = holder.run(async |wire| wire.batch("COMMIT").await);
    ended.expect("it was begun");
    assert!(ages().snapshot < 50);
}

#[test]
fn all_shards_of_a_process_share_a_bounded_number_of_connections_that_read() {
    let Some(mut ground) = Ground::start("all_shards_share_connections_that_read") else {
        return;
    };
    let numbers = [ground.add_shard(), ground.add_shard()];
    let mut settings = ground.settings();
    settings.readers = 2;
    let database = Database::new(settings).expect("they are possible");
    let mut stores = numbers.map(|number| {
        let mut store = PostgresStore::new(&database, number, &ShardId::default(), "test");
        let epoch = store.open().expect("it opens").epoch;
        store.commit(&commit(epoch, 1)).expect("it owns the shard");
        store
    });
    thread::scope(|scope| {
        for store in &stores {
            for _ in 0..4 {
                let mut reader = store.reader().expect("a reader opens");
                scope.spawn(move || {
                    for _ in 0..50 {
                        assert!(reader.job(JobKey(1)).expect("reads").is_some());
                        assert_eq!(reader.dependents(JobKey(1), 9).expect("reads"), []);
                    }
                });
            }
        }
    });
    for store in &mut stores {
        let mut rows = 0;
        store.load(&mut |_| rows += 1).expect("it loads");
        assert_eq!(rows, 1);
    }
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ganger/reader'";
    assert_eq!(ground.sql(count), "2");
}

#[test]
fn a_commit_waits_for_rows_once_too_much_is_behind() {
    let Some(mut ground) = Ground::start("a_commit_waits_for_rows_once_too_much_is_behind") else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.limits.has_row_thread = false;
    settings.limits.behind_bytes_max = 2_000;
    let mut store = store(settings, number);
    let epoch = store.open().expect("it opens").epoch;
    let written = format!("SELECT sequence FROM ganger_s_{number}.checkpoint");
    for sequence in 1..=40 {
        store
            .commit(&commit(epoch, sequence))
            .expect("it owns the shard");
    }
    let written: u64 = ground.sql(&written).parse().expect("it is a number");
    assert!((20..40).contains(&written), "{written}");
    drop(store);
}

/// A list has a time limit of its own, and nothing else on the connection has.
#[test]
fn a_query_that_takes_too_long_is_ended_and_its_connection_goes_on() {
    let Some(ground) = Ground::start("a_query_that_takes_too_long_is_ended") else {
        return;
    };
    let mut settings = ground.settings();
    settings.readers = 1;
    let database = Arc::clone(&Database::new(settings).expect("they are possible"));
    let limit = std::time::Duration::from_millis(50);
    let slow = database.query("SELECT pg_sleep(60)", &[], limit);
    let slow = slow.expect_err("it takes longer");
    assert!(
        slow.is(&tokio_postgres::error::SqlState::QUERY_CANCELED),
        "{slow:?}"
    );
    let rows = database.query(
        "SELECT current_setting('statement_timeout')",
        &[],
        limit * 20,
    );
    let value: String = rows.expect("it is short")[0].get(0);
    assert_eq!(value, "1s");
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ganger/reader'";
    assert_eq!(ground.sql(open), "1");
}

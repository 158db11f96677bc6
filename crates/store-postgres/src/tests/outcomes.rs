//! Outcomes of commits: waits for a standby that are cancelled, settings that are refused, shards that are not there.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ganger_store::{CommitError, Reader, Store, StoreError, StoreHold};
use ganger_types::{JobKey, ShardId};

use super::support::{Ground, admin_settings, commit, store};
use crate::admin::{Admin, AdminError};
use crate::limits::Limits;
use crate::session::Session;
use crate::standby_wait::StandbyWait;
use ganger_store::DurabilityMode;

/// Makes every commit wait for a standby that does not exist, or ends that.
fn wait_for_nobody(ground: &Ground, does_wait: bool) {
    let name = if does_wait { "nobody" } else { "" };
    ground.sql(&format!(
        "ALTER SYSTEM SET synchronous_standby_names = '{name}'"
    ));
    ground.sql("SELECT pg_reload_conf()");
    while ground.sql("SHOW synchronous_standby_names") != name {
        thread::yield_now();
    }
}

/// Waits until a commit waits for its standby, and cancels that.
fn cancel_wait(ground: &Ground) {
    let cancel =
        "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'
        AND usename = 'ganger_node'";
    while ground.sql(cancel) == "0" {
        thread::yield_now();
    }
}

#[test]
fn a_commit_whose_wait_was_cancelled_is_an_unknown_outcome_and_is_taken_back() {
    cancel_a_commit("a_commit_whose_wait_was_cancelled", Limits::default());
}

#[test]
fn a_large_commit_whose_wait_was_cancelled_is_an_unknown_outcome_and_is_taken_back() {
    cancel_a_commit("a_large_commit_whose_wait_was_cancelled", at_once());
}

/// Limits with which every commit is written into the rows at once.
fn at_once() -> Limits {
    Limits {
        record_changes: 0,
        ..Limits::default()
    }
}

fn cancel_a_commit(test: &str, limits: Limits) {
    let Some(mut ground) = Ground::start(test) else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.outage_max = Duration::ZERO;
    settings.limits = limits;
    let mut store = store(settings, number);
    let epoch = store.open().expect("it opens").epoch;
    store
        .commit(&commit(epoch, 1))
        .expect("nobody is waited for");
    wait_for_nobody(&ground, true);
    let committing = thread::spawn(move || (store.commit(&commit(epoch, 2)), store));
    cancel_wait(&ground);
    let (committed, mut store) = committing.join().expect("it ends");
    let Err(CommitError::Unknown(reason)) = committed else {
        panic!("it is visible, and nobody has a copy: {committed:?}");
    };
    assert!(reason.contains("synchronous replication"), "{reason}");
    assert_eq!(store.log_state().waits_cancelled, 1);
    let at_once = if limits.record_changes == 0 { 2 } else { 0 };
    assert_eq!(store.log_state().times_too_large, at_once);
    // Until a claim's own commit is confirmed, nothing may be used of what it saw.
    let claiming = thread::spawn(move || (store.take_back(epoch), store));
    cancel_wait(&ground);
    let (claimed, mut store) = claiming.join().expect("it ends");
    assert!(
        matches!(claimed, Err(StoreError::Unreachable { .. })),
        "{claimed:?}"
    );
    assert_eq!(store.log_state().waits_cancelled, 2);
    let refused = store.commit(&commit(epoch, 2));
    assert!(
        matches!(refused, Err(CommitError::Unknown(_))),
        "{refused:?}"
    );
    wait_for_nobody(&ground, false);
    // That claim is visible too, and it is our own.
    let opened = store.take_back(epoch).expect("it is ours");
    assert_eq!((opened.epoch.0, opened.sequence), (epoch.0 + 2, 2));
    ground.store(number).open().expect("it opens");
    let fenced = store.take_back(opened.epoch);
    assert!(
        matches!(fenced, Err(StoreError::Fenced { .. })),
        "{fenced:?}"
    );
}

#[test]
fn a_statement_timeout_does_not_reach_a_commit_that_waits() {
    let Some(mut ground) = Ground::start("a_statement_timeout_does_not_reach_a_commit") else {
        return;
    };
    let number = ground.add_shard();
    wait_for_nobody(&ground, true);
    let settings = ground.settings();
    let table = format!("ganger_s_{number}.places");
    let sql = format!(
        "SET statement_timeout = '50ms'; INSERT INTO {table} (namespace, queue) VALUES ('a', 'b')"
    );
    let waiting = thread::spawn(move || {
        let mut session = Session::connect(&settings, "test").expect("it is there");
        let done = session.run(async |wire| wire.batch(&sql).await);
        (done, session.take_warning())
    });
    let waits_long = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'
        AND clock_timestamp() - query_start > interval '200 ms'";
    while ground.sql(waits_long) == "0" {
        thread::yield_now();
    }
    cancel_wait(&ground);
    let (done, warning) = waiting.join().expect("it ends");
    done.expect("a cancelled wait answers success");
    let warning = warning.expect("but for a warning");
    assert!(warning.contains("synchronous replication"), "{warning}");
}

#[test]
fn an_answer_that_takes_too_long_is_an_unknown_outcome() {
    wait_in_vain("an_answer_that_takes_too_long", Limits::default());
}

/// Its statements may take long, but its end is waited for no longer than that of others.
#[test]
fn the_end_of_a_large_commit_that_takes_too_long_is_an_unknown_outcome() {
    wait_in_vain("the_end_of_a_large_commit_that_takes_too_long", at_once());
}

fn wait_in_vain(test: &str, limits: Limits) {
    let Some(mut ground) = Ground::start(test) else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.patience = Duration::from_millis(300);
    settings.limits = limits;
    let mut store = store(settings, number);
    let epoch = store.open().expect("it opens").epoch;
    store
        .commit(&commit(epoch, 1))
        .expect("nobody is waited for");
    wait_for_nobody(&ground, true);
    let committed = store.commit(&commit(epoch, 2));
    let Err(CommitError::Unknown(reason)) = committed else {
        panic!("nobody has said how it went: {committed:?}");
    };
    assert!(reason.contains("did not answer in 0.3 s"), "{reason}");
    // Nobody cancelled it: the statement still waits, and is not visible.
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    assert_eq!(ground.sql(waits), "1");
    let sql = format!("SELECT max(seq) FROM ganger_s_{number}.log_0");
    assert_eq!(ground.sql(&sql), "1");
    wait_for_nobody(&ground, false);
    assert_eq!(store.take_back(epoch).expect("it is ours").sequence, 2);
}

/// No standby where one is wanted: nothing is acknowledged, and nothing has to be done by hand.
#[test]
fn a_shard_without_its_standby_waits_and_goes_on_by_itself() {
    let Some(mut ground) = Ground::start("a_shard_without_its_standby_waits") else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.patience = Duration::from_millis(300);
    settings.outage_max = Duration::ZERO;
    let mut store = store(settings, number);
    let epoch = store.open().expect("it opens").epoch;
    wait_for_nobody(&ground, true);
    let committed = store.commit(&commit(epoch, 1));
    assert!(
        matches!(committed, Err(CommitError::Unknown(_))),
        "{committed:?}"
    );
    // The first claim ends the session of the commit and waits itself; the next one cannot even lock the fence.
    for _ in 0..2 {
        let claimed = store.take_back(epoch);
        assert!(
            matches!(claimed, Err(StoreError::Unreachable { .. })),
            "it is only to be tried again: {claimed:?}"
        );
    }
    wait_for_nobody(&ground, false);
    let opened = store.take_back(epoch).expect("it is ours");
    assert_eq!(opened.sequence, 1);
    store
        .commit(&commit(opened.epoch, 2))
        .expect("it owns the shard");
}

/// It is named while the commit still waits, and until one ends.
#[test]
fn a_missing_standby_is_named_while_a_commit_waits_for_it() {
    let Some(mut ground) = Ground::start("a_missing_standby_is_named") else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.outage_max = Duration::ZERO;
    let mut store = store(settings, number);
    let hold = store.hold().expect("it can tell");
    let epoch = store.open().expect("it opens").epoch;
    assert_eq!(hold.reason(), None);
    wait_for_nobody(&ground, true);
    let committing = thread::spawn(move || (store.commit(&commit(epoch, 1)), store));
    let reason = loop {
        match hold.reason() {
            Some(reason) => break reason,
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    assert!(reason.contains("synchronous_standby_names"), "{reason}");
    assert!(!committing.is_finished(), "it has not been given up");
    wait_for_nobody(&ground, false);
    let (committed, mut store) = committing.join().expect("it ends");
    committed.expect("nothing is waited for any more");
    assert_eq!(hold.reason(), None);
    // A statement that only takes long is not taken for one that waits.
    store
        .commit(&commit(epoch, 2))
        .expect("it goes on by itself");
    assert_eq!(hold.reason(), None);
}

/// A claim reads before it commits, and rows are written without waiting for a standby.
#[test]
fn a_standby_stays_missing_until_a_commit_is_confirmed() {
    let Some(ground) = Ground::start("a_standby_stays_missing") else {
        return;
    };
    let (settings, hold) = (Arc::new(ground.settings()), StoreHold::default());
    let session = Session::connect(&settings, "ganger/1/claim").expect("it connects");
    let mut session = session.watched(StandbyWait {
        settings: Arc::clone(&settings),
        application: "ganger/1/claim".to_owned(),
        hold: hold.clone(),
        newest: Arc::default(),
    });
    hold.set("no standby");
    let read = session.run(async |wire| wire.batch("SELECT 1").await);
    read.expect("it is connected");
    assert!(hold.reason().is_some(), "a read has shown nothing");
    session.has_committed();
    assert_eq!(hold.reason(), None);
}

#[test]
fn a_connection_that_was_ended_while_idle_is_made_again() {
    let Some(mut ground) = Ground::start("a_connection_that_was_ended_while_idle") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = ground.store(number);
    let epoch = store.open().expect("it opens").epoch;
    let mut reader = store.reader().expect("a reader opens");
    for sequence in 1..=5 {
        store
            .commit(&commit(epoch, sequence))
            .expect("nothing was sent on the old one");
        assert!(reader.job(JobKey(sequence)).expect("reads").is_some());
        store.idle().expect("rows can be written");
        assert_eq!(reader.dependents(JobKey(1), 1).expect("reads"), []);
        ground.sql(
            "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE usename = 'ganger_node'",
        );
    }
    let mut rows = 0;
    store.load(&mut |_| rows += 1).expect("it loads");
    assert_eq!(rows, 5);
}

#[test]
fn a_shard_outlasts_a_database_that_is_away_for_a_while() {
    let Some(mut ground) = Ground::start("a_shard_outlasts_a_database_that_is_away") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = ground.store(number);
    let epoch = store.open().expect("it opens").epoch;
    store.commit(&commit(epoch, 1)).expect("it owns the shard");
    ground.instance.kill().expect("it runs");
    // The session lives on for a moment after its server was killed.
    let mut last = 1;
    let refused = loop {
        match store.commit(&commit(epoch, last + 1)) {
            Ok(()) => last += 1,
            Err(refused) => break refused,
        }
    };
    let is_there = match refused {
        CommitError::Unknown(_) => [last, last + 1],
        CommitError::NotApplied { .. } => [last, last],
        CommitError::Fenced { .. } => panic!("nobody else has it: {refused:?}"),
    };
    let reopening = thread::spawn(move || {
        let opened = store.take_back(epoch).expect("it comes back");
        let mut rows = 0;
        store.load(&mut |_| rows += 1).expect("it loads");
        (opened, rows)
    });
    ground.instance.start_again().expect("its data are there");
    let (opened, rows) = reopening.join().expect("it ends");
    assert_eq!(opened.epoch.0, epoch.0 + 1);
    assert!(is_there.contains(&opened.sequence), "{opened:?}");
    assert_eq!(rows, opened.sequence);
}

#[test]
fn a_database_that_loses_acknowledged_commits_is_refused_in_words() {
    let settings = "fsync = off\n";
    let Some(mut ground) = Ground::start_with("a_database_that_loses_commits", settings) else {
        return;
    };
    let number = ground.add_shard();
    let refused = ground
        .store(number)
        .open()
        .expect_err("it may lose commits");
    assert!(refused.to_string().contains("fsync is 'off'"), "{refused}");
    let mut settings = ground.settings();
    settings.accepts_loss = true;
    let mut store = store(settings, number);
    store.open().expect("the loss is accepted");
    let mode = store.durability().map(|durability| durability.mode);
    assert_eq!(mode, Some(DurabilityMode::None));
}

#[test]
fn a_shard_that_cannot_be_opened_says_why() {
    let Some(mut ground) = Ground::start("a_shard_that_cannot_be_opened_says_why") else {
        return;
    };
    let number = ground.add_shard();
    let words = |ground: &Ground, number: u32| {
        let refused = ground
            .store(number)
            .open()
            .expect_err("it cannot be opened");
        (refused.to_string(), refused)
    };
    let (text, _) = words(&ground, 99);
    assert!(text.contains("ganger cluster add-shard"), "{text}");
    let database = crate::Database::new(ground.settings()).expect("they are possible");
    let other = ShardId::new("other").expect("it has the right form");
    let refused = crate::PostgresStore::new(&database, number, &other, "test").open();
    assert!(
        matches!(refused, Err(StoreError::OtherShard { .. })),
        "{refused:?}"
    );
    let fence = format!("UPDATE ganger_s_{number}.fence SET ");
    ground.sql(&format!("{fence} state = 'sealed'"));
    let (text, _) = words(&ground, number);
    assert!(text.contains("it is sealed"), "{text}");
    ground.sql(&format!("{fence} state = 'open', format = 99"));
    let (_, refused) = words(&ground, number);
    assert!(
        matches!(
            refused,
            StoreError::TooNew {
                found: 99,
                known: 1,
                ..
            }
        ),
        "{refused:?}"
    );
    ground.sql(&format!("{fence} format = 1"));
    ground.sql(&format!(
        "UPDATE ganger_s_{number}.checkpoint SET meta = '\\x00'"
    ));
    let (_, refused) = words(&ground, number);
    assert!(matches!(refused, StoreError::Damaged { .. }), "{refused:?}");
}

#[test]
fn the_operator_is_told_what_is_missing_or_there_already() {
    let Some(mut ground) = Ground::start("the_operator_is_told_what_is_missing") else {
        return;
    };
    let number = ground.add_shard();
    let shard = ShardId::default();
    let again = ground.admin.add_shard(number, &shard);
    assert!(
        matches!(again, Err(AdminError::ShardExists { shard: 0, .. })),
        "{again:?}"
    );
    ground.admin.init(None).expect("it can be repeated");
    ground.admin.add_shard(7, &shard).expect("it is new");
    let beyond = ground.admin.add_shard(256, &shard);
    assert_eq!(beyond, Err(AdminError::ShardNumber { shard: 256 }));
    ground.sql("DROP SCHEMA ganger CASCADE");
    let missing = ground.admin.add_shard(8, &shard);
    assert!(
        matches!(missing, Err(AdminError::NotInitialised { .. })),
        "{missing:?}"
    );
    let mut node = Admin::connect(&ground.settings()).expect("it is there");
    let refused = node.init(None);
    assert!(
        matches!(refused, Err(AdminError::NotAllowed { .. })),
        "{refused:?}"
    );
    drop(admin_settings(&ground.instance));
}

/// The role of the nodes can do what a node does and nothing else.
#[test]
fn a_node_may_not_change_tables_or_the_fence_of_new_shards() {
    let Some(mut ground) = Ground::start("a_node_may_not_change_tables") else {
        return;
    };
    let number = ground.add_shard();
    let mut session = Session::connect(&ground.settings(), "test").expect("it is there");
    for sql in [
        "CREATE SCHEMA mine",
        "CREATE TABLE {s}.mine (a int)",
        "DROP TABLE {s}.jobs",
        "TRUNCATE {s}.jobs",
        "INSERT INTO {s}.fence SELECT 'x', 1, 'open', '', '', 1",
        "DELETE FROM {s}.checkpoint",
        "INSERT INTO {s}.ranges VALUES (9)",
        "SELECT ganger.add_part(0, 5, 'jobs')",
        "SET ROLE ganger_admin",
        "SELECT pg_read_file('PG_VERSION')",
    ] {
        let sql = sql.replace("{s}", &format!("ganger_s_{number}"));
        let refused = session.run(async |wire| wire.batch(&sql).await);
        let is_refused = refused
            .is_err_and(|fault| fault.is(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE));
        assert!(is_refused, "{sql}");
    }
    for sql in [
        "SELECT ganger.add_range(0, -1)",
        "SELECT ganger.add_range(-1, 0)",
    ] {
        let refused = session.run(async |wire| wire.batch(sql).await);
        assert!(refused.is_err(), "{sql}");
    }
}

//! The primary is lost, and a synchronous standby takes its place.

use ganger_store::{CommitError, Store};
use ganger_store_postgres::{Database, PostgresStore, Settings};
use ganger_types::ShardId;

use crate::support::{Ground, commit};

#[test]
fn a_standby_that_is_promoted_has_every_acknowledged_commit() {
    let Some(mut ground) = Ground::start("a_standby_that_is_promoted_has_every_commit") else {
        return;
    };
    let number = ground.add_shard();
    let standby = ground.instance.standby("one").expect("it starts");
    ground.sql("ALTER SYSTEM SET synchronous_standby_names = 'one'");
    ground.sql("SELECT pg_reload_conf()");
    let is_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    while ground.sql(is_sync) != "1" {}
    let url = Ground::url(ground.instance.port()).replace(
        &format!("127.0.0.1:{}", ground.instance.port()),
        &format!(
            "127.0.0.1:{},127.0.0.1:{}",
            ground.instance.port(),
            standby.port()
        ),
    );
    let database = Database::new(Settings::from_url(&url).expect("it is whole"));
    let database = database.expect("the settings are possible");
    let mut store = PostgresStore::new(&database, number, &ShardId::default(), "test");
    let mut opened = store.open().expect("it opens");
    let timeline = |store: &PostgresStore| store.durability().expect("it is open").timeline;
    let before = timeline(&store);
    let mut sequence = 0;
    for _ in 0..200 {
        store
            .commit(&commit(opened.epoch, sequence + 1))
            .expect("the standby has it");
        sequence += 1;
    }
    ground.instance.kill().expect("it runs");
    let failed = store.commit(&commit(opened.epoch, sequence + 1));
    let is_lost = matches!(
        failed,
        Err(CommitError::Unknown(_) | CommitError::NotApplied { .. })
    );
    assert!(is_lost, "{failed:?}");
    standby.promote().expect("it is a standby");
    // The commit that may have been on its way did not get anywhere.
    opened = store
        .take_back(opened.epoch)
        .expect("the other host accepts writes");
    assert_eq!(opened.sequence, sequence);
    assert_eq!(timeline(&store), before + 1);
    store
        .commit(&commit(opened.epoch, sequence + 1))
        .expect("it owns the shard");
    let mut jobs = 0;
    store.load(&mut |_| jobs += 1).expect("it loads");
    assert_eq!(jobs, sequence + 1);
}

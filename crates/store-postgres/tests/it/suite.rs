//! All cases of the suite, each on a shard of its own.

use std::sync::Arc;

use ganger_postgres_instance::{Pooler, missing_pooler};
use ganger_store::Store as _;
use ganger_store::suite::{SharedStoreFixture, StoreFixture, cases, shared_cases};
use ganger_store_postgres::{Database, DurabilityMode, PostgresStore, Settings};
use ganger_types::ShardId;

use crate::support::{Ground, PASSWORD, skipped};

/// Shards of one server.
pub(crate) struct Fixture {
    pub(crate) ground: Ground,
    database: Arc<Database>,
    /// Number of the shard that was added last.
    number: u32,
}

impl Fixture {
    pub(crate) fn new(ground: Ground, settings: Settings) -> Self {
        Self {
            ground,
            database: Database::new(settings).expect("the settings are possible"),
            number: 0,
        }
    }

    /// Another writer of the shard that was added last, as in another process, whose connections are its own.
    pub(crate) fn another_with(&self, settings: Settings) -> PostgresStore {
        crate::support::store(settings, self.number)
    }

    fn store(&self) -> PostgresStore {
        PostgresStore::new(&self.database, self.number, &ShardId::default(), "test")
    }
}

impl StoreFixture for Fixture {
    type Store = PostgresStore;

    fn fresh(&mut self) -> PostgresStore {
        self.number = self.ground.add_shard();
        self.store()
    }

    fn again(&mut self, store: PostgresStore) -> PostgresStore {
        drop(store);
        self.store()
    }
}

impl SharedStoreFixture for Fixture {
    fn another(&mut self, _: &PostgresStore) -> PostgresStore {
        self.another_with(self.ground.settings())
    }
}

fn run_all(fixture: &mut Fixture) {
    let cases = cases::<Fixture>().into_iter().chain(shared_cases());
    for case in cases {
        eprintln!("{}", case.name);
        (case.run)(fixture);
    }
}

#[test]
fn a_server_alone_passes_the_suite() {
    let Some(ground) = Ground::start("a_server_alone_passes_the_suite") else {
        return;
    };
    let settings = ground.settings();
    let mut fixture = Fixture::new(ground, settings);
    run_all(&mut fixture);
    let mut store = fixture.fresh();
    store.open().expect("it opens");
    let mode = store.durability().map(|durability| durability.mode);
    assert_eq!(mode, Some(DurabilityMode::Alone));
}

/// Each record fills a table of the log, and rows are only written when somebody needs them.
#[test]
fn small_log_tables_pass_the_suite() {
    let Some(ground) = Ground::start("small_log_tables_pass_the_suite") else {
        return;
    };
    let mut settings = ground.settings();
    settings.limits.has_row_thread = false;
    settings.limits.slot_bytes = 1;
    settings.limits.compressed_from = 1;
    settings.readers = 1;
    run_all(&mut Fixture::new(ground, settings));
}

/// Most commits are too large for the log, and rows are always due.
#[test]
fn commits_that_go_into_the_rows_at_once_pass_the_suite() {
    let Some(ground) = Ground::start("commits_that_go_into_the_rows_at_once") else {
        return;
    };
    let mut settings = ground.settings();
    settings.limits.record_bytes = 300;
    settings.limits.record_changes = 3;
    settings.limits.behind_changes = 1;
    settings.limits.slot_bytes = 500;
    run_all(&mut Fixture::new(ground, settings));
}

#[test]
fn a_server_with_a_synchronous_standby_passes_the_suite() {
    let Some(ground) = Ground::start("a_server_with_a_synchronous_standby") else {
        return;
    };
    let _standby = ground.instance.standby("one").expect("it starts");
    ground.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (one)'");
    ground.sql("SELECT pg_reload_conf()");
    let is_quorum = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'";
    while ground.sql(is_quorum) != "1" {}
    let settings = ground.settings();
    let mut fixture = Fixture::new(ground, settings);
    run_all(&mut fixture);
    let mut store = fixture.fresh();
    store.open().expect("it opens");
    let mode = store.durability().map(|durability| durability.mode);
    assert_eq!(mode, Some(DurabilityMode::Quorum));
}

#[test]
fn a_pooler_in_transaction_mode_passes_the_suite() {
    let test = "a_pooler_in_transaction_mode_passes_the_suite";
    if let Some(reason) = missing_pooler() {
        return skipped(test, &reason);
    }
    let Some(ground) = Ground::start(test) else {
        return;
    };
    let pooler = Pooler::start(&ground.instance, "ganger_node", PASSWORD, 8).expect("it starts");
    let mut settings = Settings::from_url(&Ground::url(pooler.port())).expect("it is whole");
    settings.prepared = false;
    run_all(&mut Fixture::new(ground, settings));
}

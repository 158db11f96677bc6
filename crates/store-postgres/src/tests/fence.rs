//! The proof of the fence: statements of an old owner lie wholly before or wholly after a claim.

use std::thread;

use ganger_store::{Reader, Store, StoreError};
use ganger_types::JobKey;

use super::support::{Ground, commit, with_changes};
use crate::fault::Fault;
use crate::fence::Ownership;
use crate::log::{self, Target, append_sql};
use crate::names::Names;
use crate::record::{Place, RecordBuilder};
use crate::session::Session;

/// A connection of an old owner, by hand.
struct OldOwner {
    session: Session,
    names: Names,
    identity: [u8; 16],
    epoch: u64,
    owner: std::sync::Arc<str>,
}

impl OldOwner {
    fn connect(ground: &Ground, number: u32, epoch: u64) -> Self {
        let names = Names::new("test", number);
        let settings = ground.settings();
        let name = names.application(epoch);
        let mut session = Session::connect(&settings, &name).expect("it is there");
        let sql = names.sql("SELECT identity, owner FROM {s}.fence WHERE what = 'log'");
        let rows = session.run(async |wire| wire.query_once(&sql, &[]).await);
        let row = &rows.expect("it is readable")[0];
        let (identity, owner): (Vec<u8>, &str) = (row.get(0), row.get(1));
        Self {
            session,
            names,
            identity: identity.try_into().expect("it has 16 bytes"),
            epoch,
            owner: owner.into(),
        }
    }

    fn run(&mut self, sql: &str) {
        let done = self.session.run(async |wire| wire.batch(sql).await);
        done.expect("it is allowed");
    }

    /// Appends the record of a job; returns the number of records appended.
    fn append(&mut self, sequence: u64) -> Result<u64, Fault> {
        let place = Place {
            identity: self.identity,
            epoch: self.epoch,
            sequence,
        };
        let mut builder = RecordBuilder::default();
        builder.encode(&commit(ganger_types::Epoch(self.epoch), sequence));
        let body = builder.seal(place, 4_096).to_vec();
        let sql = append_sql(&self.names, Target { slot: 0, before: 0 });
        let owner = &*self.owner;
        self.session
            .run(async |wire| log::append(wire, &sql, owner, place, &body).await)
    }
}

impl OldOwner {
    /// What it means that nothing was appended.
    fn refusal(&mut self) -> Fault {
        let names = &self.names;
        let fence = self
            .session
            .run(async |wire| log::fence(wire, names, "").await);
        let fence = fence.expect("it answers");
        log::refusal(
            fence.as_ref(),
            &Ownership {
                epoch: self.epoch,
                owner: std::sync::Arc::clone(&self.owner),
            },
        )
    }
}

/// Waits until as many sessions wait for a lock.
fn wait_for_waiters(ground: &Ground, count: u32) {
    while ground.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") != count.to_string() {
        thread::yield_now();
    }
}

#[test]
fn a_claim_waits_for_a_statement_on_its_way_and_sees_its_record() {
    let Some(mut ground) = Ground::start("a_claim_waits_for_a_statement_on_its_way") else {
        return;
    };
    let number = ground.add_shard();
    let mut first = ground.store(number);
    let one = first.open().expect("it opens");
    drop(first);
    let mut old = OldOwner::connect(&ground, number, one.epoch.0);
    old.run("BEGIN");
    assert_eq!(old.append(1).expect("it owns the shard"), 1);
    let mut second = ground.store(number);
    let claiming = thread::spawn(move || (second.open(), second));
    wait_for_waiters(&ground, 1);
    old.run("COMMIT");
    let (opened, second) = claiming.join().expect("it ends");
    assert_eq!(opened.expect("it opens").sequence, 1);
    let found = second.reader().expect("it opens").job(JobKey(1));
    assert!(found.expect("it reads").is_some());
    // What comes later finds another epoch.
    assert_eq!(old.append(2).expect("it is only late"), 0);
    let epoch = old.epoch;
    let refused = old.refusal();
    assert!(matches!(refused, Fault::Fenced { theirs: Some(theirs) } if theirs.0 == epoch + 1));
}

#[test]
fn a_claim_ends_the_sessions_of_an_owner_that_vanished_in_a_transaction() {
    let Some(mut ground) = Ground::start("a_claim_ends_the_sessions_of_an_owner") else {
        return;
    };
    let number = ground.add_shard();
    let mut first = ground.store(number);
    let one = first.open().expect("it opens");
    drop(first);
    let mut old = OldOwner::connect(&ground, number, one.epoch.0);
    old.run("BEGIN");
    assert_eq!(old.append(1).expect("it owns the shard"), 1);
    let mut second = ground.store(number);
    let opened = second.open().expect("it does not wait forever");
    assert_eq!((opened.epoch.0, opened.sequence), (one.epoch.0 + 1, 0));
    assert!(!old.session.is_alive());
}

#[test]
fn a_record_after_a_gap_is_refused_and_a_second_one_is_an_unknown_outcome() {
    let Some(mut ground) = Ground::start("a_record_after_a_gap_is_refused") else {
        return;
    };
    let number = ground.add_shard();
    let mut store = ground.store(number);
    let opened = store.open().expect("it opens");
    store
        .commit(&commit(opened.epoch, 1))
        .expect("it owns the shard");
    let mut same = OldOwner::connect(&ground, number, opened.epoch.0);
    assert_eq!(same.append(3).expect("it only does not follow"), 0);
    let refused = same.refusal().into_commit_error(opened.epoch);
    assert!(
        matches!(refused, ganger_store::CommitError::Unknown(_)),
        "{refused:?}"
    );
    let repeated = same.append(1).expect_err("it is there");
    let repeated = repeated.into_commit_error(opened.epoch);
    assert!(
        matches!(repeated, ganger_store::CommitError::Unknown(_)),
        "{repeated:?}"
    );
    store
        .commit(&commit(opened.epoch, 2))
        .expect("it still owns the shard");
}

/// A paused owner writes no rows after the claim either.
#[test]
fn a_checkpoint_of_a_lost_owner_writes_nothing() {
    let Some(mut ground) = Ground::start("a_checkpoint_of_a_lost_owner_writes_nothing") else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.limits.has_row_thread = false;
    let mut first = super::support::store(settings, number);
    let one = first.open().expect("it opens");
    first
        .commit(&commit(one.epoch, 1))
        .expect("it owns the shard");
    let mut second = ground.store(number);
    let two = second.open().expect("it opens");
    let removal = ganger_types::Change::RemoveJob(JobKey(1));
    let removed = second.commit(&with_changes(two.epoch, 2, vec![removal]));
    removed.expect("it owns the shard");
    let refused = first.idle();
    assert!(matches!(refused, Err(StoreError::Io { .. })), "{refused:?}");
    assert!(first.commit(&commit(one.epoch, 2)).is_err());
    assert_eq!(
        second
            .reader()
            .expect("opens")
            .job(JobKey(1))
            .expect("reads"),
        None
    );
    drop(second);
    assert_eq!(ground.store(number).open().expect("it opens").sequence, 2);
}

/// The fence needs no multixact and leaves no dead rows: neither has to be cleaned up while the shard works.
#[test]
fn commits_and_checkpoints_make_no_multixact_and_no_second_page_of_the_fence() {
    let Some(mut ground) = Ground::start("commits_and_checkpoints_make_no_multixact") else {
        return;
    };
    let number = ground.add_shard();
    let mut settings = ground.settings();
    // Rows are written all the time.
    settings.limits.behind_changes = 1;
    let mut store = super::support::store(settings, number);
    let epoch = store.open().expect("it opens").epoch;
    let multixact = |ground: &Ground| {
        ground.sql("CHECKPOINT; SELECT next_multixact_id FROM pg_control_checkpoint()")
    };
    let before = multixact(&ground);
    for sequence in 1..=300 {
        store
            .commit(&commit(epoch, sequence))
            .expect("it owns the shard");
    }
    store.idle().expect("rows can be written");
    assert_eq!(multixact(&ground), before);
    let size = format!("SELECT pg_relation_size('ganger_s_{number}.fence')");
    assert_eq!(ground.sql(&size), "8192");
}

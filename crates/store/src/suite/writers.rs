//! Several writers of one store: who owns it, and what a lost owner can still do.

use std::sync::Arc;

use ganger_types::{Change, Commit, Epoch, JobKey, Meta};

use super::SharedStoreFixture;
use super::sample::{MORNING, job};
use crate::error::{CommitError, StoreError};
use crate::reader::Reader;
use crate::store::{Opened, Store};

/// A commit of job number `sequence`.
fn commit(epoch: Epoch, sequence: u64) -> Arc<Commit> {
    Arc::new(Commit {
        epoch,
        sequence,
        meta: Meta {
            wall: MORNING,
            ..Meta::default()
        },
        changes: vec![Change::PutJob(Box::new(job(sequence)))],
    })
}

/// A store with two writers, of which the first has opened it.
fn pair<G: SharedStoreFixture>(fixture: &mut G) -> (G::Store, G::Store, Opened) {
    let mut first = fixture.fresh();
    let opened = first.open().expect("a new store opens");
    let second = fixture.another(&first);
    (first, second, opened)
}

fn jobs<S: Store>(store: &S) -> Vec<u64> {
    let mut reader = store.reader().expect("a reader opens");
    (0..9)
        .filter(|key| reader.job(JobKey(*key)).expect("reads").is_some())
        .collect()
}

fn is_fenced(result: &Result<(), CommitError>, ours: Epoch, theirs: Epoch) -> bool {
    matches!(result, Err(CommitError::Fenced { ours: o, theirs: t }) if (*o, *t) == (ours, theirs))
}

/// `rel L2`: each take raises the epoch, and shuts the owner before out.
pub fn the_last_one_to_take_a_store_owns_it<G: SharedStoreFixture>(fixture: &mut G) {
    let (mut first, mut second, one) = pair(fixture);
    first
        .commit(&commit(one.epoch, 1))
        .expect("it owns the store");
    let two = second.open().expect("it can be taken");
    assert_eq!((two.epoch, two.sequence), (Epoch(one.epoch.0 + 1), 1));
    let refused = first.commit(&commit(one.epoch, 2));
    assert!(is_fenced(&refused, one.epoch, two.epoch), "{refused:?}");
    second
        .commit(&commit(two.epoch, 2))
        .expect("it owns the store");
    assert_eq!(jobs(&second), [1, 2]);
}

/// A statement of the old epoch may still arrive, so the epoch is raised too.
pub fn a_store_is_taken_back_under_a_new_epoch<G: SharedStoreFixture>(fixture: &mut G) {
    let (mut first, _, one) = pair(fixture);
    first
        .commit(&commit(one.epoch, 1))
        .expect("it owns the store");
    let two = first.take_back(one.epoch).expect("it is still ours");
    assert_eq!((two.epoch, two.sequence), (Epoch(one.epoch.0 + 1), 1));
    let refused = first.commit(&commit(one.epoch, 2));
    assert!(is_fenced(&refused, one.epoch, two.epoch), "{refused:?}");
    first
        .commit(&commit(two.epoch, 2))
        .expect("it owns the store");
    assert_eq!(jobs(&first), [1, 2]);
}

/// A cut-off owner does not shut its successor out.
pub fn a_store_that_somebody_else_took_is_not_taken_back<G: SharedStoreFixture>(fixture: &mut G) {
    let (mut first, mut second, one) = pair(fixture);
    let two = second.open().expect("it can be taken");
    let refused = first.take_back(one.epoch);
    assert!(
        matches!(refused, Err(StoreError::Fenced { ours, theirs, .. }) if (ours, theirs) == (one.epoch, two.epoch)),
        "{refused:?}"
    );
    second
        .commit(&commit(two.epoch, 1))
        .expect("it still owns the store");
}

/// `rel D2`: whatever the first has acknowledged, the second loads.
pub fn a_commit_is_there_for_the_next_owner<G: SharedStoreFixture>(fixture: &mut G) {
    let (mut first, mut second, one) = pair(fixture);
    for sequence in 1..=5 {
        first
            .commit(&commit(one.epoch, sequence))
            .expect("it owns the store");
    }
    let two = second.open().expect("it can be taken");
    assert_eq!(two.sequence, 5);
    assert_eq!(two.meta.wall, MORNING);
    assert_eq!(jobs(&second), [1, 2, 3, 4, 5]);
    let mut loaded = 0;
    second.load(&mut |_| loaded += 1).expect("it loads");
    assert_eq!(loaded, 5);
}

/// What a lost owner still sends finds its place taken, and leaves nothing.
pub fn a_lost_owner_neither_repeats_nor_skips_a_commit<G: SharedStoreFixture>(fixture: &mut G) {
    let (mut first, mut second, one) = pair(fixture);
    first
        .commit(&commit(one.epoch, 1))
        .expect("it owns the store");
    let two = second.open().expect("it can be taken");
    second
        .commit(&commit(two.epoch, 2))
        .expect("it owns the store");
    for sequence in [1, 2, 4] {
        let refused = first.commit(&commit(one.epoch, sequence));
        assert!(refused.is_err(), "{sequence}: {refused:?}");
    }
    second
        .commit(&commit(two.epoch, 3))
        .expect("it still owns the store");
    assert_eq!(jobs(&second), [1, 2, 3]);
}

//! Commits: all or nothing, in order, under the newest epoch.

use std::sync::Arc;

use ganger_types::{Change, Epoch, JobKey, Meta};

use super::StoreFixture;
use super::sample::{MORNING, job};
use super::script::{Script, put};
use crate::error::CommitError;
use crate::reader::Reader;
use crate::store::Store;

/// A new store has no rows (`rel D2`).
pub fn a_new_store_is_empty<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    assert_eq!((script.epoch, script.sequence), (Epoch(1), 0));
    assert_eq!(script.loaded(), []);
    assert_eq!(script.reader().job(JobKey(0)).expect("reads"), None);
}

/// A commit survives a crash (`rel D2`, `rel D13`).
pub fn a_commit_is_there_after_a_crash<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    for key in 1..=3 {
        script.put(vec![put(&job(key))]);
    }
    let opened = script.crash();
    assert_eq!((opened.epoch, opened.sequence), (Epoch(2), 3));
    let meta = Meta {
        next_key: JobKey(4),
        next_order: 5,
        wall: MORNING,
        ..Meta::default()
    };
    assert_eq!(opened.meta, meta);
    assert_eq!(script.live(), [job(1), job(2), job(3)]);
    script.put(vec![put(&job(4))]);
    assert_eq!(script.crash().epoch, Epoch(3));
    assert_eq!(script.live().len(), 4);
}

/// Each epoch is given once, and only the newest may write (`rel L2`).
pub fn only_the_newest_epoch_may_commit<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let mut late = script.commit(vec![put(&job(1))]);
    script.crash();
    Arc::make_mut(&mut late).sequence = script.sequence + 1;
    let refused = script.store().commit(&late);
    assert!(
        matches!(
            refused,
            Err(CommitError::Fenced {
                ours: Epoch(1),
                theirs: Epoch(2)
            })
        ),
        "{refused:?}"
    );
    assert_eq!(script.live(), []);
    script.put(vec![put(&job(2))]);
}

/// No sequence is repeated or skipped.
pub fn commits_follow_each_other_without_gaps<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(vec![put(&job(1))]);
    for sequence in [0, 1, 3] {
        let mut commit = script.commit(vec![put(&job(2))]);
        Arc::make_mut(&mut commit).sequence = sequence;
        let refused = script.store().commit(&commit);
        let is_refused = matches!(refused, Err(CommitError::NotApplied { is_full: false, .. }));
        assert!(is_refused, "{sequence}: {refused:?}");
    }
    script.put(vec![put(&job(2))]);
    assert_eq!(script.crash().sequence, 2);
}

/// A refused commit changes nothing (`rel D3`).
pub fn a_refused_commit_leaves_nothing_behind<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(vec![put(&job(1))]);
    let before = script.loaded();
    let mut commit = script.commit(vec![put(&job(2)), Change::RemoveJob(JobKey(1))]);
    Arc::make_mut(&mut commit).sequence = 9;
    script
        .store()
        .commit(&commit)
        .expect_err("it does not follow");
    assert_eq!(script.loaded(), before);
    assert_eq!(script.reader().job(JobKey(2)).expect("reads"), None);
    script.crash();
    assert_eq!(script.loaded(), before);
}

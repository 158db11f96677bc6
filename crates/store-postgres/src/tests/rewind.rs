//! A database that was restored to an earlier time: the shard stays closed until an operator accepts it.

use std::sync::Arc;

use ganger_store::{CommitError, Opened, Reader as _, Store as _, StoreError};
use ganger_types::{JobKey, ShardId};

use super::support::{DATABASE, Ground, commit, store};
use crate::{
    Database, Directory, KnownMark, Mark, PostgresStore, RewindError, ShardEntry, accept_rewind,
};

/// Removes the last record from the log, as a restored database would not have it.
fn lose_last_record(ground: &Ground, number: u32, sequence: u64) {
    ground.sql(&format!(
        "DELETE FROM ganger_s_{number}.log_0 WHERE seq = {sequence}"
    ));
}

/// A new shard with so many commits. Their rows are written when the test says so; until then the log alone has them.
fn owner_by_hand(
    ground: &mut Ground,
    known: &Arc<KnownMark>,
    commits: u64,
) -> (PostgresStore, Opened) {
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.limits.has_row_thread = false;
    let mut owner = store(settings, number).with_known(known);
    let opened = owner.open().expect("it is new");
    for sequence in 1..=commits {
        let committed = owner.commit(&commit(opened.epoch, sequence));
        committed.expect("it owns the shard");
    }
    (owner, opened)
}

/// An owner whose first commit has its rows written and is in a backup.
fn owner_with_backup(ground: &mut Ground) -> (PostgresStore, Opened) {
    let (mut owner, opened) = owner_by_hand(ground, &Arc::default(), 1);
    owner.idle().expect("the rows are written");
    ground.instance.back_up(DATABASE).expect("there is none");
    (owner, opened)
}

/// The shard is closed, which ends with the first commit instead of the second.
fn expect_rewound(mut owner: PostgresStore, opened: &Opened) {
    let taken = owner.take_back(opened.epoch);
    let is_rewound = |taken| {
        matches!(
            taken,
            Err(StoreError::Rewound {
                found: 1,
                known: 2,
                ..
            })
        )
    };
    assert!(is_rewound(taken.clone()), "{taken:?}");
}

#[test]
fn the_owner_of_a_restored_database_cannot_append_and_closes_the_shard() {
    let Some(mut ground) = Ground::start("the_owner_of_a_restored_database_cannot") else {
        return;
    };
    let (mut owner, opened) = owner_with_backup(&mut ground);
    let committed = owner.commit(&commit(opened.epoch, 2));
    committed.expect("it owns the shard");
    ground.instance.restore(DATABASE).expect("there is a copy");
    let committed = owner.commit(&commit(opened.epoch, 3));
    let is_unknown = matches!(committed, Err(CommitError::Unknown(_)));
    assert!(is_unknown, "{committed:?}");
    expect_rewound(owner, &opened);
}

#[test]
fn jobs_that_a_restored_database_lacks_are_not_denied() {
    let Some(mut ground) = Ground::start("jobs_that_a_restored_database_lacks") else {
        return;
    };
    let (mut owner, opened) = owner_with_backup(&mut ground);
    let committed = owner.commit(&commit(opened.epoch, 2));
    committed.expect("it owns the shard");
    owner.idle().expect("the rows are written");
    let mut reader = owner.reader().expect("it opens");
    assert!(reader.job(JobKey(2)).expect("it reads").is_some());
    ground.instance.restore(DATABASE).expect("there is a copy");
    let read = reader.job(JobKey(2));
    assert!(read.is_err(), "{read:?}");
    expect_rewound(owner, &opened);
}

/// Rows are not replicated with their commits, so a standby that is promoted may have the commits alone.
#[test]
fn lost_rows_are_missed_until_all_of_them_are_written_again() {
    let Some(mut ground) = Ground::start("lost_rows_are_missed_until_all") else {
        return;
    };
    let (mut owner, opened) = owner_by_hand(&mut ground, &Arc::default(), 3);
    ground.instance.back_up(DATABASE).expect("there is none");
    owner.idle().expect("the rows are written");
    ground.instance.restore(DATABASE).expect("there is a copy");
    // The first attempt to write them again fails.
    ground.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not now'; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON ganger_s_0.checkpoint EXECUTE FUNCTION refuse()",
    );
    let mut reader = owner.reader().expect("it opens");
    let read = reader.job(JobKey(3));
    assert!(read.is_err(), "{read:?}");
    ground.sql("DROP TRIGGER refuse ON ganger_s_0.checkpoint");
    for key in 1..=3 {
        let found = reader.job(JobKey(key)).expect("it reads");
        assert!(found.is_some(), "job {key} is lost");
    }
    let committed = owner.commit(&commit(opened.epoch, 4));
    committed.expect("the shard goes on");
}

/// The claim of an owner that has committed nothing is lost with the backup, and the next one gets the same epoch.
#[test]
fn an_owner_whose_claim_is_lost_writes_nothing_in_the_epoch_of_the_next_one() {
    let Some(mut ground) = Ground::start("an_owner_whose_claim_is_lost") else {
        return;
    };
    let (mut first, opened) = owner_with_backup(&mut ground);
    let mut lost = ground.store(0);
    let lost_claim = lost.open().expect("it takes the shard");
    ground.instance.restore(DATABASE).expect("there is a copy");
    let mut next = ground.store(0);
    let claim = next.open().expect("it takes the shard");
    assert_eq!(
        (claim.epoch, opened.epoch.0 + 1),
        (lost_claim.epoch, claim.epoch.0)
    );
    let committed = lost.commit(&commit(lost_claim.epoch, 2));
    assert!(
        matches!(committed, Err(CommitError::Fenced { .. })),
        "{committed:?}"
    );
    let taken = lost.take_back(lost_claim.epoch);
    assert!(matches!(taken, Err(StoreError::Fenced { .. })), "{taken:?}");
    let committed = first.commit(&commit(opened.epoch, 2));
    assert!(
        matches!(committed, Err(CommitError::Fenced { .. })),
        "{committed:?}"
    );
    let committed = next.commit(&commit(claim.epoch, 2));
    committed.expect("it owns the shard");
}

/// Behind a pooler a database is restored under connections that live on.
#[test]
fn rows_of_commits_that_the_log_has_lost_are_not_written() {
    let Some(mut ground) = Ground::start("rows_of_commits_that_the_log_has_lost") else {
        return;
    };
    let (mut owner, opened) = owner_with_backup(&mut ground);
    let committed = owner.commit(&commit(opened.epoch, 2));
    committed.expect("it owns the shard");
    lose_last_record(&ground, 0, 2);
    let written = owner.idle();
    assert!(written.is_err(), "{written:?}");
    let rows = ground.sql("SELECT sequence FROM ganger_s_0.checkpoint");
    assert_eq!(rows, "1");
    expect_rewound(owner, &opened);
}

/// A commit whose outcome was unknown is acknowledged once its shard was taken back and has it.
#[test]
fn commits_that_a_claim_has_found_are_missed_if_they_get_lost() {
    let Some(mut ground) = Ground::start("commits_that_a_claim_has_found") else {
        return;
    };
    let number = 0;
    let known = Arc::new(KnownMark::default());
    let (mut owner, opened) = owner_by_hand(&mut ground, &known, 1);
    // The second one is in the log, and its answer got lost.
    ground.sql(&format!(
        "INSERT INTO ganger_s_{number}.log_0 (seq, epoch, body)
            SELECT 2, epoch, body FROM ganger_s_{number}.log_0 WHERE seq = 1"
    ));
    assert_eq!(known.now().sequence, 1);
    // Its body is that of another place, which the load finds; the claim comes before.
    drop(owner.take_back(opened.epoch));
    assert_eq!(known.now().sequence, 2);
    drop(owner);
    lose_last_record(&ground, number, 2);
    let refused = ground.store(number).with_known(&known).open();
    assert!(
        matches!(
            refused,
            Err(StoreError::Rewound {
                found: 1,
                known: 2,
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn a_shard_that_has_lost_commits_is_closed_until_that_is_accepted() {
    let Some(mut ground) = Ground::start("a_shard_that_has_lost_commits") else {
        return;
    };
    let number = 0;
    let (by_hand, opened) = owner_by_hand(&mut ground, &Arc::default(), 3);
    let known = KnownMark::default();
    known.learn(Mark {
        epoch: opened.epoch.0,
        sequence: 3,
    });
    let known = Arc::new(known);
    drop(by_hand);
    lose_last_record(&ground, number, 3);

    let refused = ground.store(number).with_known(&known).open();
    assert!(
        matches!(
            refused,
            Err(StoreError::Rewound {
                found: 2,
                known: 3,
                ..
            })
        ),
        "{refused:?}"
    );
    // It is closed for those as well who do not know what was confirmed.
    let refused = ground.store(number).open().expect_err("it is closed");
    assert!(refused.to_string().contains("it is rewound"), "{refused}");

    let database = Database::new(ground.settings()).expect("the settings are possible");
    let shard = ShardEntry {
        number,
        id: ShardId::default(),
    };
    let accepted = accept_rewind(&database, &shard, 3);
    assert!(
        matches!(accepted, Err(RewindError::OtherEnd { found: 2, .. })),
        "{accepted:?}"
    );
    accept_rewind(&database, &shard, 2).expect("it ends there");
    let accepted = accept_rewind(&database, &shard, 2);
    assert!(
        matches!(accepted, Err(RewindError::NotRewound { .. })),
        "{accepted:?}"
    );

    // What is known of before counts no more.
    let mut store = ground.store(number).with_known(&known);
    let opened = store.open().expect("the rewind was accepted");
    assert_eq!(opened.sequence, 2);
    assert!(opened.epoch.0 > 1 << 32, "{opened:?}");
    store
        .commit(&commit(opened.epoch, 3))
        .expect("the shard goes on");
}

#[test]
fn an_owner_that_hears_of_lost_commits_closes_the_shard() {
    let Some(mut ground) = Ground::start("an_owner_that_hears_of_lost_commits") else {
        return;
    };
    let number = ground.add_shard();
    // It has taken the shard over before it heard what others know.
    let known = Arc::new(KnownMark::default());
    let mut store = ground.store(number).with_known(&known);
    let opened = store.open().expect("it is new");
    store
        .commit(&commit(opened.epoch, 1))
        .expect("nobody knows of more");
    known.learn(Mark {
        epoch: opened.epoch.0,
        sequence: 9,
    });
    let committed = store.commit(&commit(opened.epoch, 2));
    assert!(
        matches!(committed, Err(CommitError::Unknown(_))),
        "{committed:?}"
    );
    let taken = store.take_back(opened.epoch);
    assert!(
        matches!(taken, Err(StoreError::Rewound { .. })),
        "{taken:?}"
    );
    let refused = ground.store(number).open().expect_err("it is closed");
    assert!(refused.to_string().contains("it is rewound"), "{refused}");
}

/// A database that is restored from a backup rewinds several shards at once.
#[test]
fn the_rewound_shards_of_a_cluster_are_found_and_opened_again() {
    let Some(mut ground) = Ground::start("the_rewound_shards_of_a_cluster") else {
        return;
    };
    ground.admin.make_cluster("ganger").expect("it is new");
    let numbers: Vec<u32> = (0..4).map(|_| ground.add_shard()).collect();
    for number in &numbers {
        ground.sql(&format!(
            "INSERT INTO ganger.shard VALUES ({number}, 'shard-{number}')"
        ));
        let mut store = ground.store(*number);
        let epoch = store.open().expect("it is new").epoch;
        for sequence in 1..=u64::from(*number) {
            let committed = store.commit(&commit(epoch, sequence));
            committed.expect("it owns the shard");
        }
    }
    for (number, state) in [(1, "rewound"), (2, "exported"), (3, "rewound")] {
        ground.sql(&format!(
            "UPDATE ganger_s_{number}.fence SET state = '{state}'"
        ));
    }
    let database = Database::new(ground.settings()).expect("the settings are possible");
    let directory = Directory::read(&database).expect("it is a cluster");
    let rewound = directory.rewound(&database).expect("it can be read");
    let found: Vec<_> = rewound
        .iter()
        .map(|(entry, at)| (entry.id.as_str(), *at))
        .collect();
    assert_eq!(found, [("shard-1", 1), ("shard-3", 3)]);
    for (entry, at) in &rewound {
        accept_rewind(&database, entry, *at).expect("it ends there");
    }
    assert_eq!(directory.rewound(&database).expect("it can be read"), []);
    let shards = directory.status(&database).expect("it can be read");
    let states: Vec<_> = shards.iter().map(|shard| shard.state.as_str()).collect();
    assert_eq!(states, ["open", "open", "exported", "open"]);
}

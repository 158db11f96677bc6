//! The time for which nobody owned a shard: only the clock of the database measures it.

use std::time::Duration;

use ganger_store::{Opened, Store as _};

use super::support::{Ground, commit, store};

const HOUR: Duration = Duration::from_secs(3_600);

/// A shard with commits in two tables of its log, whose last record the database's clock has put at `at`, is taken over.
fn take_over(test: &str, at: &str) -> Option<Opened> {
    let mut ground = Ground::start(test)?;
    let number = ground.add_shard();
    let mut settings = ground.settings();
    settings.limits.has_row_thread = false;
    settings.limits.slot_bytes = 1;
    let mut owner = store(settings, number);
    let epoch = owner.open().expect("it opens").epoch;
    for sequence in 1..=2 {
        let committed = owner.commit(&commit(epoch, sequence));
        committed.expect("it owns the shard");
    }
    drop(owner);
    let last = format!("SELECT max(seq) FROM ganger_s_{number}.");
    let table = (0..3)
        .map(|slot| format!("log_{slot}"))
        .find(|table| ground.sql(&format!("{last}{table}")) == "2")
        .expect("the last record is in the log");
    // Earlier records do not count, in whatever table they are.
    for slot in 0..3 {
        let year = "clock_timestamp() - interval '1 year'";
        ground.sql(&format!(
            "UPDATE ganger_s_{number}.log_{slot} SET at = {year}"
        ));
    }
    ground.sql(&format!(
        "UPDATE ganger_s_{number}.{table} SET at = {at} WHERE seq = 2"
    ));
    let opened = ground.store(number).open().expect("it opens");
    assert_eq!(opened.sequence, 2);
    Some(opened)
}

/// The clock went back between the last record and the claim: the pause counts as none, and time does not go back.
#[test]
fn a_clock_of_the_database_that_went_back_makes_no_pause() {
    let test = "a_clock_of_the_database_that_went_back";
    let Some(opened) = take_over(test, "clock_timestamp() + interval '3 hours'") else {
        return;
    };
    assert_eq!(opened.away, Some(Duration::ZERO));
}

/// The clock is hours ahead of the one at the last record, or the pause was that long: that is the same, whatever the
/// clock of this machine says. Elapsed time goes on by these hours.
#[test]
fn the_pause_is_the_time_since_the_last_record_by_the_clock_of_the_database() {
    let test = "the_pause_is_the_time_since_the_last_record";
    let Some(opened) = take_over(test, "clock_timestamp() - interval '3 hours'") else {
        return;
    };
    let away = opened.away.expect("it is measured");
    assert!((3 * HOUR..4 * HOUR).contains(&away), "{away:?}");
}

//! The command `jobs`, for each state.

use ganger_types::qless::Generation;

use super::caller::Caller;

#[test]
fn each_wrong_argument_is_named() {
    let mut it = Caller::new();
    assert_eq!(it.refused("jobs 1"), r#"Jobs(): Arg "state" missing"#);
    assert_eq!(it.refused("jobs 1 what"), r#"Jobs(): Arg "queue" missing"#);
    assert_eq!(
        it.refused("jobs 1 what q"),
        r#"Jobs(): Unknown type "what""#
    );
    // Only the third generation has throttles, and no generation lists ready jobs.
    assert_eq!(
        it.refused("jobs 1 throttled q"),
        r#"Jobs(): Unknown type "throttled""#
    );
    assert_eq!(
        it.refused("jobs 1 waiting q"),
        r#"Jobs(): Unknown type "waiting""#
    );
    for begin in ["jobs 1 complete", "jobs 1 running q", "jobs 1 what q"] {
        let offset = it.refused(&format!("{begin} x 5"));
        assert_eq!(offset, r#"Jobs(): Arg "offset" not a number: x"#);
        let count = it.refused(&format!("{begin} 0 y"));
        assert_eq!(count, r#"Jobs(): Arg "count" not a number: y"#);
        let fraction = it.refused(&format!("{begin} 0 1.5"));
        assert_eq!(fraction, "value is not an integer or out of range");
    }
}

#[test]
fn an_unknown_queue_has_no_jobs() {
    let mut it = Caller::new();
    for state in ["running", "stalled", "scheduled", "depends", "recurring"] {
        assert_eq!(it.list(&format!("jobs 1 {state} q")), "");
    }
    assert_eq!(it.list("jobs 1 complete"), "");
}

#[test]
fn completed_jobs_come_newest_first_and_of_ties_the_last_jid_first() {
    let mut it = Caller::new();
    for (at, jid) in [(3, "a"), (5, "b"), (5, "c"), (4, "d")] {
        it.ask(&format!("put 1 w q {jid} k {{}} 0"));
        it.ask("pop 1 q w 1");
        it.ask(&format!("complete {at} {jid} w q {{}}"));
    }
    assert_eq!(it.list("jobs 9 complete"), "c b d a");
    assert_eq!(it.list("jobs 9 complete 1 2"), "b d");
    assert_eq!(it.list("jobs 9 complete 0 0"), "c b d a");
    assert_eq!(it.list("jobs 9 complete -1 1"), "a");
    assert_eq!(it.list("jobs 9 complete -2 1"), "d");
}

#[test]
fn a_lock_runs_out_at_its_time_and_is_both_running_and_stalled_then() {
    let mut it = Caller::new();
    for (at, jid) in [(1, "a"), (2, "c"), (2, "b"), (3, "d")] {
        it.ask(&format!("put 0 w q {jid} k {{}} 0"));
        it.ask(&format!("pop {at} q w 1"));
    }
    assert_eq!(it.list("jobs 61 running q"), "a b c d");
    assert_eq!(it.list("jobs 61 stalled q"), "a");
    assert_eq!(it.list("jobs 62.5 running q"), "d");
    assert_eq!(it.list("jobs 62.5 stalled q"), "a b c");
    assert_eq!(it.list("jobs 62.5 stalled q 1 1"), "b");
    assert_eq!(it.list("jobs 62.5 stalled q 1 -1"), "b c");
    assert_eq!(it.list("jobs 62.5 stalled q -1 2"), "");
    assert_eq!(it.list("jobs 62.5 stalled q 0 0"), "");
}

#[test]
fn asking_for_scheduled_jobs_makes_those_ready_that_are_due() {
    let mut it = Caller::new();
    for (jid, delay) in [("a", 30), ("b", 10), ("c", 20), ("d", 20)] {
        it.ask(&format!("put 0 w q {jid} k {{}} {delay}"));
    }
    assert_eq!(it.list("jobs 5 scheduled q"), "b c d a");
    assert_eq!(it.list("jobs 10 scheduled q"), "c d a");
    assert_eq!(it.json("get 10 b")["state"], "waiting");
    assert_eq!(it.list("jobs 10 scheduled q 0 0"), "c d a");
    assert_eq!(it.list("jobs 10 scheduled q 1 1"), "d");
    // A call with an earlier time does not make a ready job scheduled again.
    assert_eq!(it.list("jobs 5 scheduled q"), "c d a");
}

#[test]
fn jobs_that_wait_for_others_come_by_when_they_began_to() {
    let mut it = Caller::new();
    it.ask("put 1 w q a k {} 0");
    for (at, jid) in [(3, "b"), (2, "d"), (2, "c")] {
        it.ask(&format!("put {at} w q {jid} k {{}} 0 depends [\"a\"]"));
    }
    assert_eq!(it.list("jobs 9 depends q"), "c d b");
    assert_eq!(it.list("jobs 9 depends q 1 1"), "d");
}

#[test]
fn recurring_jobs_are_listed_also_before_they_run() {
    let mut it = Caller::new();
    for (jid, offset) in [("a", 30), ("b", -5), ("c", 20)] {
        it.ask(&format!("recur 0 q {jid} k {{}} interval 60 {offset}"));
    }
    assert_eq!(it.list("jobs 1 recurring q"), "b c a");
    assert_eq!(it.list("jobs 1 recurring q 1 -1"), "c a");
}

#[test]
fn the_third_generation_lists_throttled_jobs() {
    let mut it = Caller::of(Generation::Three);
    it.nil("queue.throttle.set 0 q 1");
    for (at, jid) in [(1, "a"), (2, "c"), (3, "b")] {
        it.ask(&format!("put {at} w q {jid} k {{}} 0"));
        it.ask(&format!("pop {at} q w 1"));
    }
    assert_eq!(it.list("jobs 9 throttled q"), "c b");
    assert_eq!(it.list("jobs 9 throttled q 1 1"), "b");
}

//! Throttles, which only the third generation has.

use crate::harness::Database;
use ganger_types::Elapsed;
use ganger_types::qless::Generation;
use serde_json::json;

fn database() -> Database {
    Database::new(Generation::Three)
}

#[test]
fn a_throttle_has_a_maximum_and_maybe_a_life() {
    let mut it = database();
    assert_eq!(
        it.json("throttle.get 0 T"),
        json!({"id": "T", "maximum": 0})
    );
    assert_eq!(it.call("throttle.ttl 0 T"), ":-2");
    assert_eq!(it.call("throttle.set 0 T 5"), "nil");
    assert_eq!(
        it.json("throttle.get 0 T"),
        json!({"id": "T", "maximum": 5})
    );
    assert_eq!(it.call("throttle.ttl 0 T"), ":-1");
    assert_eq!(it.call("throttle.set 0 T 6 10"), "nil");
    it.at = Elapsed(4_000_000);
    assert_eq!(it.call("throttle.ttl 0 T"), ":6");
    it.at = Elapsed(10_000_000);
    assert_eq!(it.call("throttle.ttl 0 T"), ":-2");
    assert_eq!(it.json("throttle.get 0 T")["maximum"], json!(0));
    it.call("throttle.set 0 T 5 1e300");
    assert_eq!(it.json("throttle.get 0 T")["maximum"], json!(5));
    it.call("throttle.delete 0 T");
    assert_eq!(it.call("throttle.ttl 0 T"), ":-2");
    assert_eq!(it.refused("throttle.set 0"), "Throttle(): no tid provided");
    assert_eq!(it.refused("throttle.get 0"), "Throttle(): no tid provided");
}

#[test]
fn the_queue_has_a_throttle_of_its_own_that_every_job_needs() {
    let mut it = database();
    it.call("queue.throttle.set 0 q 1");
    assert_eq!(
        it.json("queue.throttle.get 0 q"),
        json!({"id": "ql:q:q", "maximum": 1})
    );
    it.call("put 1 w q a k {} 0");
    it.call(r#"put 1 w q b k {} 0 throttles ["T"]"#);
    assert_eq!(it.json("get 1 a")["throttles"], json!(["ql:q:q"]));
    assert_eq!(it.json("get 1 b")["throttles"], json!(["T", "ql:q:q"]));
    assert_eq!(it.jids("pop 2 q w 2"), ["b"]);
    assert_eq!(it.call("throttle.locks 2 ql:q:q"), "b");
    assert_eq!(it.call("throttle.locks 2 T"), "b");
    assert_eq!(it.call("throttle.pending 2 ql:q:q"), "a");
    assert_eq!(it.of_job("a", "state"), r#""throttled""#);
    assert_eq!(it.history("a"), ["put", "throttled"]);
    assert_eq!(it.json("queues 2 q")["throttled"], json!(1));
    assert_eq!(it.call("jobs 2 throttled q"), "a");

    assert_eq!(it.call("complete 3 b w q {}"), "complete");
    assert_eq!(it.call("throttle.locks 3 ql:q:q"), "");
    assert_eq!(it.call("throttle.pending 3 ql:q:q"), "");
    assert_eq!(it.json("queues 3 q")["throttled"], json!(0));
    assert_eq!(it.json("queues 3 q")["waiting"], json!(1));
    assert_eq!(it.of_job("a", "state"), r#""throttled""#);
    assert_eq!(it.jids("pop 4 q w 2"), ["a"]);
}

#[test]
fn a_job_for_which_there_is_no_room_is_throttled_when_it_is_put() {
    let mut it = database();
    it.call("throttle.set 0 T 1");
    it.call(r#"put 1 w q a k {} 0 throttles ["T"]"#);
    it.call("pop 1 q w 1");
    it.call(r#"put 2 w q b k {} 0 throttles ["T"]"#);
    it.call(r#"put 3 w q c k {} 10 throttles ["T"]"#);
    assert_eq!(it.of_job("b", "state"), r#""throttled""#);
    assert_eq!(it.of_job("c", "state"), r#""scheduled""#);
    assert_eq!(it.call("throttle.pending 3 T"), "b");
    // Jobs that waited longer continue first.
    it.call("pop 13 q w 1");
    assert_eq!(it.call("throttle.pending 13 T"), "b c");
    for (now, ending) in [
        (14, "fail 14 a w g m"),
        (15, "retry 15 b q w"),
        (16, "timeout 16 c"),
    ] {
        assert_eq!(it.call("throttle.locks 14 T").len(), 1);
        it.call(ending);
        assert_eq!(it.call("throttle.locks 14 T"), "");
        it.call(&format!("pop {now} q w 1"));
    }
}

#[test]
fn further_ready_jobs_are_looked_at_only_so_often() {
    let mut it = database();
    it.call("throttle.set 0 T 1");
    it.call(r#"put 1 w q a k {} 0 throttles ["T"]"#);
    it.call("pop 1 q w 1");
    it.call("throttle.set 0 T 0");
    for jid in ["b", "c"] {
        it.call(&format!(
            r#"put 2 w q {jid} k {{}} 0 priority 1 throttles ["T"]"#
        ));
    }
    it.call("put 2 w q free k {} 0");
    it.call("throttle.set 0 T 1");
    assert_eq!(it.jids("peek 3 q 0 1"), ["c"]);
    assert_eq!(it.jids("peek 3 q 1 5"), ["b", "free"]);
    assert_eq!(it.jids("pop 3 q v 1"), [""; 0]);
    it.call("config.set 3 q-max-pop-retry 5");
    assert_eq!(it.jids("pop 3 q v 1"), ["free"]);
    assert_eq!(it.call("throttle.pending 3 T"), "b c");
}

#[test]
fn only_as_many_go_on_as_there_is_room_for() {
    let mut it = database();
    it.call("throttle.set 0 T 1");
    it.call(r#"put 1 w q a k {} 0 throttles ["T"]"#);
    it.call("pop 1 q w 1");
    for number in 10..30 {
        it.call(&format!(
            r#"put {number} w q j{number} k {{}} 0 throttles ["T"]"#
        ));
    }
    // A new maximum alone lets no job continue.
    it.call("throttle.set 31 T 3");
    assert_eq!(it.call("length 31 q"), ":1");
    it.call("complete 31 a w q {}");
    assert_eq!(it.jids("peek 31 q 0 9"), ["j12", "j11", "j10"]);
    it.call("throttle.delete 32 T");
    it.call("throttle.release 32 T nobody");
    assert_eq!(it.jids("peek 32 q 0 99").len(), 13);
}

#[test]
fn a_lock_that_is_taken_over_keeps_its_throttles_and_one_that_is_lost_for_good_does_not() {
    let mut it = database();
    it.call("queue.throttle.set 0 q 1");
    it.call("config.set 0 grace-period 0");
    it.call("put 1 w q a k {} 0 retries 1");
    it.call("pop 1 q w 1");
    it.call("put 2 w q b k {} 0");
    assert_eq!(it.jids("pop 61 q v 2"), ["a"]);
    assert_eq!(it.call("throttle.locks 61 ql:q:q"), "a");
    assert_eq!(it.jids("pop 121 q v 2"), ["b"]);
    assert_eq!(it.of_job("a", "state"), r#""failed""#);
    assert_eq!(it.call("throttle.locks 121 ql:q:q"), "b");
}

#[test]
fn a_job_that_is_moved_keeps_what_it_holds_until_it_ends() {
    let mut it = database();
    it.call("throttle.set 0 T 1");
    it.call(r#"put 1 w q a k {} 0 throttles ["T"]"#);
    it.call("pop 1 q w 1");
    it.call(r#"put 2 w p a k {} 0 throttles ["T","ql:q:q"]"#);
    assert_eq!(it.json("get 2 a")["throttles"], json!(["T", "ql:q:p"]));
    assert_eq!(it.call("throttle.locks 2 T"), "a");
    assert_eq!(it.call("throttle.locks 2 ql:q:q"), "a");
    // A throttle that the job holds itself does not block it.
    assert_eq!(it.jids("pop 3 p w 1"), ["a"]);
    it.call("complete 4 a w p {}");
    for throttle in ["T", "ql:q:q", "ql:q:p"] {
        assert_eq!(it.call(&format!("throttle.locks 4 {throttle}")), "");
    }
}

#[test]
fn a_throttled_job_that_is_moved_or_cancelled_waits_no_longer() {
    for line in ["cancel 3 b", "put 3 w p b k {} 0", "put 3 w q b k {} 10"] {
        let mut it = database();
        it.call("queue.throttle.set 0 q 1");
        it.call("put 1 w q a k {} 0");
        it.call("pop 1 q w 1");
        it.call("put 2 w q b k {} 0");
        assert_eq!(it.call("jobs 2 throttled q"), "b");
        it.call(line);
        assert_eq!(it.call("jobs 3 throttled q"), "");
        assert_eq!(it.call("throttle.pending 3 ql:q:q"), "");
    }
}

#[test]
fn releasing_a_throttle_by_hand_takes_it_or_ends_the_wait() {
    let mut it = database();
    it.call("queue.throttle.set 0 q 1");
    for jid in ["a", "b", "c"] {
        it.call(&format!("put 1 w q {jid} k {{}} 0"));
        it.call("pop 1 q w 1");
    }
    assert_eq!(it.call("throttle.pending 1 ql:q:q"), "b c");
    assert_eq!(it.call("throttle.release 2 ql:q:q c"), "nil");
    assert_eq!(it.call("throttle.pending 2 ql:q:q"), "b");
    assert_eq!(it.jids("peek 2 q 0 9"), ["c"]);
    it.call("throttle.release 2 ql:q:q a");
    assert_eq!(it.call("throttle.locks 2 ql:q:q"), "");
    assert_eq!(it.jids("peek 3 q 0 9"), ["c", "b"]);
}

#[test]
fn children_of_a_recurring_job_have_its_throttles() {
    let mut it = database();
    it.call(r#"recur 1 q r k {} interval 60 0 throttles ["T"]"#);
    assert_eq!(
        it.json("recur.get 1 r")["throttles"],
        json!(["T", "ql:q:q"])
    );
    assert_eq!(it.jids("pop 1 q w 1"), ["r-1"]);
    assert_eq!(it.call("throttle.locks 1 T"), "r-1");
}

#[test]
fn completing_into_another_queue_leaves_the_list_and_gives_back_what_was_held() {
    let mut it = database();
    it.call(r#"put 1 w q a k {} 0 throttles ["T"]"#);
    it.call("pop 1 q w 1");
    assert_eq!(it.call("complete 2 a w q {} next p"), "waiting");
    assert_eq!(it.json("get 2 a")["throttles"], json!(["T", "ql:q:q"]));
    assert_eq!(it.call("throttle.locks 2 T"), "");
}

#[test]
fn a_tag_that_no_job_has_any_more_loses_its_count() {
    let mut it = database();
    it.call(r#"put 1 w q a k {} 0 tags ["t"]"#);
    it.call("tag 1 add a t t");
    assert_eq!(it.json("tag 1 top"), json!(["t"]));
    it.call("cancel 2 a");
    it.call(r#"put 3 w q a k {} 0 tags ["t"]"#);
    assert_eq!(it.call("tag 3 top"), "{}");
}

#[test]
fn other_generations_see_no_throttles_and_are_held_up_by_none() {
    let mut it = database();
    it.call("queue.throttle.set 0 q 1");
    for jid in ["a", "b"] {
        it.call(&format!("put 1 w q {jid} k {{}} 0"));
    }
    it.generation = Generation::Two;
    assert_eq!(it.jids("pop 1 q w 2"), ["b", "a"]);
    assert!(it.json("get 1 a").get("throttles").is_none());
    it.call("config.set 1 q-max-concurrency 2");
    it.call("put 1 w q c k {} 0");
    assert_eq!(it.jids("pop 1 q w 2"), [""; 0]);
    it.generation = Generation::Three;
    assert_eq!(it.call("throttle.locks 1 ql:q:q"), "");
    assert_eq!(it.jids("pop 1 q w 2"), ["c"]);
}

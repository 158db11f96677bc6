//! The commands `workers` and `worker.deregister`.

use serde_json::json;

use super::caller::Caller;

#[test]
fn a_worker_must_be_named_to_be_deregistered() {
    let mut it = Caller::new();
    it.refused("worker.deregister 1");
}

#[test]
fn an_age_that_is_no_number_is_refused() {
    let mut it = Caller::new();
    it.ask("config.set 1 max-worker-age old");
    let message = it.refused("workers 1");
    assert!(message.contains("max-worker-age"), "{message}");
}

#[test]
fn workers_become_known_by_popping_and_come_latest_first() {
    let mut it = Caller::new();
    assert_eq!(it.text("workers 1"), "{}");
    for (at, worker) in [(1, "a"), (3, "b"), (3, "c"), (2, "d")] {
        it.ask(&format!("pop {at} q {worker} 1"));
    }
    let workers = it.json("workers 4");
    let expected = ["c", "b", "d", "a"].map(|it| json!({"name": it, "jobs": 0, "stalled": 0}));
    assert_eq!(workers, json!(expected));
}

#[test]
fn jobs_are_counted_by_whether_their_locks_ran_out() {
    let mut it = Caller::new();
    for (at, jid) in [(1, "a"), (2, "c"), (2, "b"), (5, "d")] {
        it.ask(&format!("put 0 w q {jid} k {{}} 0"));
        it.ask(&format!("pop {at} q w 1"));
    }
    // A lock that expires exactly now counts as held and as expired.
    assert_eq!(
        it.json("workers 62"),
        json!([{"name": "w", "jobs": 3, "stalled": 3}])
    );
    assert_eq!(
        it.json("workers 62 w"),
        json!({"jobs": ["d", "c", "b"], "stalled": ["c", "b", "a"]})
    );
    assert_eq!(it.text("workers 62 x"), r#"{"jobs":{},"stalled":{}}"#);
}

#[test]
fn locks_that_run_out_in_a_hundred_days_do_not_count() {
    let mut it = Caller::new();
    it.ask("config.set 0 heartbeat 8640001");
    it.ask("put 0 w q j k {} 0");
    it.ask("pop 0 q w 1");
    assert_eq!(it.json("workers 0 w")["jobs"], json!({}));
    assert_eq!(it.json("workers 1 w")["jobs"], json!(["j"]));
}

#[test]
fn a_worker_that_is_silent_for_a_day_is_forgotten_and_its_jobs_stay_locked() {
    let mut it = Caller::new();
    it.ask("put 0 w q j k {} 0");
    it.ask("pop 0 q w 1");
    it.ask("pop 1 q young 1");
    let names = |it: &mut Caller, at: &str| {
        let workers = it.json(&format!("workers {at}"));
        let workers = workers.as_array().cloned().unwrap_or_default();
        workers
            .iter()
            .map(|it| it["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&mut it, "86399"), ["young", "w"]);
    assert_eq!(names(&mut it, "86400"), ["young"]);
    assert_eq!(it.text("workers 1 w"), r#"{"jobs":{},"stalled":{}}"#);
    assert_eq!(it.list("jobs 1 running q"), "j");
    assert_eq!(it.json("get 1 j")["worker"], "w");
    // A query for one worker also forgets the silent ones.
    it.ask("config.set 1 max-worker-age 10");
    it.ask("workers 11 x");
    assert_eq!(names(&mut it, "5"), [""; 0]);
}

#[test]
fn a_deregistered_worker_keeps_its_list_of_jobs() {
    let mut it = Caller::new();
    it.ask("put 0 w q j k {} 0");
    it.ask("pop 1 q w 1");
    it.ask("pop 1 q other 1");
    it.nil("worker.deregister 1 w nobody");
    assert_eq!(it.json("workers 1").as_array().map(Vec::len), Some(1));
    assert_eq!(it.json("workers 1 w")["jobs"], json!(["j"]));
}

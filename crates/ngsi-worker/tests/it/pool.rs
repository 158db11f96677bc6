//! What a pool does with its tasks: inserts, reports, outlives its children, stops.

use std::fs;
use std::time::Duration;

use crate::support::{Rig, Sink, delivery};
use bytes::Bytes;
use ganger_ngsi_worker::{QueueState, Shutdown, Summary};

#[tokio::test]
async fn a_task_is_inserted_and_its_rows_are_reported() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    rig.deliver(&["one", "two"]);
    assert_eq!(rig.sink.result("one").await, "{\"rows\":1}");
    assert_eq!(rig.sink.result("two").await, "{\"rows\":1}");
    assert_eq!(rig.asked().len(), 1, "they went together");
    rig.sink.credits(64).await;
    let summary = rig.stop().await;
    assert_eq!(summary.inserted, 2);
}

#[tokio::test]
async fn failures_are_told_as_the_child_tells_them() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    rig.deliver(&["curable", "incurable"]);
    let curable = rig.sink.failure("curable").await;
    assert_eq!(
        (curable.group.as_str(), curable.message.as_str()),
        ("ngsi", "E(later)")
    );
    assert!(!curable.permanent && !curable.lost);
    let incurable = rig.sink.failure("incurable").await;
    assert!(incurable.permanent && !incurable.lost);
    assert_eq!(rig.stop().await.failed, 2);
}

#[tokio::test]
async fn of_a_batch_whose_child_dies_only_the_task_that_kills_alone_is_lost() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    rig.deliver(&["before", "poison", "after"]);
    assert_eq!(rig.sink.result("before").await, "{\"rows\":1}");
    assert!(rig.sink.failure("poison").await.lost);
    assert_eq!(rig.sink.result("after").await, "{\"rows\":1}");
    let asked = rig.asked();
    assert_eq!(asked.len(), 4, "together, then one by one: {asked:?}");
    assert!(asked[0].contains("\"is_repeat\":false"));
    for line in &asked[1..] {
        assert!(line.contains("\"is_repeat\":true") && line.matches("uuid").count() == 1);
    }
    assert_eq!(rig.children().len(), 3, "two were killed");
    let summary = rig.stop().await;
    assert_eq!((summary.inserted, summary.lost), (2, 1));
}

#[tokio::test]
async fn a_child_that_dies_without_a_task_is_replaced() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    rig.deliver(&["one"]);
    rig.sink.result("one").await;
    let child = rustix::process::Pid::from_raw(i32::try_from(rig.children()[0]).unwrap()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    rig.until_children(2).await;
    rig.deliver(&["two"]);
    assert_eq!(rig.sink.result("two").await, "{\"rows\":1}");
    rig.stop().await;
}

#[tokio::test]
async fn a_task_that_hangs_alone_is_failed_for_good() {
    let rig = Rig::with(|settings| settings.patience = Duration::from_millis(300));
    rig.sink.credits(64).await;
    rig.deliver(&["hang", "fine"]);
    let failing = rig.sink.failure("hang").await;
    assert!(failing.permanent && failing.message.starts_with("JobTimeoutException("));
    assert_eq!(rig.sink.result("fine").await, "{\"rows\":1}");
    rig.stop().await;
}

#[tokio::test]
async fn a_later_attempt_is_a_repeat() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    let mut job = delivery("again");
    job.attempt = 2;
    rig.deliver_jobs(vec![job]);
    rig.sink.result("again").await;
    let asked = rig.asked();
    assert!(asked[0].contains("\"is_repeat\":true"), "{asked:?}");
    // Half of what is left of the lease, which has just begun.
    let sole_for = asked[0].split("\"sole_for_ms\":").nth(1).unwrap();
    let sole_for: u64 = sole_for.split(',').next().unwrap().parse().unwrap();
    assert!((200_000..=300_000).contains(&sole_for), "{sole_for}");
    rig.stop().await;
}

#[tokio::test]
async fn the_outcome_of_a_lost_lease_is_dropped() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    rig.deliver(&["gate"]);
    rig.asked_for("gate").await;
    rig.deliver(&["waits", "stays"]);
    rig.lose("gate");
    rig.lose("waits");
    rig.open_gate().await;
    rig.sink.result("stays").await;
    assert_eq!(rig.sink.outcomes("gate") + rig.sink.outcomes("waits"), 0);
    assert!(rig.asked().iter().all(|line| !line.contains("waits")));
    rig.sink.credits(64).await;
    let summary = rig.stop().await;
    assert_eq!((summary.inserted, summary.dropped), (1, 2));
}

#[tokio::test]
async fn the_first_signal_lets_what_runs_end_and_gives_back_the_rest() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    rig.deliver(&["gate"]);
    rig.asked_for("gate").await;
    rig.deliver(&["waits"]);
    rig.say(Shutdown::Graceful);
    let released = rig.sink.release("waits").await;
    assert!(released.keep_place && !released.counted);
    rig.deliver_jobs(Vec::new());
    rig.open_gate().await;
    assert_eq!(rig.sink.result("gate").await, "{\"rows\":1}");
    let summary = rig.ended().await.unwrap();
    assert_eq!((summary.inserted, summary.released), (1, 1));
}

#[tokio::test]
async fn the_second_signal_ends_what_runs_as_lost() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    rig.deliver(&["hang", "too"]);
    rig.asked_for("hang").await;
    rig.say(Shutdown::Graceful);
    rig.say(Shutdown::AtOnce);
    assert!(rig.sink.failure("hang").await.lost);
    assert!(rig.sink.failure("too").await.lost);
    assert_eq!(rig.ended().await.unwrap().lost, 2);
}

#[tokio::test]
async fn a_burst_ends_when_nothing_is_ready_and_nothing_runs_here() {
    let sink = Sink::default();
    sink.stand(QueueState {
        ready: 1,
        pending: 5,
        is_paused: false,
    });
    let rig = Rig::at(&sink, |settings| settings.is_burst = true);
    rig.sink.credits(64).await;
    rig.sink.asked().await;
    rig.deliver(&["one"]);
    rig.sink.result("one").await;
    rig.sink.asked().await;
    // Four are left that wait for a retry.
    rig.sink.stand(QueueState {
        ready: 0,
        pending: 4,
        is_paused: false,
    });
    assert_eq!(rig.ended().await.unwrap().inserted, 1);
}

#[tokio::test]
async fn a_burst_does_not_wait_for_a_queue_that_is_stopped() {
    let sink = Sink::default();
    sink.stand(QueueState {
        ready: 7,
        pending: 7,
        is_paused: true,
    });
    let rig = Rig::at(&sink, |settings| settings.is_burst = true);
    assert_eq!(rig.ended().await.unwrap().inserted, 0);
}

#[tokio::test]
async fn a_pool_ends_after_as_many_attempts_as_it_was_told() {
    let rig = Rig::with(|settings| settings.tasks_max = Some(3));
    rig.sink.credits(3).await;
    rig.deliver(&["one", "curable"]);
    rig.sink.failure("curable").await;
    rig.deliver(&["two"]);
    rig.sink.result("two").await;
    assert_eq!(rig.sink.granted(), 3, "nothing more was asked for");
    let summary = rig.ended().await.unwrap();
    assert_eq!((summary.inserted, summary.failed), (2, 1));
}

#[tokio::test]
async fn workers_insert_beside_each_other() {
    let rig = Rig::with(|settings| settings.workers = 2);
    rig.sink.credits(128).await;
    rig.deliver(&["gate"]);
    rig.asked_for("gate").await;
    rig.deliver(&["other"]);
    assert_eq!(rig.sink.result("other").await, "{\"rows\":1}");
    assert_eq!(rig.sink.outcomes("gate"), 0);
    rig.open_gate().await;
    rig.sink.result("gate").await;
    rig.stop().await;
}

#[tokio::test]
async fn a_job_of_another_kind_is_offered_to_others() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    let mut job = delivery("foreign");
    job.kind = "resize".into();
    rig.deliver_jobs(vec![job]);
    let released = rig.sink.release("foreign").await;
    assert!(released.delay > Duration::ZERO && released.reason.contains("resize"));
    assert!(rig.asked().is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn what_is_no_document_fails_for_good_without_a_child_seeing_it() {
    let rig = Rig::new();
    rig.sink.credits(64).await;
    let mut job = delivery("broken");
    job.payload = Bytes::from_static(b"{\"a\": \xff}");
    let mut second = delivery("half");
    second.payload = Bytes::from_static(b"{\"a\": ");
    rig.deliver_jobs(vec![job, second, delivery("whole")]);
    assert!(rig.sink.failure("broken").await.permanent);
    assert!(rig.sink.failure("half").await.permanent);
    assert_eq!(rig.sink.result("whole").await, "{\"rows\":1}");
    assert_eq!(rig.asked()[0].matches("uuid").count(), 1);
    rig.stop().await;
}

#[tokio::test]
async fn a_pool_whose_children_cannot_be_started_can_still_be_stopped() {
    let rig = Rig::with(|settings| settings.program.path = "/nowhere/ganger".into());
    rig.sink.credits(64).await;
    assert_eq!(rig.stop().await, Summary::default());
}

#[tokio::test]
async fn a_pool_gives_up_after_ten_starts_in_a_row_that_fail() {
    let rig = Rig::with(|settings| {
        settings.program.path = "/bin/false".into();
        settings.restart_pause = Duration::from_millis(1);
    });
    rig.sink.credits(64).await;
    rig.deliver(&["waits"]);
    let released = rig.sink.release("waits").await;
    assert!(!released.counted);
    let error = rig.ended().await.unwrap_err().to_string();
    assert!(error.contains("exit status: 1"), "{error}");
}

#[tokio::test]
async fn tasks_that_kill_their_children_do_not_end_the_pool() {
    let rig = Rig::with(|settings| settings.restart_pause = Duration::from_millis(1));
    rig.sink.credits(64).await;
    let names: Vec<_> = (0..15).map(|number| format!("poison {number}")).collect();
    rig.deliver(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        assert!(rig.sink.failure(name).await.lost);
    }
    rig.deliver(&["one"]);
    assert_eq!(rig.sink.result("one").await, "{\"rows\":1}");
    rig.stop().await;
}

#[tokio::test]
async fn durations_of_attempts_are_sampled() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("telemetry");
    let rig = Rig::with(|settings| settings.telemetry = Some(directory.clone()));
    rig.sink.credits(64).await;
    rig.deliver(&["one", "curable"]);
    rig.sink.result("one").await;
    rig.stop().await;
    let file = fs::read_dir(&directory).unwrap().next().unwrap().unwrap();
    let name = file.file_name().into_string().unwrap();
    let middle = name
        .strip_prefix("duration.")
        .and_then(|rest| rest.strip_suffix(".csv"));
    assert!(middle.is_some(), "{name}");
    let text = fs::read_to_string(file.path()).unwrap();
    let label = ",task: <class 'wq.ql.notify.InsertAction'>,";
    assert_eq!(text.matches(label).count(), 2, "{text}");
}

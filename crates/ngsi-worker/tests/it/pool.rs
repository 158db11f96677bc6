//! The pool: inserts, reports, replaces children, stops.

use std::fs;
use std::time::Duration;

use crate::support::{ScriptedServer, TestPool, delivery};
use bytes::Bytes;
use ganger_ngsi_worker::{QueueState, Shutdown, Summary};

#[tokio::test]
async fn a_task_is_inserted_and_its_rows_are_reported() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    pool.deliver(&["one", "two"]);
    assert_eq!(pool.server.result("one").await, "{\"rows\":1}");
    assert_eq!(pool.server.result("two").await, "{\"rows\":1}");
    assert_eq!(pool.requests().len(), 1, "they went together");
    pool.server.credits(64).await;
    let summary = pool.stop().await;
    assert_eq!(summary.inserted, 2);
}

#[tokio::test]
async fn failures_are_reported_as_by_the_child() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    pool.deliver(&["curable", "incurable"]);
    let curable = pool.server.failure("curable").await;
    assert_eq!(
        (curable.group.as_str(), curable.message.as_str()),
        ("ngsi", "E(later)")
    );
    assert!(!curable.permanent && !curable.lost);
    let incurable = pool.server.failure("incurable").await;
    assert!(incurable.permanent && !incurable.lost);
    assert_eq!(pool.stop().await.failed, 2);
}

#[tokio::test]
async fn of_a_batch_whose_child_dies_only_the_task_that_kills_it_alone_is_lost() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    pool.deliver(&["before", "poison", "after"]);
    assert_eq!(pool.server.result("before").await, "{\"rows\":1}");
    assert!(pool.server.failure("poison").await.lost);
    assert_eq!(pool.server.result("after").await, "{\"rows\":1}");
    let requests = pool.requests();
    assert_eq!(requests.len(), 4, "together, then one by one: {requests:?}");
    assert!(requests[0].contains("\"is_repeat\":false"));
    for line in &requests[1..] {
        assert!(line.contains("\"is_repeat\":true") && line.matches("uuid").count() == 1);
    }
    assert_eq!(pool.children().len(), 3, "two were killed");
    let summary = pool.stop().await;
    assert_eq!((summary.inserted, summary.lost), (2, 1));
}

#[tokio::test]
async fn a_child_that_dies_without_a_task_is_replaced() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    pool.deliver(&["one"]);
    pool.server.result("one").await;
    let child = rustix::process::Pid::from_raw(i32::try_from(pool.children()[0]).unwrap()).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    pool.wait_for_children(2).await;
    pool.deliver(&["two"]);
    assert_eq!(pool.server.result("two").await, "{\"rows\":1}");
    pool.stop().await;
}

#[tokio::test]
async fn a_task_that_hangs_alone_fails_permanently() {
    let pool = TestPool::with(|settings| settings.patience = Duration::from_millis(300));
    pool.server.credits(64).await;
    pool.deliver(&["hang", "fine"]);
    let failing = pool.server.failure("hang").await;
    assert!(failing.permanent && failing.message.starts_with("JobTimeoutException("));
    assert_eq!(pool.server.result("fine").await, "{\"rows\":1}");
    pool.stop().await;
}

#[tokio::test]
async fn a_later_attempt_is_a_repeat() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    let mut job = delivery("again");
    job.attempt = 2;
    pool.deliver_jobs(vec![job]);
    pool.server.result("again").await;
    let requests = pool.requests();
    assert!(requests[0].contains("\"is_repeat\":true"), "{requests:?}");
    // Half of the remaining time of the lease, which has just begun.
    let exclusive_for = requests[0].split("\"sole_for_ms\":").nth(1).unwrap();
    let exclusive_for: u64 = exclusive_for.split(',').next().unwrap().parse().unwrap();
    assert!(
        (200_000..=300_000).contains(&exclusive_for),
        "{exclusive_for}"
    );
    pool.stop().await;
}

#[tokio::test]
async fn the_outcome_of_a_lost_lease_is_dropped() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    pool.deliver(&["gate"]);
    pool.wait_for_request("gate").await;
    pool.deliver(&["waits", "stays"]);
    pool.lose("gate");
    pool.lose("waits");
    pool.open_gate().await;
    pool.server.result("stays").await;
    assert_eq!(
        pool.server.outcomes("gate") + pool.server.outcomes("waits"),
        0
    );
    assert!(pool.requests().iter().all(|line| !line.contains("waits")));
    pool.server.credits(64).await;
    let summary = pool.stop().await;
    assert_eq!((summary.inserted, summary.dropped), (1, 2));
}

#[tokio::test]
async fn the_first_signal_lets_running_tasks_end_and_releases_the_rest() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    pool.deliver(&["gate"]);
    pool.wait_for_request("gate").await;
    pool.deliver(&["waits"]);
    pool.set_shutdown(Shutdown::Graceful);
    let released = pool.server.release("waits").await;
    assert!(released.keep_place && !released.counted);
    pool.deliver_jobs(Vec::new());
    pool.open_gate().await;
    assert_eq!(pool.server.result("gate").await, "{\"rows\":1}");
    let summary = pool.wait().await.unwrap();
    assert_eq!((summary.inserted, summary.released), (1, 1));
}

#[tokio::test]
async fn the_second_signal_ends_running_tasks_as_lost() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    pool.deliver(&["hang", "too"]);
    pool.wait_for_request("hang").await;
    pool.set_shutdown(Shutdown::Graceful);
    pool.set_shutdown(Shutdown::AtOnce);
    assert!(pool.server.failure("hang").await.lost);
    assert!(pool.server.failure("too").await.lost);
    assert_eq!(pool.wait().await.unwrap().lost, 2);
}

#[tokio::test]
async fn a_burst_ends_when_nothing_is_ready_and_nothing_runs_here() {
    let server = ScriptedServer::default();
    server.set_queue_state(QueueState {
        ready: 1,
        pending: 5,
        is_paused: false,
    });
    let pool = TestPool::at(&server, |settings| settings.is_burst = true);
    pool.server.credits(64).await;
    pool.server.wait_for_query().await;
    pool.deliver(&["one"]);
    pool.server.result("one").await;
    pool.server.wait_for_query().await;
    // Four tasks are left, which wait for a retry.
    pool.server.set_queue_state(QueueState {
        ready: 0,
        pending: 4,
        is_paused: false,
    });
    assert_eq!(pool.wait().await.unwrap().inserted, 1);
}

#[tokio::test]
async fn a_burst_does_not_wait_for_a_paused_queue() {
    let server = ScriptedServer::default();
    server.set_queue_state(QueueState {
        ready: 7,
        pending: 7,
        is_paused: true,
    });
    let pool = TestPool::at(&server, |settings| settings.is_burst = true);
    assert_eq!(pool.wait().await.unwrap().inserted, 0);
}

#[tokio::test]
async fn a_pool_ends_after_the_configured_number_of_attempts() {
    let pool = TestPool::with(|settings| settings.tasks_max = Some(3));
    pool.server.credits(3).await;
    pool.deliver(&["one", "curable"]);
    pool.server.failure("curable").await;
    pool.deliver(&["two"]);
    pool.server.result("two").await;
    assert_eq!(pool.server.granted(), 3, "nothing more was asked for");
    let summary = pool.wait().await.unwrap();
    assert_eq!((summary.inserted, summary.failed), (2, 1));
}

#[tokio::test]
async fn workers_insert_concurrently() {
    let pool = TestPool::with(|settings| settings.workers = 2);
    pool.server.credits(128).await;
    pool.deliver(&["gate"]);
    pool.wait_for_request("gate").await;
    pool.deliver(&["other"]);
    assert_eq!(pool.server.result("other").await, "{\"rows\":1}");
    assert_eq!(pool.server.outcomes("gate"), 0);
    pool.open_gate().await;
    pool.server.result("gate").await;
    pool.stop().await;
}

#[tokio::test]
async fn a_job_of_another_kind_is_released() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    let mut job = delivery("foreign");
    job.kind = "resize".into();
    pool.deliver_jobs(vec![job]);
    let released = pool.server.release("foreign").await;
    assert!(released.delay > Duration::ZERO && released.reason.contains("resize"));
    assert!(pool.requests().is_empty());
    pool.stop().await;
}

#[tokio::test]
async fn an_invalid_payload_fails_permanently_without_reaching_a_child() {
    let pool = TestPool::new();
    pool.server.credits(64).await;
    let mut job = delivery("broken");
    job.payload = Bytes::from_static(b"{\"a\": \xff}");
    let mut second = delivery("half");
    second.payload = Bytes::from_static(b"{\"a\": ");
    pool.deliver_jobs(vec![job, second, delivery("whole")]);
    assert!(pool.server.failure("broken").await.permanent);
    assert!(pool.server.failure("half").await.permanent);
    assert_eq!(pool.server.result("whole").await, "{\"rows\":1}");
    assert_eq!(pool.requests()[0].matches("uuid").count(), 1);
    pool.stop().await;
}

#[tokio::test]
async fn a_pool_whose_children_cannot_be_started_can_still_be_stopped() {
    let pool = TestPool::with(|settings| settings.program.path = "/nowhere/ganger".into());
    pool.server.credits(64).await;
    assert_eq!(pool.stop().await, Summary::default());
}

#[tokio::test]
async fn a_pool_gives_up_after_ten_failed_starts_in_a_row() {
    let pool = TestPool::with(|settings| {
        settings.program.path = "/bin/false".into();
        settings.restart_pause = Duration::from_millis(1);
    });
    pool.server.credits(64).await;
    pool.deliver(&["waits"]);
    let released = pool.server.release("waits").await;
    assert!(!released.counted);
    let error = pool.wait().await.unwrap_err().to_string();
    assert!(error.contains("exit status: 1"), "{error}");
}

#[tokio::test]
async fn tasks_that_kill_their_children_do_not_end_the_pool() {
    let pool = TestPool::with(|settings| settings.restart_pause = Duration::from_millis(1));
    pool.server.credits(64).await;
    let names: Vec<_> = (0..15).map(|number| format!("poison {number}")).collect();
    pool.deliver(&names.iter().map(String::as_str).collect::<Vec<_>>());
    for name in &names {
        assert!(pool.server.failure(name).await.lost);
    }
    pool.deliver(&["one"]);
    assert_eq!(pool.server.result("one").await, "{\"rows\":1}");
    pool.stop().await;
}

#[tokio::test]
async fn durations_of_attempts_are_sampled() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("telemetry");
    let pool = TestPool::with(|settings| settings.telemetry = Some(directory.clone()));
    pool.server.credits(64).await;
    pool.deliver(&["one", "curable"]);
    pool.server.result("one").await;
    pool.stop().await;
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

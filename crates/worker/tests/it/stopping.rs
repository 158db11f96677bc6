//! Credits, the stop of a worker, and an unreachable server.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::time::Duration;

use crate::support::{TEST_TIMEOUT, TestWorker};
use ganger_worker::Shutdown;

#[tokio::test]
async fn credits_are_free_slots() {
    let worker = TestWorker::with("", |settings| settings.concurrency = 3);
    worker.sink.wait_for_credits(3).await;
    worker
        .sh("fine", "echo 1")
        .sh("waits", "echo ready >&2; sleep 1000");
    for job in ["a", "b"] {
        worker.deliver_job(job, "waits", "");
        worker.sink.wait_for_log(job, "ready").await;
    }
    worker.sink.wait_for_credits(1).await;
    worker.deliver_job("c", "fine", "");
    worker.sink.result("c").await;
    worker.sink.wait_for_credits(1).await;
    worker.stop(Shutdown::AtOnce);
    assert_eq!(worker.join().await.failed, 2);
}

#[tokio::test]
async fn rel_w7_a_program_that_ends_in_its_grace_period_counts() {
    let worker = TestWorker::with("", |settings| settings.grace = TEST_TIMEOUT);
    let gate = tempfile::tempdir().unwrap();
    let fifo = gate.path().join("gate").display().to_string();
    worker.sh(
        "gate",
        &format!("mkfifo '{fifo}'; echo ready >&2; read -r line < '{fifo}'; echo \"$line\""),
    );
    worker.deliver_job("a", "gate", "");
    worker.sink.wait_for_log("a", "ready").await;
    worker.stop(Shutdown::Graceful);
    std::fs::write(&fifo, "9\n").unwrap();
    assert_eq!(worker.sink.result("a").await, "9");
    assert_eq!(worker.join().await.succeeded, 1);
}

#[tokio::test]
async fn rel_w7_a_program_that_does_not_end_is_reported_as_interrupted() {
    let worker = TestWorker::new();
    worker.sh("waits", "trap '' TERM; echo ready >&2; sleep 1000");
    worker.deliver_job("a", "waits", "");
    worker.sink.wait_for_log("a", "ready").await;
    worker.stop(Shutdown::Graceful);
    let failure = worker.sink.failure("a").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("interrupted", false)
    );
    worker.join().await;
}

#[tokio::test]
async fn rel_w7_a_second_signal_skips_the_grace_period() {
    let worker = TestWorker::with("", |settings| settings.grace = TEST_TIMEOUT * 10);
    worker.sh("waits", "trap '' TERM; echo ready >&2; sleep 1000");
    worker.deliver_job("a", "waits", "");
    worker.sink.wait_for_log("a", "ready").await;
    worker.stop(Shutdown::Graceful);
    worker.stop(Shutdown::AtOnce);
    assert_eq!(worker.sink.failure("a").await.group, "interrupted");
    worker.join().await;
}

#[tokio::test]
async fn rel_w7_a_job_that_arrives_during_a_stop_is_released_uncounted() {
    let worker = TestWorker::with("", |settings| settings.grace = TEST_TIMEOUT);
    let gate = tempfile::tempdir().unwrap();
    let fifo = gate.path().join("gate").display().to_string();
    worker.sh(
        "gate",
        &format!("mkfifo '{fifo}'; echo ready >&2; read -r line < '{fifo}'; echo \"$line\""),
    );
    worker.deliver_job("a", "gate", "");
    worker.sink.wait_for_log("a", "ready").await;
    worker.stop(Shutdown::Graceful);
    worker.sink.wait_for_credits(0).await;
    worker.deliver_job("b", "gate", "");
    let releasing = worker.sink.release("b").await;
    assert_eq!(
        (releasing.counted, releasing.delay, releasing.keep_place),
        (false, Duration::ZERO, true)
    );
    std::fs::write(&fifo, "9\n").unwrap();
    let summary = worker.join().await;
    assert_eq!((summary.succeeded, summary.released), (1, 1));
}

#[tokio::test]
async fn rel_w8_outcomes_are_delivered_once_an_absent_server_is_back() {
    let worker = TestWorker::with("", |settings| settings.concurrency = 2);
    worker.sh("fine", "echo log >&2; echo 1");
    worker.sink.set_unreachable(true);
    worker.deliver_job("a", "fine", "");
    worker.deliver_job("b", "fine", "");
    // The slots are free again although no outcome has been delivered.
    worker.sink.wait_for_credits(2).await;
    assert_eq!(
        worker.sink.outcome_count("a") + worker.sink.outcome_count("b"),
        0
    );
    worker.sink.set_unreachable(false);
    assert_eq!(worker.sink.result("a").await, "1");
    assert_eq!(worker.sink.result("b").await, "1");
    worker.end().await;
}

/// Runs short programs until the worker prefetches: it then allows one more delivery for each slot.
async fn warm_up(worker: &TestWorker) {
    worker.sh("short", "echo 1");
    for number in 0..100 {
        let job = format!("warm-{number}");
        worker.deliver_job(&job, "short", "");
        worker.sink.result(&job).await;
        if worker.sink.credits_now() == 2 {
            return;
        }
    }
    eprintln!("skipped in part: this machine is too busy for a program to be short");
}

#[tokio::test]
async fn a_prefetched_job_runs_when_a_slot_is_free() {
    let worker = TestWorker::new();
    warm_up(&worker).await;
    let gate = tempfile::tempdir().unwrap();
    let fifo = gate.path().join("gate").display().to_string();
    worker.sh(
        "gate",
        &format!("mkfifo '{fifo}'; echo ready >&2; read -r line < '{fifo}'; echo \"$line\""),
    );
    worker.deliver_job("a", "gate", "");
    worker.sink.wait_for_log("a", "ready").await;
    worker.deliver_job("b", "short", "");
    std::fs::write(&fifo, "9\n").unwrap();
    assert_eq!(worker.sink.result("a").await, "9");
    // Exactly one outcome: the job ran, or was released because this took too long.
    worker.sink.outcome("b").await;
    assert_eq!(worker.sink.outcome_count("b"), 1);
    worker.end().await;
}

#[tokio::test]
async fn a_prefetched_job_is_released_uncounted_when_no_slot_is_free_in_time() {
    let worker = TestWorker::new();
    warm_up(&worker).await;
    worker.sh("waits", "echo ready >&2; sleep 1000");
    worker.deliver_job("a", "waits", "");
    worker.sink.wait_for_log("a", "ready").await;
    worker.deliver_job("b", "short", "");
    let releasing = worker.sink.release("b").await;
    assert_eq!(
        (releasing.counted, releasing.delay, releasing.keep_place),
        (false, Duration::ZERO, true)
    );
    // No job is prefetched until programs are short again.
    worker.sink.wait_for_credits(0).await;
    worker.stop(Shutdown::AtOnce);
    worker.join().await;
}

#[tokio::test]
async fn a_prefetched_job_whose_lease_is_lost_is_never_started() {
    let worker = TestWorker::new();
    worker
        .sh("gate", "echo ready >&2; read -r line; sleep 0.01; echo 1")
        .sh("never", "touch started; echo started >&2");
    worker.deliver_job("a", "gate", "");
    worker.sink.wait_for_log("a", "ready").await;
    worker.deliver_job("b", "never", "");
    worker.lose_lease("b");
    worker.sink.wait_until_abandoned_or_released("b").await;
    assert_eq!(worker.sink.log("b"), b"");
    worker.end().await;
}

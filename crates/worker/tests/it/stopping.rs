//! Credits, the worker's own stop, and a server that is away.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::time::Duration;

use crate::support::{TEST_TIMEOUT, TestWorker};
use ganger_worker::Shutdown;

#[tokio::test]
async fn credits_are_free_slots() {
    let rig = TestWorker::with("", |settings| settings.concurrency = 3);
    rig.sink.credits(3).await;
    rig.sh("fine", "echo 1")
        .sh("waits", "echo ready >&2; sleep 1000");
    for job in ["a", "b"] {
        rig.job(job, "waits", "");
        rig.sink.logged(job, "ready").await;
    }
    rig.sink.credits(1).await;
    rig.job("c", "fine", "");
    rig.sink.result("c").await;
    rig.sink.credits(1).await;
    rig.stop(Shutdown::AtOnce);
    assert_eq!(rig.join().await.failed, 2);
}

#[tokio::test]
async fn rel_w7_a_program_that_ends_in_its_period_of_grace_counts() {
    let rig = TestWorker::with("", |settings| settings.grace = TEST_TIMEOUT);
    let gate = tempfile::tempdir().unwrap();
    let fifo = gate.path().join("gate").display().to_string();
    rig.sh(
        "gate",
        &format!("mkfifo '{fifo}'; echo ready >&2; read -r line < '{fifo}'; echo \"$line\""),
    );
    rig.job("a", "gate", "");
    rig.sink.logged("a", "ready").await;
    rig.stop(Shutdown::Graceful);
    std::fs::write(&fifo, "9\n").unwrap();
    assert_eq!(rig.sink.result("a").await, "9");
    assert_eq!(rig.join().await.succeeded, 1);
}

#[tokio::test]
async fn rel_w7_a_program_that_does_not_end_is_reported_as_interrupted() {
    let rig = TestWorker::new();
    rig.sh("waits", "trap '' TERM; echo ready >&2; sleep 1000");
    rig.job("a", "waits", "");
    rig.sink.logged("a", "ready").await;
    rig.stop(Shutdown::Graceful);
    let failure = rig.sink.failure("a").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("interrupted", false)
    );
    rig.join().await;
}

#[tokio::test]
async fn rel_w7_a_second_signal_does_not_wait() {
    let rig = TestWorker::with("", |settings| settings.grace = TEST_TIMEOUT * 10);
    rig.sh("waits", "trap '' TERM; echo ready >&2; sleep 1000");
    rig.job("a", "waits", "");
    rig.sink.logged("a", "ready").await;
    rig.stop(Shutdown::Graceful);
    rig.stop(Shutdown::AtOnce);
    assert_eq!(rig.sink.failure("a").await.group, "interrupted");
    rig.join().await;
}

#[tokio::test]
async fn rel_w7_a_job_that_comes_too_late_is_given_back_uncounted() {
    let rig = TestWorker::with("", |settings| settings.grace = TEST_TIMEOUT);
    let gate = tempfile::tempdir().unwrap();
    let fifo = gate.path().join("gate").display().to_string();
    rig.sh(
        "gate",
        &format!("mkfifo '{fifo}'; echo ready >&2; read -r line < '{fifo}'; echo \"$line\""),
    );
    rig.job("a", "gate", "");
    rig.sink.logged("a", "ready").await;
    rig.stop(Shutdown::Graceful);
    rig.sink.credits(0).await;
    rig.job("b", "gate", "");
    let releasing = rig.sink.release("b").await;
    assert_eq!(
        (releasing.counted, releasing.delay, releasing.keep_place),
        (false, Duration::ZERO, true)
    );
    std::fs::write(&fifo, "9\n").unwrap();
    let summary = rig.join().await;
    assert_eq!((summary.succeeded, summary.released), (1, 1));
}

#[tokio::test]
async fn rel_w8_what_ends_while_the_server_is_away_is_delivered_when_it_is_back() {
    let rig = TestWorker::with("", |settings| settings.concurrency = 2);
    rig.sh("fine", "echo log >&2; echo 1");
    rig.sink.set_away(true);
    rig.job("a", "fine", "");
    rig.job("b", "fine", "");
    // The slots are free again although nobody has heard of the outcomes.
    rig.sink.credits(2).await;
    assert_eq!(rig.sink.outcomes("a") + rig.sink.outcomes("b"), 0);
    rig.sink.set_away(false);
    assert_eq!(rig.sink.result("a").await, "1");
    assert_eq!(rig.sink.result("b").await, "1");
    rig.end().await;
}

/// Lets the worker see that its programs are short: it then allows one delivery more for each slot.
async fn warm_up(rig: &TestWorker) {
    rig.sh("short", "echo 1");
    for number in 0..100 {
        let job = format!("warm-{number}");
        rig.job(&job, "short", "");
        rig.sink.result(&job).await;
        if rig.sink.credits_now() == 2 {
            return;
        }
    }
    eprintln!("skipped in part: this machine is too busy for a program to be short");
}

#[tokio::test]
async fn a_job_taken_ahead_runs_when_the_slot_is_free() {
    let rig = TestWorker::new();
    warm_up(&rig).await;
    let gate = tempfile::tempdir().unwrap();
    let fifo = gate.path().join("gate").display().to_string();
    rig.sh(
        "gate",
        &format!("mkfifo '{fifo}'; echo ready >&2; read -r line < '{fifo}'; echo \"$line\""),
    );
    rig.job("a", "gate", "");
    rig.sink.logged("a", "ready").await;
    rig.job("b", "short", "");
    std::fs::write(&fifo, "9\n").unwrap();
    assert_eq!(rig.sink.result("a").await, "9");
    // Run, or given back if this took too long: never both, never neither.
    rig.sink.outcome("b").await;
    assert_eq!(rig.sink.outcomes("b"), 1);
    rig.end().await;
}

#[tokio::test]
async fn a_job_taken_ahead_is_given_back_uncounted_when_no_slot_is_free_in_time() {
    let rig = TestWorker::new();
    warm_up(&rig).await;
    rig.sh("waits", "echo ready >&2; sleep 1000");
    rig.job("a", "waits", "");
    rig.sink.logged("a", "ready").await;
    rig.job("b", "short", "");
    let releasing = rig.sink.release("b").await;
    assert_eq!(
        (releasing.counted, releasing.delay, releasing.keep_place),
        (false, Duration::ZERO, true)
    );
    // And no other is asked for until programs are short again.
    rig.sink.credits(0).await;
    rig.stop(Shutdown::AtOnce);
    rig.join().await;
}

#[tokio::test]
async fn a_lost_job_in_hand_is_never_started() {
    let rig = TestWorker::new();
    rig.sh("gate", "echo ready >&2; read -r line; sleep 0.01; echo 1")
        .sh("never", "touch started; echo started >&2");
    rig.job("a", "gate", "");
    rig.sink.logged("a", "ready").await;
    rig.job("b", "never", "");
    rig.lose("b");
    rig.sink.abandoned_or_released("b").await;
    assert_eq!(rig.sink.log("b"), b"");
    rig.end().await;
}

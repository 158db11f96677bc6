//! No process of a run survives it, whatever it does: faults f4, f5, f61 of the catalogue.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::fs;
use std::time::Duration;

use crate::support::{TestWorker, delivery, processes, until_true};

/// Ignores what can be ignored, in itself and in a child, and lets a grandchild escape by a double fork into a session of its own.
const STUBBORN: &str = r#"
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 4)
    time.sleep(1000)
    os._exit(0)
print("ready", file=sys.stderr, flush=True)
"#;

#[tokio::test]
async fn rel_w2_f61_what_escapes_by_a_double_fork_is_killed_when_the_program_ends() {
    let rig = TestWorker::new();
    rig.python("escapes", &format!("{STUBBORN}\nprint(1)"));
    rig.job("escapes", "escapes", "");
    assert_eq!(rig.sink.result("escapes").await, "1");
    rig.assert_no_process();
    rig.end().await;
}

#[tokio::test]
async fn rel_w3_f61_a_timeout_kills_what_ignores_sigterm() {
    let rig = TestWorker::with("[default]\nwall_time = \"500ms\"", |_| {});
    rig.python("ignores", &format!("{STUBBORN}\ntime.sleep(1000)"));
    rig.job("ignores", "ignores", "");
    let failure = rig.sink.failure("ignores").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("timeout", false)
    );
    rig.assert_no_process();
    rig.end().await;
}

#[tokio::test]
async fn rel_w3_a_program_is_asked_before_it_is_killed() {
    let rig = TestWorker::with("", |settings| settings.grace = crate::support::TEST_TIMEOUT);
    rig.sh(
        "polite",
        "trap 'echo asked >&2; kill $!; exit 0' TERM; echo ready >&2; sleep 1000 & wait",
    );
    rig.job("polite", "polite", "");
    rig.sink.logged("polite", "ready").await;
    rig.lose("polite");
    rig.sink.abandoned("polite").await;
    rig.assert_no_process();
    assert_eq!(
        rig.sink.outcomes("polite"),
        0,
        "nobody wants the outcome of a lost lease"
    );
    rig.end().await;
}

#[tokio::test]
async fn rel_l8_a_program_whose_lease_is_not_renewed_is_killed_unasked() {
    let rig = TestWorker::new();
    rig.python("stays", &format!("{STUBBORN}\ntime.sleep(1000)"));
    let mut job = delivery("stays", "stays");
    job.lease_for = Duration::from_secs(2);
    job.expires_at = std::time::Instant::now() + job.lease_for;
    rig.deliver(job);
    rig.sink.abandoned("stays").await;
    rig.assert_no_process();
    rig.end().await;
}

#[tokio::test]
async fn f61_a_fork_bomb_is_stopped() {
    let rig = TestWorker::with(
        "[default]\nwall_time = \"700ms\"\ngrace = \"100ms\"",
        |_| {},
    );
    // Bounded by its depth, so that a failing test leaves the machine alive; each refills what dies.
    let bomb = r"
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
def grow(depth):
    while True:
        for _ in range(2):
            if depth and os.fork() == 0:
                os.setsid()
                grow(depth - 1)
        time.sleep(0.3)
grow(3)
";
    rig.python("bomb", bomb);
    rig.job("bomb", "bomb", "");
    assert_eq!(rig.sink.failure("bomb").await.group, "timeout");
    rig.assert_no_process();
    rig.end().await;
}

#[tokio::test]
async fn concurrent_runs_do_not_kill_each_others_processes() {
    let rig = TestWorker::with("", |settings| settings.concurrency = 3);
    rig.python("escapes", &format!("{STUBBORN}\nprint(1)"));
    rig.sh(
        "waits",
        "(setsid sleep 1000 & ) ; echo ready >&2; sleep 1000",
    );
    rig.job("stays", "waits", "");
    rig.sink.logged("stays", "ready").await;
    for job in ["a", "b", "c", "d"] {
        rig.job(job, "escapes", "");
        rig.sink.result(job).await;
    }
    until_true("both sleepers live", || {
        processes(&rig.name)
            .iter()
            .filter(|line| line.starts_with("sleep"))
            .count()
            == 2
    });
    rig.lose("stays");
    rig.sink.abandoned("stays").await;
    rig.assert_no_process();
    rig.end().await;
}

#[tokio::test]
async fn rel_w1_a_killed_supervisor_costs_one_run_and_leaves_nothing() {
    let rig = TestWorker::new();
    rig.python(
        "murder",
        &format!("{STUBBORN}\nos.kill(os.getppid(), 9)\ntime.sleep(1000)"),
    );
    rig.sh("fine", "echo 1");
    rig.job("murder", "murder", "");
    let failure = rig.sink.failure("murder").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("supervisor-lost", false)
    );
    rig.assert_no_process();
    rig.job("fine", "fine", "");
    assert_eq!(rig.sink.result("fine").await, "1");
    rig.end().await;
}

/// Set in the process that plays the worker to be killed.
const ROLE: &str = "GANGER_TEST_WORKER_PLACE";

#[tokio::test]
async fn rel_w2_f4_programs_die_with_a_worker_killed_with_9() {
    if let Some(place) = std::env::var_os(ROLE) {
        return work_until_killed(place.into()).await;
    }
    let place = tempfile::tempdir().unwrap();
    let scratch = place.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let mut worker = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "containment::rel_w2_f4_programs_die_with_a_worker_killed_with_9",
            "--nocapture",
        ])
        .env(ROLE, &scratch)
        // It will not clean up after itself.
        .env("TMPDIR", place.path())
        .spawn()
        .unwrap();
    let name = format!("rig-{}-1", worker.id());
    until_true("program, child and grandchild run", || {
        processes(&name).len() >= 3
    });
    worker.kill().unwrap();
    worker.wait().unwrap();
    until_true("all are dead", || processes(&name).is_empty());
    // The next worker cleans up.
    let left = || fs::read_dir(&scratch).unwrap().count();
    assert_eq!(left(), 1);
    let rig = TestWorker::with("", |settings| settings.scratch.clone_from(&scratch));
    rig.sink.credits(1).await;
    assert_eq!(left(), 1, "its own");
    rig.end().await;
    assert_eq!(left(), 0);
}

async fn work_until_killed(place: std::path::PathBuf) {
    let rig = TestWorker::with("", |settings| settings.scratch = place);
    rig.python("stays", &format!("{STUBBORN}\ntime.sleep(1000)"));
    rig.job("stays", "stays", "");
    rig.sink.outcome("stays").await;
}

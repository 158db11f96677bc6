//! No process of a run survives the run: faults f4, f5 and f61 of the catalogue.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::fs;
use std::time::Duration;

use crate::support::{TestWorker, delivery, processes, until_true};

/// Ignores SIGTERM and SIGHUP together with a child, and starts a grandchild that escapes by a double fork into its own
/// session.
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
async fn rel_w2_f61_a_process_that_double_forks_is_killed_when_the_program_ends() {
    let worker = TestWorker::new();
    worker.python("escapes", &format!("{STUBBORN}\nprint(1)"));
    worker.deliver_job("escapes", "escapes", "");
    assert_eq!(worker.sink.result("escapes").await, "1");
    worker.assert_no_process();
    worker.end().await;
}

#[tokio::test]
async fn rel_w3_f61_a_timeout_kills_processes_that_ignore_sigterm() {
    let worker = TestWorker::with("[default]\nwall_time = \"500ms\"", |_| {});
    worker.python("ignores", &format!("{STUBBORN}\ntime.sleep(1000)"));
    worker.deliver_job("ignores", "ignores", "");
    let failure = worker.sink.failure("ignores").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("timeout", false)
    );
    worker.assert_no_process();
    worker.end().await;
}

#[tokio::test]
async fn rel_w3_a_program_gets_sigterm_before_it_is_killed() {
    let worker = TestWorker::with("", |settings| settings.grace = crate::support::TEST_TIMEOUT);
    worker.sh(
        "polite",
        "trap 'echo asked >&2; kill $!; exit 0' TERM; echo ready >&2; sleep 1000 & wait",
    );
    worker.deliver_job("polite", "polite", "");
    worker.sink.wait_for_log("polite", "ready").await;
    worker.lose_lease("polite");
    worker.sink.wait_until_abandoned("polite").await;
    worker.assert_no_process();
    assert_eq!(
        worker.sink.outcome_count("polite"),
        0,
        "the outcome of a lost lease is not reported"
    );
    worker.end().await;
}

#[tokio::test]
async fn rel_l8_a_program_is_killed_before_its_unrenewed_lease_expires() {
    let worker = TestWorker::new();
    worker.python("stays", &format!("{STUBBORN}\ntime.sleep(1000)"));
    let mut job = delivery("stays", "stays");
    job.lease_for = Duration::from_secs(2);
    job.expires_at = std::time::Instant::now() + job.lease_for;
    worker.deliver(job);
    worker.sink.wait_until_abandoned("stays").await;
    worker.assert_no_process();
    worker.end().await;
}

#[tokio::test]
async fn f61_a_fork_bomb_is_stopped() {
    let worker = TestWorker::with(
        "[default]\nwall_time = \"700ms\"\ngrace = \"100ms\"",
        |_| {},
    );
    // The depth is limited, so that a failing test does not exhaust the machine; each process replaces children that
    // die.
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
    worker.python("bomb", bomb);
    worker.deliver_job("bomb", "bomb", "");
    assert_eq!(worker.sink.failure("bomb").await.group, "timeout");
    worker.assert_no_process();
    worker.end().await;
}

#[tokio::test]
async fn concurrent_runs_do_not_kill_each_others_processes() {
    let worker = TestWorker::with("", |settings| settings.concurrency = 3);
    worker.python("escapes", &format!("{STUBBORN}\nprint(1)"));
    worker.sh(
        "waits",
        "(setsid sleep 1000 & ) ; echo ready >&2; sleep 1000",
    );
    worker.deliver_job("stays", "waits", "");
    worker.sink.wait_for_log("stays", "ready").await;
    for job in ["a", "b", "c", "d"] {
        worker.deliver_job(job, "escapes", "");
        worker.sink.result(job).await;
    }
    until_true("both sleepers live", || {
        processes(&worker.name)
            .iter()
            .filter(|line| line.starts_with("sleep"))
            .count()
            == 2
    });
    worker.lose_lease("stays");
    worker.sink.wait_until_abandoned("stays").await;
    worker.assert_no_process();
    worker.end().await;
}

#[tokio::test]
async fn rel_w1_a_killed_supervisor_fails_one_run_and_leaves_no_process() {
    let worker = TestWorker::new();
    worker.python(
        "kills-supervisor",
        &format!("{STUBBORN}\nos.kill(os.getppid(), 9)\ntime.sleep(1000)"),
    );
    worker.sh("fine", "echo 1");
    worker.deliver_job("kills-supervisor", "kills-supervisor", "");
    let failure = worker.sink.failure("kills-supervisor").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("supervisor-lost", false)
    );
    worker.assert_no_process();
    worker.deliver_job("fine", "fine", "");
    assert_eq!(worker.sink.result("fine").await, "1");
    worker.end().await;
}

/// Variable of the child process whose worker is killed: the scratch directory to use.
const SCRATCH_VARIABLE: &str = "GANGER_TEST_WORKER_PLACE";

#[tokio::test]
async fn rel_w2_f4_programs_die_when_their_worker_is_killed_with_sigkill() {
    if let Some(directory) = std::env::var_os(SCRATCH_VARIABLE) {
        return work_until_killed(directory.into()).await;
    }
    let directory = tempfile::tempdir().unwrap();
    let scratch = directory.path().join("scratch");
    fs::create_dir(&scratch).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "containment::rel_w2_f4_programs_die_when_their_worker_is_killed_with_sigkill",
            "--nocapture",
        ])
        .env(SCRATCH_VARIABLE, &scratch)
        // A killed process does not remove its temporary files.
        .env("TMPDIR", directory.path())
        .spawn()
        .unwrap();
    let name = format!("test-worker-{}-1", child.id());
    until_true("program, child and grandchild run", || {
        processes(&name).len() >= 3
    });
    child.kill().unwrap();
    child.wait().unwrap();
    until_true("all are dead", || processes(&name).is_empty());
    // The next worker cleans up.
    let left = || fs::read_dir(&scratch).unwrap().count();
    assert_eq!(left(), 1);
    let worker = TestWorker::with("", |settings| settings.scratch.clone_from(&scratch));
    worker.sink.wait_for_credits(1).await;
    assert_eq!(left(), 1, "its own");
    worker.end().await;
    assert_eq!(left(), 0);
}

async fn work_until_killed(directory: std::path::PathBuf) {
    let worker = TestWorker::with("", |settings| settings.scratch = directory);
    worker.python("stays", &format!("{STUBBORN}\ntime.sleep(1000)"));
    worker.deliver_job("stays", "stays", "");
    worker.sink.outcome("stays").await;
}

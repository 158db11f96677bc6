//! Programs that try to outlive their run, as root and as an unprivileged user: `security.md` H6, H7, L5.
//!
//! An unprivileged worker cannot create control groups, so it finds the processes to kill by descent.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

use ganger_worker::Settings;

use crate::support::{TestWorker, supervisor, until_true};

/// Variable of the child process that runs a worker: the directory it may write to.
const DIRECTORY_VARIABLE: &str = "GANGER_TEST_PLACE";
/// Id of an unprivileged user.
const NOBODY: u32 = 65_534;
/// Number of runs after which the zombies are counted.
const RUNS: u32 = 6;

/// Leaves a process behind with its own session, an empty environment, no parent in the run, and no pipe.
const ESCAPE: &str = r"
import os, sys, time
place = sys.argv[0].rsplit('/', 1)[0]
note = place + '/escaped'
supervisor = os.getppid()
worker = int(open(f'/proc/{supervisor}/stat').read().rsplit(')', 1)[1].split()[1])
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 4)
        script = f'echo $$ > {note}.new; mv {note}.new {note}; exec sleep 1000'
        os.execve('/bin/sh', ['sh', '-c', script], {'PATH': '/bin:/usr/bin'})
    os._exit(0)
while not os.path.exists(note): time.sleep(0.001)
";

/// Starts the test again in a child process of `user`, which runs a worker in `directory`.
fn spawn_as(test: &str, user: u32, directory: &Path) -> Child {
    let supervisor_copy = directory.join("supervisor");
    fs::copy(supervisor(), &supervisor_copy).unwrap();
    for (path, mode) in [(directory, 0o777), (&supervisor_copy, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    Command::new("/proc/self/exe")
        .args(["--exact", &format!("escape::{test}"), "--nocapture"])
        .env(DIRECTORY_VARIABLE, directory)
        .env("TMPDIR", directory)
        .env("GANGER_TOKEN", "topsecret-token")
        .current_dir("/")
        .uid(user)
        .gid(user)
        .spawn()
        .unwrap()
}

/// Returns the users that the attacks run as: root and an unprivileged one, or only the current user if not root.
fn users() -> Vec<u32> {
    if rustix::process::geteuid().is_root() {
        vec![0, NOBODY]
    } else {
        eprintln!("only as the current user: root would also test as nobody");
        vec![rustix::process::geteuid().as_raw()]
    }
}

/// Runs the test in a child process of each user; asserts that each succeeds.
fn spawn_as_each_user(test: &str) {
    for user in users() {
        let directory = tempfile::tempdir().unwrap();
        let status = spawn_as(test, user, directory.path()).wait().unwrap();
        assert!(status.success(), "user {user}: {status}");
    }
}

fn worker_directory() -> Option<std::path::PathBuf> {
    std::env::var_os(DIRECTORY_VARIABLE).map(Into::into)
}

fn start_worker(directory: &Path, handlers: &str) -> TestWorker {
    TestWorker::with(handlers, |settings: &mut Settings| {
        settings.supervisor = directory.join("supervisor");
    })
}

/// Returns the id of the escaped process, and removes the file that names it.
fn escaped(worker: &TestWorker) -> i32 {
    let note = worker.programs.path().join("escaped");
    let pid = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
    fs::remove_file(note).unwrap();
    pid
}

/// Returns `/proc/PID/stat`; empty if the process does not exist, not even as a zombie.
fn stat(pid: i32) -> String {
    fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()
}

/// Returns `/proc/PID/stat` of every child of this process, zombies included.
fn children() -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = threads.filter_map(|one| fs::read_to_string(one.path().join("children")).ok());
    let pids = lists.flat_map(|list| {
        let pids = list.split_whitespace().map(|pid| pid.parse().unwrap());
        pids.collect::<Vec<i32>>()
    });
    pids.map(stat).collect()
}

#[tokio::test]
async fn h7_a_process_that_kills_its_supervisor_is_killed_and_reaped() {
    let Some(directory) = worker_directory() else {
        return spawn_as_each_user("h7_a_process_that_kills_its_supervisor_is_killed_and_reaped");
    };
    let worker = start_worker(&directory, "[default]\nmay_signal = true");
    worker.python(
        "escapes",
        &format!("{ESCAPE}\nos.kill(supervisor, 9)\ntime.sleep(1000)"),
    );
    // A child of this process that does not belong to the worker.
    let mut own = Command::new("sleep").arg("1000").spawn().unwrap();
    for run in 0..RUNS {
        let job = run.to_string();
        worker.deliver_job(&job, "escapes", "");
        let failure = worker.sink.failure(&job).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            ("supervisor-lost", false)
        );
        assert_eq!(
            stat(escaped(&worker)),
            "",
            "nothing is left, no zombie either"
        );
    }
    let mut left = children();
    left.retain(|stat| !stat.contains("(sleep)"));
    assert_eq!(left, Vec::<String>::new(), "every supervisor was killed");
    assert!(
        own.try_wait().unwrap().is_none(),
        "the worker does not kill other children"
    );
    own.kill().unwrap();
    own.wait().unwrap();
    worker.end().await;
}

#[tokio::test]
async fn h7_a_program_without_rights_cannot_signal_its_supervisor_or_its_worker() {
    let test = "h7_a_program_without_rights_cannot_signal_its_supervisor_or_its_worker";
    let Some(directory) = worker_directory() else {
        return spawn_as_each_user(test);
    };
    if rustix::process::geteuid().is_root() {
        // Programs of root may send signals: see the test above.
        return;
    }
    let worker = start_worker(&directory, "");
    let attack = r"
import ctypes
# Signals have scopes since version 6 of Landlock; without Landlock the call fails.
has_scopes = ctypes.CDLL(None).syscall(444, None, 0, 1) >= 6
if not has_scopes: print('no scopes', file=sys.stderr, flush=True)
refused = 0
for pid in supervisor, worker:
    try: os.kill(pid, 0)
    except PermissionError: refused += 1
child = os.fork()
if child == 0: time.sleep(1000)
os.kill(child, 9)
os.wait()
print(refused if has_scopes else 2)
";
    worker.python("escapes", &format!("{ESCAPE}\n{attack}"));
    worker.deliver_job("a", "escapes", "");
    assert_eq!(worker.sink.result("a").await, "2", "signals are refused");
    assert_eq!(stat(escaped(&worker)), "", "nothing is left");
    if String::from_utf8_lossy(&worker.sink.log("a")).contains("no scopes") {
        eprintln!("skipped: the kernel has no Landlock of the sixth version");
    }
    worker.end().await;
    assert_eq!(children(), Vec::<String>::new());
}

#[tokio::test]
async fn h7_an_escaped_process_dies_when_its_worker_is_killed_with_sigkill() {
    let test = "h7_an_escaped_process_dies_when_its_worker_is_killed_with_sigkill";
    if let Some(directory) = worker_directory() {
        let worker = start_worker(&directory, "");
        worker.python(
            "escapes",
            &format!(
                "{ESCAPE}\nos.rename(note, os.path.dirname(place) + '/note')\ntime.sleep(1000)"
            ),
        );
        worker.deliver_job("a", "escapes", "");
        worker.sink.outcome("a").await;
        return;
    }
    for user in users() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = spawn_as(test, user, directory.path());
        let note = directory.path().join("note");
        until_true("it has escaped", || note.exists());
        let escaped: i32 = fs::read_to_string(&note).unwrap().trim().parse().unwrap();
        assert_ne!(stat(escaped), "", "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
        until_true("it is dead", || {
            stat(escaped).is_empty() || stat(escaped).contains(") Z")
        });
    }
}

#[tokio::test]
async fn h6_a_program_cannot_read_environment_or_memory_of_its_worker() {
    let test = "h6_a_program_cannot_read_environment_or_memory_of_its_worker";
    let Some(directory) = worker_directory() else {
        return spawn_as_each_user(test);
    };
    if rustix::process::geteuid().is_root() {
        // Root reads everything.
        return;
    }
    let worker = start_worker(&directory, "[default]\nmay_signal = true");
    let spy = r"
import json
refused = 0
for pid in supervisor, worker:
    for file in 'environ', 'mem', 'maps', 'fd/0':
        try: open(f'/proc/{pid}/{file}', 'rb').read(1)
        except PermissionError: refused += 1
print(json.dumps(refused))
";
    worker.python("spies", &format!("{ESCAPE}\n{spy}"));
    worker.deliver_job("a", "spies", "");
    assert_eq!(worker.sink.result("a").await, "8");
    worker.end().await;
}

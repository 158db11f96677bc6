//! What programs read and write, and how their runs end: faults f60, f62 and f63 of the catalogue.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::support::{TestWorker, delivery};
use bytes::Bytes;

#[tokio::test]
async fn a_program_reads_its_arguments_and_writes_its_result() {
    let worker = TestWorker::new();
    worker.sh("echo", "echo working >&2; cat");
    worker.deliver_job("payload", "echo", "{\"uid\": 1234}");
    assert_eq!(worker.sink.result("payload").await, "[{\"uid\": 1234}]");
    assert_eq!(worker.sink.log("payload"), b"working\n");
    worker.deliver_job("nothing", "echo", "");
    assert_eq!(worker.sink.result("nothing").await, "[]");
    let mut job = delivery("inputs", "echo");
    job.payload = Bytes::from_static(b"not an argument here");
    job.inputs = vec![
        Bytes::from_static(b"1"),
        Bytes::from_static(b"{\"link\":  2}"),
    ];
    worker.deliver(job);
    assert_eq!(worker.sink.result("inputs").await, "[1,{\"link\":  2}]");
    assert_eq!(worker.end().await.succeeded, 3);
}

#[tokio::test]
async fn metrics_count_the_runs() {
    let metrics = Arc::new(ganger_worker::Metrics::default());
    let shared = Arc::clone(&metrics);
    let worker = TestWorker::with("", |settings| {
        settings.concurrency = 3;
        settings.metrics = shared;
    });
    let shown = Arc::clone(&metrics);
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let address = ganger_worker::show_metrics(anywhere, move || shown.text())
        .await
        .unwrap();
    worker.sh("good", "cat").sh("bad", "exit 100");
    for (job, kind) in [("a", "good"), ("b", "good"), ("c", "bad")] {
        worker.deliver_job(job, kind, "1");
        worker.sink.outcome(job).await;
    }
    let fetch = |path: &'static str| {
        tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
    };
    assert!(
        fetch("/healthz")
            .await
            .unwrap()
            .ends_with("{\"status\":\"live\"}")
    );
    assert!(
        fetch("/metrics")
            .await
            .unwrap()
            .contains("ganger_worker_slots 3\n")
    );
    worker.end().await;
    let text = metrics.text();
    for line in [
        "ganger_worker_jobs_total{outcome=\"succeeded\"} 2",
        "ganger_worker_jobs_total{outcome=\"failed\"} 1",
        "ganger_worker_run_seconds_count 3",
        "ganger_worker_jobs_held 0",
    ] {
        assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
    }
}

#[tokio::test]
async fn arguments_that_are_not_json_fail_the_job_permanently_without_a_run() {
    let worker = TestWorker::new();
    worker.sh("echo", "cat");
    worker.deliver_job("bad", "echo", "hello");
    let failure = worker.sink.failure("bad").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("bad-input", true)
    );
    assert!(failure.message.contains("hello"), "{}", failure.message);
    worker.end().await;
}

#[tokio::test]
async fn f60_every_exit_status_has_its_failure_group() {
    let worker = TestWorker::with("", |settings| settings.concurrency = 4);
    worker.sh(
        "exit",
        "read -r line; code=${line#[}; echo '\"said\"'; echo why >&2; exit ${code%]}",
    );
    for code in 0..=255 {
        worker.deliver_job(&code.to_string(), "exit", &code.to_string());
        worker.sink.outcome(&code.to_string()).await;
    }
    assert_eq!(worker.sink.result("0").await, "\"said\"");
    for code in 1..=255 {
        let failure = worker.sink.failure(&code.to_string()).await;
        let group = if code == 100 {
            "permanent".into()
        } else {
            format!("exit-{code}")
        };
        assert_eq!((failure.group, failure.permanent), (group, code == 100));
        assert_eq!(failure.message, "why");
    }
    worker.end().await;
}

#[tokio::test]
async fn f60_a_program_killed_by_a_signal_fails_with_its_name_and_may_be_retried() {
    let worker = TestWorker::new();
    worker.python(
        "die",
        "import os, json, sys\nos.kill(os.getpid(), json.load(sys.stdin)[0])",
    );
    for (signal, name) in [
        (1, "HUP"),
        (6, "ABRT"),
        (9, "KILL"),
        (11, "SEGV"),
        (15, "TERM"),
        (34, "34"),
    ] {
        worker.deliver_job(name, "die", &signal.to_string());
        let failure = worker.sink.failure(name).await;
        assert_eq!(
            (failure.group, failure.permanent),
            (format!("signal-SIG{name}"), false)
        );
    }
    worker.end().await;
}

#[tokio::test]
async fn f60_output_that_is_not_json_fails_permanently_and_is_shown() {
    let worker = TestWorker::new();
    worker
        .sh("silent", "exit 0")
        .sh("chatty", "echo hello world")
        .sh("two", "echo 1; echo 2");
    worker.deliver_job("silent", "silent", "");
    assert_eq!(worker.sink.result("silent").await, "null");
    for kind in ["chatty", "two"] {
        worker.deliver_job(kind, kind, "");
        let failure = worker.sink.failure(kind).await;
        assert_eq!(
            (failure.group.as_str(), failure.permanent),
            ("bad-output", true)
        );
    }
    assert!(
        worker
            .sink
            .failure("chatty")
            .await
            .message
            .contains("hello world")
    );
    worker.end().await;
}

#[tokio::test]
async fn f60_output_beyond_the_limit_is_read_dropped_and_counted() {
    let worker = TestWorker::with("[default]\nresult_bytes_max = \"1KiB\"", |_| {});
    worker.sh("flood", "head -c 300000000 /dev/zero; echo done >&2");
    worker.deliver_job("flood", "flood", "");
    let failure = worker.sink.failure("flood").await;
    assert_eq!(
        (failure.group.as_str(), failure.permanent),
        ("bad-output", true)
    );
    assert!(
        failure.message.contains("300000000 bytes") && failure.message.contains("1024"),
        "{}",
        failure.message
    );
    assert_eq!(worker.sink.log("flood"), b"done\n");
    worker.end().await;
}

#[tokio::test]
async fn f62_a_program_may_close_its_pipes_at_once() {
    let worker = TestWorker::new();
    worker.sh("closes", "exec 0<&- 1>&- 2>&- 3>&-; exit 3");
    worker.deliver_job("closes", "closes", "1");
    assert_eq!(worker.sink.failure("closes").await.group, "exit-3");
    worker.end().await;
}

#[tokio::test]
async fn f62_a_large_input_that_nobody_reads_blocks_nothing() {
    let worker = TestWorker::new();
    worker.sh("ignores-input", "echo 1").sh("length", "wc -c");
    let large = format!("\"{}\"", "x".repeat(900_000));
    worker.deliver_job("ignores-input", "ignores-input", &large);
    assert_eq!(worker.sink.result("ignores-input").await, "1");
    worker.deliver_job("length", "length", &large);
    assert_eq!(worker.sink.result("length").await, "900004");
    worker.end().await;
}

#[tokio::test]
async fn f62_a_child_that_keeps_the_output_open_does_not_delay_the_run() {
    let worker = TestWorker::new();
    worker.sh("leaves", "sleep 1000 & echo 7");
    worker.deliver_job("leaves", "leaves", "");
    assert_eq!(worker.sink.result("leaves").await, "7");
    worker.assert_no_process();
    worker.end().await;
}

#[tokio::test]
async fn output_of_a_child_just_after_the_programs_end_counts() {
    let worker = TestWorker::new();
    worker.sh("late", "(sleep 0.02; echo 8) & exit 0");
    worker.deliver_job("late", "late", "");
    assert_eq!(worker.sink.result("late").await, "8");
    worker.end().await;
}

#[tokio::test]
async fn f63_a_log_may_have_any_bytes_and_its_tail_is_the_failure_message() {
    let worker = TestWorker::new();
    worker.python("noise", "import sys\nsys.stderr.buffer.write(bytes(range(256)) * 100 + b'\\nthe end\\n')\nsys.exit(1)");
    worker.deliver_job("noise", "noise", "");
    let failure = worker.sink.failure("noise").await;
    assert!(failure.message.ends_with("the end"), "{}", failure.message);
    assert_eq!(worker.sink.log("noise").len(), 25_600 + 9);
    worker.end().await;
}

#[tokio::test]
async fn f63_a_log_line_of_100_mib_is_cut_and_counted() {
    let worker = TestWorker::with("[default]\nlog_bytes_max = \"64KiB\"", |_| {});
    worker.sh("line", "head -c 104857600 /dev/zero >&2; echo 1");
    worker.deliver_job("line", "line", "");
    assert_eq!(worker.sink.result("line").await, "1");
    let log = worker.sink.log("line");
    let note = String::from_utf8_lossy(&log[65_536..]).into_owned();
    assert!(
        note.contains(&format!("{} bytes of log dropped", 104_857_600 - 65_536)),
        "{note}"
    );
    worker.end().await;
}

#[tokio::test]
async fn a_log_is_readable_while_the_program_runs() {
    let worker = TestWorker::new();
    worker.sh("waits", "echo begun >&2; sleep 1000");
    worker.deliver_job("waits", "waits", "");
    worker.sink.wait_for_log("waits", "begun").await;
    worker.lose_lease("waits");
    worker.sink.wait_until_abandoned("waits").await;
    worker.end().await;
}

#[tokio::test]
async fn progress_is_reported_while_the_program_runs_and_invalid_lines_are_noted() {
    let worker = TestWorker::new();
    worker.sh(
        "steps",
        "echo nonsense >&3; echo '{\"progress\": 0.4, \"message\": \"half\"}' >&3; sleep 1000",
    );
    worker.deliver_job("steps", "steps", "");
    assert_eq!(
        worker.sink.first_progress("steps").await,
        (400_000, "half".into())
    );
    worker.sink.wait_for_log("steps", "nonsense").await;
    worker.lose_lease("steps");
    worker.sink.wait_until_abandoned("steps").await;
    worker.end().await;
}

#[tokio::test]
async fn the_environment_describes_the_job_and_nothing_else() {
    let worker = TestWorker::with("", |settings| {
        settings.server.token = Some("a secret".into());
        settings.pass_env = vec!["CARGO_MANIFEST_DIR".into()];
    });
    worker.python(
        "environment",
        "import json, os\nprint(json.dumps(dict(os.environ, cwd=os.getcwd(), files=os.listdir())))",
    );
    let mut job = delivery("id 1", "environment");
    job.attempt = 3;
    job.deadline = Some(UNIX_EPOCH + Duration::from_millis(5_000_000_000_250));
    worker.deliver(job);
    let result = worker.sink.result("id 1").await;
    let found: serde_json::Value = serde_json::from_str(&result).unwrap();
    let expected = [
        ("GANGER_JOB_ID", "1/id 1"),
        ("GANGER_KIND", "environment"),
        ("GANGER_TASK_ID", "1/id 1"),
        ("GANGER_METHOD", "environment"),
        ("GANGER_ATTEMPT", "3"),
        ("GANGER_DEADLINE", "5000000000.250"),
        ("GANGER_URL", "http://127.0.0.1:3733"),
        ("GANGER_NAMESPACE", "default"),
        ("GANGER_SERVER", "http://127.0.0.1:3733"),
        ("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR")),
    ];
    for (name, value) in expected {
        assert_eq!(found[name], value, "{name}");
    }
    assert_eq!(found["cwd"], found["HOME"]);
    assert_eq!(found["cwd"], found["TMPDIR"]);
    assert_eq!(found["files"], serde_json::json!([]));
    assert!(
        found.get("CARGO_PKG_NAME").is_none() && !result.contains("secret"),
        "{result}"
    );
    worker.end().await;
}

#[tokio::test]
async fn a_script_finds_its_own_and_its_neighbours_files_by_its_real_path() {
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().join("release");
    let link = directory.path().join("current");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink("release", &link).unwrap();
    let worker = TestWorker::with("", |settings| settings.directory.clone_from(&link));
    let put = |name: &str, text: &str| {
        fs::write(real.join(name), text).unwrap();
        fs::set_permissions(real.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    fs::write(real.join("lib.sh"), "greeting='\"hello\"'\n").unwrap();
    put(
        "shell",
        "#!/bin/sh\n. \"$(dirname \"$0\")/lib.sh\"\necho \"$0 $GANGER_PROGRAM\" >&2\nls -l /proc/self/fd >&2\necho \"$greeting\"\n",
    );
    put("python", "#!/usr/bin/env python3\nraise ValueError\n");
    std::os::unix::fs::symlink("shell", real.join("alias")).unwrap();
    for kind in ["shell", "alias"] {
        worker.deliver_job(kind, kind, "");
        assert_eq!(worker.sink.result(kind).await, "\"hello\"");
        let path = real.canonicalize().unwrap().join(kind);
        let log = String::from_utf8(worker.sink.log(kind)).unwrap();
        let path = path.display();
        assert!(log.contains(&format!("{path} {path}")), "{log}");
        assert!(!log.contains("-> /tmp"), "it is open nowhere: {log}");
    }
    worker.deliver_job("python", "python", "");
    let message = worker.sink.failure("python").await.message;
    let file = format!("File \"{}/python\"", real.canonicalize().unwrap().display());
    assert!(message.contains(&file), "{message}");
    worker.end().await;
}

//! Walkthroughs 1 and 2 of enq's documentation, with `ganger` instead of `enq`: a real server, worker and programs;
//! also with `ganger run` and over plain HTTP.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use tempfile::TempDir;

/// Timeout of every wait, so that a failing test does not hang.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

const SINGLE: &str = r#"[{
    "task_id": {
        "shard": "1",
        "id": "mytask"
    },
    "method": "process-user-data",
    "args": [
        {
            "type": "VALUE",
            "value_json": "eyJ1aWQiOjEyMzR9"
        }
    ]
}]"#;

const TREE: &str = r#"[{
    "task_id": {
        "shard": "1",
        "id": "save",
    },
    "method": "save-user-data",
    "args": [
        {
            "type": "VALUE",
            "value_json": "{\"uid\": 1234}",
        }
    ]
}, {
    "task_id": {
        "shard": "1",
        "id": "email",
    },
    "method": "process-user-data",
    "args": [
        {
            "type": "TASKREF",
            "task_id": {
                "shard": "1",
                "id": "save",
            },
        }
    ]
}]"#;

/// A program that writes its input to its log.
const PROCESS: &str = "#!/bin/sh\ncat >&2\n";

/// The program of the documentation, without jq.
const SAVE: &str = r#"#!/bin/sh
uid=$(tr -dc 0-9)
echo "{\"link\": \"https://download/for/$uid\"}"
"#;

/// A process that is killed when dropped.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and a worker, in a new directory.
pub(crate) struct TestServer {
    dir: TempDir,
    address: String,
    _worker: KillOnDrop,
    _server: KillOnDrop,
}

impl TestServer {
    pub(crate) fn new() -> Self {
        Self::start(["--shard", "1"])
    }

    /// Starts a server with these shards, and a worker of its first.
    pub(crate) fn start(shards: [&str; 2]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let programs = dir.path().join("worker.d");
        fs::create_dir(&programs).expect("made");
        add_program(&programs, "process-user-data", PROCESS);
        add_program(&programs, "save-user-data", SAVE);
        add_program(&programs, "fail", "#!/bin/sh\necho no luck >&2\nexit 100\n");
        add_program(&programs, "echo", "#!/bin/sh\necho working >&2\ncat\n");
        let log = dir.path().join("server.log");
        let server = spawn(
            Command::new(cargo_bin("ganger"))
                .current_dir(dir.path())
                .args(["server", "--addr", ":0", "--db", "test.db"])
                .args(shards),
            &log,
        );
        let address = wait_for(&log, "url=http://");
        let worker = spawn(
            Command::new(cargo_bin("ganger"))
                .args(["worker", "--server", &address, "--id", "worker1", "--dir"])
                .arg(&programs),
            &dir.path().join("worker.log"),
        );
        Self {
            dir,
            address,
            _worker: worker,
            _server: server,
        }
    }

    pub(crate) fn ganger(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = Command::new(cargo_bin("ganger"))
            .args(["--server", &self.address])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        child
            .stdin
            .take()
            .expect("piped")
            .write_all(input.as_bytes())
            .expect("read");
        child.wait_with_output().expect("it ends")
    }

    /// Runs a command that must succeed; returns its standard output.
    pub(crate) fn run_ok(&self, arguments: &[&str], input: &str) -> String {
        let output = self.ganger(arguments, input);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{arguments:?}: {}\n{errors}{}",
            output.status,
            self.logs()
        );
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn logs(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.dir.path().join(name)).unwrap_or_default();
        format!(
            "server:\n{}\nworker:\n{}",
            read("server.log"),
            read("worker.log")
        )
    }

    /// Sends a request as curl would; returns the status line and the body.
    fn http(&self, method: &str, path: &str, body: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        stream.set_read_timeout(Some(TEST_TIMEOUT)).expect("set");
        let host = &self.address;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (
            head.lines().next().unwrap_or_default().to_owned(),
            body.to_owned(),
        )
    }
}

fn add_program(dir: &Path, name: &str, text: &str) {
    let path: PathBuf = dir.join(name);
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
}

fn spawn(command: &mut Command, log: &Path) -> KillOnDrop {
    let file = fs::File::create(log).expect("made");
    let child = command
        .env_remove("GANGER_CONFIG")
        .env_remove("GANGER_TOKEN")
        .env_remove("GANGER_TOKEN_FILE")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file)
        .spawn()
        .expect("the program was built");
    KillOnDrop(child)
}

/// Waits until a log contains `mark` in a complete line; returns the word after it.
fn wait_for(log: &Path, mark: &str) -> String {
    let until = Instant::now() + TEST_TIMEOUT;
    loop {
        let text = fs::read_to_string(log).unwrap_or_default();
        if let Some((_, rest)) = text.split_once(mark)
            && let Some(word) = rest.split_whitespace().next()
            && rest.contains('\n')
        {
            return word.to_owned();
        }
        assert!(Instant::now() < until, "{mark} did not come:\n{text}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the final id of a mock id, from the output of `submit`.
fn id_of(map: &str, mock: &str) -> String {
    let line = map
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{mock} -> ")));
    line.unwrap_or_else(|| panic!("{mock} is not in\n{map}"))
        .to_owned()
}

#[test]
fn walkthrough_1_a_task_gets_its_argument() {
    let server = TestServer::new();
    let map = server.run_ok(&["submit"], SINGLE);
    let id = id_of(&map, "1/mytask");
    assert!(id.starts_with("1/"), "{id}");
    server.run_ok(&["job", "wait", &id, "--timeout", "60s"], "");
    let log = server.run_ok(&["job", "logs", &id], "");
    let input: Value = serde_json::from_str(log.trim()).expect("the input is JSON");
    assert_eq!(input, serde_json::json!([{ "uid": 1234 }]));
    assert_eq!(server.run_ok(&["job", "result", &id], "").trim(), "null");
    let worker_log = fs::read_to_string(server.dir.path().join("worker.log")).expect("there");
    assert!(worker_log.contains("process-user-data"), "{worker_log}");
}

#[test]
fn walkthrough_2_a_task_gets_the_result_of_another() {
    let server = TestServer::new();
    let map = server.run_ok(&["submit", "--wait", "--timeout", "60s"], TREE);
    assert_eq!(map.lines().count(), 2, "{map}");
    let (save, email) = (id_of(&map, "1/save"), id_of(&map, "1/email"));
    let result = server.run_ok(&["job", "result", &save], "");
    assert_eq!(result.trim(), r#"{"link": "https://download/for/1234"}"#);
    let log = server.run_ok(&["job", "logs", &email], "");
    let input: Value = serde_json::from_str(log.trim()).expect("the input is JSON");
    assert_eq!(
        input,
        serde_json::json!([{ "link": "https://download/for/1234" }])
    );
    let graph: Value =
        serde_json::from_str(&server.run_ok(&["job", "graph", &email, "--json"], ""))
            .expect("JSON");
    assert_eq!(graph["jobs"].as_array().map(Vec::len), Some(2));
    assert_eq!(graph["edges"][0]["position"], 0);
}

#[test]
fn the_walkthrough_with_run() {
    let server = TestServer::new();
    let output = server.ganger(
        &[
            "run",
            "--timeout",
            "60s",
            "echo",
            r#"{"uid": 1234}"#,
            "text",
        ],
        "",
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        r#"[{"uid": 1234},"text"]"#
    );
    assert!(errors.contains("working"), "the log is shown: {errors}");
}

#[test]
fn the_walkthrough_over_plain_http() {
    let server = TestServer::new();
    let (status, body) = server.http("POST", "/api/v1/graphs", TREE);
    assert!(status.contains(" 20"), "{status}\n{body}");
    let map: Value = serde_json::from_str(&body).expect("JSON");
    let id = map["jobs"][1]["id"].as_str().expect("an id").to_owned();
    server.run_ok(&["job", "wait", &id, "--timeout", "60s"], "");
    let (status, body) = server.http("GET", &format!("/api/v1/jobs/{id}"), "");
    assert!(status.contains("200"), "{status}\n{body}");
    let job: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(job["state"], "succeeded");
}

#[test]
fn exit_codes_follow_the_job() {
    let server = TestServer::new();
    let failed = server.ganger(&["run", "--timeout", "60s", "fail"], "");
    assert_eq!(
        failed.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&failed.stderr)
    );
    assert!(String::from_utf8_lossy(&failed.stderr).contains("no luck"));
    let failures = server.run_ok(&["failures", "list", "--json"], "");
    assert!(failures.contains("\"count\":1"), "{failures}");

    let missing = server.ganger(&["job", "get", "nobody"], "");
    assert_eq!(missing.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("[job_not_found]"));

    let waiting = server.ganger(
        &[
            "run",
            "--queue",
            "nobody-takes",
            "--timeout",
            "200ms",
            "echo",
        ],
        "",
    );
    assert_eq!(
        waiting.status.code(),
        Some(6),
        "{}",
        String::from_utf8_lossy(&waiting.stderr)
    );

    let other_shard = SINGLE.replace("\"shard\": \"1\"", "\"shard\": \"2\"");
    let refused = server.ganger(&["submit"], &other_shard);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(5), "{text}");
    assert!(text.contains("[unknown_shard]"), "{text}");
}

#[test]
fn a_command_that_waits_reports_why_the_job_does_not_run() {
    let server = TestServer::new();
    let graph = r#"{"jobs": [{"name": "a", "kind": "echo", "queue": "nobody-takes"},
        {"name": "b", "kind": "echo", "inputs": [{"result_of": "a"}]}]}"#;
    let document = server.dir.path().join("graph.json");
    fs::write(&document, graph).expect("written");
    let document = document.to_str().expect("UTF-8");
    let no_worker = "No worker has asked the queue nobody-takes";
    for (place, (arguments, wanted)) in [
        (
            vec!["run", "typo"],
            "Worker worker1 gave the job back: no program typo in ",
        ),
        (vec!["run", "--queue", "nobody-takes", "echo"], no_worker),
        (vec!["submit", "--wait", document], no_worker),
        (vec!["submit", "--progress", document], no_worker),
        (vec!["job", "wait", "typo-2"], "no program typo in "),
        (
            vec!["--json", "run", "typo"],
            "\"code\":\"released\",\"text\":\"Worker",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        server.run_ok(
            &["run", "--detach", "--id", &format!("typo-{place}"), "typo"],
            "",
        );
        let log = server.dir.path().join("command.log");
        let _command = spawn(
            Command::new(cargo_bin("ganger"))
                .args(["--server", &server.address])
                .args(&arguments),
            &log,
        );
        wait_for(&log, wanted);
    }
}

#[test]
fn a_repeated_submission_under_its_key_returns_the_same_ids() {
    let server = TestServer::new();
    let first = server.run_ok(&["submit", "--idempotency-key", "once"], TREE);
    let second = server.run_ok(&["submit", "--idempotency-key", "once"], TREE);
    assert_eq!(first, second);
}

#[test]
fn why_names_the_paused_queue_and_the_command_that_resumes_it() {
    let server = TestServer::new();
    server.run_ok(&["queue", "pause", "slow"], "");
    let id = server.run_ok(&["run", "--detach", "--queue", "slow", "echo"], "");
    let why = server.run_ok(&["job", "why", id.trim()], "");
    assert!(why.contains("The queue slow is paused"), "{why}");
    assert!(why.contains("ganger queue resume slow"), "{why}");
    server.run_ok(&["job", "cancel", id.trim(), "--reason", "not wanted"], "");
    let job: Value = serde_json::from_str(&server.run_ok(&["job", "get", id.trim(), "--json"], ""))
        .expect("JSON");
    assert_eq!(job["state"], "cancelled");
    let list = server.run_ok(&["job", "list", "--queue", "slow"], "");
    assert!(list.contains("cancelled"), "{list}");
}

#[test]
fn run_accepts_the_fields_of_a_document() {
    let server = TestServer::new();
    let first = server.run_ok(
        &[
            "run",
            "--detach",
            "--queue",
            "nobody-takes",
            "echo",
            "1",
            "x",
        ],
        "",
    );
    let run = [
        "run",
        "--detach",
        "--queue",
        "nobody-takes",
        "--unique",
        "once",
        "--unique-window",
        "1h",
        "--label",
        "customer=42",
        "--tag",
        "t",
        "--backoff",
        "1s..5m",
        "--retries",
        "7",
        "--keep-failed",
        "forever",
        "--after",
        first.trim(),
        "echo",
    ];
    let id = server.run_ok(&run, "");
    assert_eq!(server.run_ok(&run, ""), id, "the key is taken");
    let job: Value = serde_json::from_str(&server.run_ok(&["job", "get", id.trim(), "--json"], ""))
        .expect("JSON");
    assert_eq!(job["state"], "blocked", "{job}");
    assert_eq!(job["unique_key"], "once", "{job}");
    assert_eq!(job["labels"]["customer"], "42", "{job}");
    assert_eq!(job["retry"]["max"], 7, "{job}");
    let shown = server.run_ok(&["job", "get", first.trim()], "");
    assert!(shown.contains("[1, \"x\"]"), "the input is shown: {shown}");
    for (limit, has_more) in [("1", true), ("2", false), ("3", false)] {
        let list = server.ganger(&["job", "list", "--limit", limit], "");
        let words = String::from_utf8_lossy(&list.stderr);
        assert_eq!(
            words.contains("there are more"),
            has_more,
            "{limit}: {words}"
        );
    }
}

#[test]
fn a_stream_of_jobs_is_accepted_and_a_bad_line_named() {
    let server = TestServer::new();
    let mut lines = "{\"kind\": \"x\", \"queue\": \"stock\"}\n".repeat(2_500);
    assert_eq!(
        server.run_ok(&["submit", "--stream"], &lines).trim(),
        "2500 jobs accepted"
    );
    lines.push_str("{\"kind\": }\n");
    let output = server.ganger(&["submit", "--stream"], &lines);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("line 2501"), "{text}");
    let queue: Value =
        serde_json::from_str(&server.run_ok(&["queue", "get", "stock", "--json"], ""))
            .expect("JSON");
    assert_eq!(queue["counts"]["ready"], 5_000);
}

#[test]
fn streamed_jobs_keep_their_names_even_equal_ones() {
    let server = TestServer::new();
    let lines = "{\"kind\": \"x\", \"name\": \"first\"}\n{\"kind\": \"x\", \"name\": \"twin\"}\n{\"kind\": \"x\", \"name\": \"twin\"}\n";
    let output = server.run_ok(&["submit", "--stream"], lines);
    assert_eq!(output.trim(), "3 jobs accepted");
    let list = server.run_ok(&["job", "list"], "");
    assert_eq!(list.matches(" first ").count(), 1, "{list}");
    assert_eq!(list.matches(" twin ").count(), 2, "{list}");
}

#[test]
fn check_and_backup_work_beside_a_running_server() {
    let server = TestServer::new();
    server.run_ok(&["submit", "--wait"], TREE);
    let db = server.dir.path().join("test.db");
    let copy = server.dir.path().join("copy.db");
    let (db, copy) = (db.to_str().expect("UTF-8"), copy.to_str().expect("UTF-8"));
    assert!(
        server
            .run_ok(&["check", "--live"], "")
            .contains("all is well")
    );
    assert!(server.run_ok(&["check", db], "").contains("all is well"));
    assert!(
        server
            .run_ok(&["backup", "--db", db, copy], "")
            .contains("2 finished")
    );
    assert!(server.run_ok(&["check", copy], "").contains("all is well"));
}

#[test]
fn schedules_events_workers_and_stats_are_shown() {
    let server = TestServer::new();
    server.run_ok(&["run", "echo", "1"], "");
    server.run_ok(
        &["schedule", "set", "tick", "--every", "1h", "--kind", "echo"],
        "",
    );
    assert!(
        server
            .run_ok(&["schedule", "list"], "")
            .contains("every 1h")
    );
    server.run_ok(&["schedule", "pause", "tick"], "");
    assert!(
        server
            .run_ok(&["schedule", "get", "tick"], "")
            .contains("paused:   yes")
    );
    server.run_ok(&["schedule", "delete", "tick"], "");
    assert!(server.run_ok(&["workers"], "").contains("worker1"));
    let events = server.run_ok(&["events", "--json", "--moves-only"], "");
    assert!(
        events
            .lines()
            .any(|line| line.contains("\"to\":\"succeeded\"")),
        "{events}"
    );
    assert!(server.run_ok(&["stats"], "").contains("shard 1, ready"));
}

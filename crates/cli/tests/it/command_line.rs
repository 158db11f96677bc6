//! The interface for scripts: exit codes, error messages and output of commands that need no server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::cargo_bin;

/// Address without a server: nothing listens on port 1.
const NO_SERVER: &str = "127.0.0.1:1";

fn ganger(arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(cargo_bin("ganger"))
        .args(arguments)
        .env_remove("GANGER_URL")
        .env_remove("GANGER_TOKEN")
        .env_remove("GANGER_TOKEN_FILE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    let mut stdin = child.stdin.take().expect("piped");
    // A program that ends early does not read its input.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("not killed")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for arguments in [
        vec!["frobnicate"],
        vec!["job", "list", "--state", "sleeping"],
        vec!["queue", "set", "q", "--running-max", "many"],
        vec!["schedule", "set", "s", "--kind", "k"],
        vec!["events", "--token", "secret"],
    ] {
        let output = ganger(&arguments, "");
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn a_bad_document_exits_with_2_before_anything_is_sent() {
    let output = ganger(&["submit", "--server", NO_SERVER], "[{\n  \"method\": }]");
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).starts_with("error: line 2, column"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_file_that_is_not_a_store_is_distinguished_from_a_damaged_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("notes.txt");
    std::fs::write(&file, "no store\n".repeat(100)).expect("written");
    let output = ganger(&["check", file.to_str().expect("text")], "");
    assert_eq!(code(&output), 1);
    let words = stderr(&output);
    assert!(words.contains("is not a store of ganger"), "{words}");
    assert!(!words.contains("ganger check"), "{words}");
}

#[test]
fn a_priority_that_is_not_a_number_is_refused_with_the_expected_form() {
    for arguments in [
        &["run", "mail", "--priority", "high"][..],
        &["job", "set", "a", "--priority", "high"],
        &[
            "schedule",
            "set",
            "a",
            "--every",
            "1h",
            "--kind",
            "b",
            "--priority",
            "high",
        ],
    ] {
        let output = ganger(arguments, "");
        assert_eq!(code(&output), 2);
        let words = stderr(&output);
        assert!(words.contains("--priority"), "{words}");
        assert!(words.contains("expected a whole number"), "{words}");
    }
}

#[test]
fn a_document_with_a_wrong_value_names_its_field() {
    for (document, wanted) in [
        ("{\"kind\": 5}", "kind: expected a string, not 5"),
        (
            "{\"kind\": \"k\", \"priority\": \"high\"}",
            "priority: expected a whole number, not \"high\"",
        ),
        (
            "[{\"kind\": \"k\", \"tags\": [\"a\", 7]}]",
            "/0/tags/1: expected a string, not 7",
        ),
        ("{\"kind\": \"k\", \"queu\": 1}", "unknown field `queu`"),
    ] {
        let output = ganger(&["submit", "--server", NO_SERVER], document);
        let text = stderr(&output);
        assert_eq!(code(&output), 2, "{text}");
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn a_directory_instead_of_a_document_exits_with_2_and_is_named() {
    let output = ganger(&["submit", "/proc/self", "--server", NO_SERVER], "");
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("/proc/self: "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_day_of_the_statistics_may_be_a_date() {
    let day = |day| {
        ganger(
            &[
                "stats",
                "--day",
                day,
                "--server",
                NO_SERVER,
                "--retry-for",
                "0",
            ],
            "",
        )
    };
    // A valid day exits with 4, since there is no server.
    assert_eq!(code(&day("2030-01-31")), 4);
    let output = day("2030-13-01");
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("such as 2030-01-31"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_missing_document_exits_with_2_and_is_named() {
    let output = ganger(&["submit", "/nowhere/task.json"], "");
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("/nowhere/task.json"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_missing_server_exits_with_4_and_the_command_that_starts_one() {
    let output = ganger(
        &["job", "list", "--server", NO_SERVER, "--retry-for", "0"],
        "",
    );
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    let text = stderr(&output);
    assert!(
        text.contains("cannot reach a ganger server at 127.0.0.1:1"),
        "{text}"
    );
    assert!(text.contains("ganger server"), "{text}");
}

/// Starts a listener that sends the same bytes to every connection; returns its address.
fn answer_every_connection(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            // The client may have closed the connection already.
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(answer);
        }
    });
    address
}

#[test]
fn a_port_of_another_program_is_reported_as_such_with_4() {
    for (answer, wanted) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "does not look like a ganger server",
        ),
        (
            b"-ERR unknown command\r\n",
            "does not look like a ganger server",
        ),
        (b"\x15\x03\x03\0\x02\x02\x16", "speaks TLS: use https://"),
    ] {
        let address = answer_every_connection(answer);
        let output = ganger(&["stats", "--server", &address, "--retry-for", "0"], "");
        let text = stderr(&output);
        assert_eq!(code(&output), 4, "{text}");
        assert!(text.contains(wanted), "{text}");
        assert!(!text.contains("transport error"), "{text}");
    }
}

#[test]
fn errors_are_json_for_programs() {
    let output = ganger(
        &[
            "--json",
            "job",
            "get",
            "x",
            "--server",
            NO_SERVER,
            "--retry-for",
            "0",
        ],
        "",
    );
    assert_eq!(code(&output), 4);
    let error: serde_json::Value = serde_json::from_str(&stderr(&output)).expect("JSON");
    assert_eq!(error["error"]["exit_code"], 4);
    assert_eq!(error["error"]["code"], "unreachable");
}

#[test]
fn an_invalid_address_exits_with_2() {
    let output = ganger(&["stats", "--server", "ftp://x"], "");
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("ftp://x"), "{}", stderr(&output));
}

#[test]
fn an_empty_token_file_is_refused_and_its_content_never_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("token");
    std::fs::write(&path, " \n").expect("written");
    let output = Command::new(cargo_bin("ganger"))
        .args(["stats", "--server", NO_SERVER])
        .env_remove("GANGER_TOKEN")
        .env("GANGER_TOKEN_FILE", &path)
        .output()
        .expect("the program was built");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("is empty"), "{}", stderr(&output));
}

#[test]
fn a_wrong_setting_of_the_server_exits_with_2() {
    for arguments in [
        vec!["server", "--shard", "a b"],
        vec!["server", "--set", "limits.nothing=1"],
        vec!["server", "--set", "token=secret"],
        vec!["server", "--addr", "0.0.0.0:0", "--db", ":memory:"],
        vec!["server", "--addr", "28413", "--db", ":memory:"],
        vec!["server", "--addr", "localhost", "--db", ":memory:"],
        vec!["server", "--addr", ":0", "--db", "/nonexistent/dir/x.db"],
    ] {
        let output = ganger(&arguments, "");
        assert_eq!(code(&output), 2, "{arguments:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains("secret;"), "{}", stderr(&output));
    }
}

#[test]
fn a_missing_program_directory_of_the_worker_exits_with_2() {
    let output = ganger(&["worker", "--server", NO_SERVER, "--dir", "/nowhere"], "");
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("--dir"), "{}", stderr(&output));
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = ganger(&["completions", shell], "");
        assert_eq!(code(&output), 0);
        assert!(stdout(&output).contains("ganger"), "{shell}");
    }
}

#[test]
fn manual_pages_are_printed_and_written() {
    let output = ganger(&["man"], "");
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(
        stdout(&output).contains(".TH ganger 1"),
        "{}",
        stdout(&output)
    );
    let dir = tempfile::tempdir().expect("a directory");
    let written = ganger(&["man", "--out", dir.path().to_str().expect("UTF-8")], "");
    assert_eq!(code(&written), 0, "{}", stderr(&written));
    for page in ["ganger.1", "ganger-run.1", "ganger-job-why.1"] {
        assert!(dir.path().join(page).exists(), "{page}");
    }
    let missing = ganger(&["man", "--out", "/nonexistent/dir"], "");
    assert_eq!(code(&missing), 2, "{}", stderr(&missing));
}

#[test]
fn a_closed_output_pipe_is_not_an_error() {
    let mut child = Command::new(cargo_bin("ganger"))
        .args(["completions", "zsh"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(stderr(&output), "");
    assert_eq!(code(&output), 0);
}

#[test]
fn help_lists_the_exit_codes_and_every_command_has_help() {
    let output = ganger(&["--help"], "");
    assert!(
        stdout(&output).contains("Exit codes:"),
        "{}",
        stdout(&output)
    );
    for command in [
        "server",
        "worker",
        "submit",
        "run",
        "job",
        "queue",
        "failures",
        "schedule",
        "workers",
        "stats",
        "events",
        "check",
        "backup",
        "bench",
        "completions",
        "version",
    ] {
        let output = ganger(&[command, "--help"], "");
        assert_eq!(code(&output), 0, "{command}");
        assert!(stdout(&output).contains("--json"), "{command}");
    }
}

#[test]
fn a_commands_own_options_come_before_those_of_the_connection() {
    let help = stdout(&ganger(&["submit", "--help"], ""));
    let (own, connection) = help.split_once("Connection:").expect("a heading");
    for option in ["--wait", "--progress", "--timeout", "--stream", "--json"] {
        assert!(own.contains(option), "{option}: {help}");
    }
    for option in ["--server", "--namespace", "--ca ", "--retry-for"] {
        assert!(!own.contains(option), "{option}: {help}");
        assert!(connection.contains(option), "{option}: {help}");
    }
}

#[test]
fn the_version_of_the_program_needs_no_server() {
    let output = ganger(&["version", "--client", "--json"], "");
    let version: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(version["client"], env!("CARGO_PKG_VERSION"));
}

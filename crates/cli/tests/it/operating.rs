//! Commands for many jobs at once and for schedules, against a real server.

use serde_json::Value;

use crate::walkthroughs::TestServer;

/// Starts a server with jobs in a queue that has no worker: two of kind `a`, one of kind `b`, and a graph of two.
fn server_with_jobs() -> TestServer {
    let server = TestServer::new();
    let marked = r#"{"kind": "a", "queue": "stock", "tags": ["t"], "labels": {"l": "1"}}"#;
    let plain = r#"{"kind": "b", "queue": "stock"}"#;
    let lines = format!("{marked}\n{marked}\n{plain}\n");
    server.run_ok(&["submit", "--stream"], &lines);
    let graph = r#"{"jobs": [{"name": "x", "id": "g", "kind": "c", "queue": "stock"},
        {"name": "y", "kind": "c", "queue": "stock", "after": ["x"]}]}"#;
    server.run_ok(&["submit"], graph);
    server
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Runs a command that must fail; returns its exit code and standard error.
fn run_failing(server: &TestServer, arguments: &[&str]) -> (Option<i32>, String) {
    let output = server.ganger(arguments, "");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

#[test]
fn every_condition_selects_its_jobs_and_a_dry_run_changes_none() {
    let server = server_with_jobs();
    let conditions: [(&[&str], u64); 20] = [
        (&["--queue", "stock"], 5),
        (&["--queue", "empty"], 0),
        (&["--kind", "a"], 2),
        (&["--state", "ready"], 4),
        (&["--state", "ready,blocked"], 5),
        (&["--tag", "t"], 2),
        (&["--label", "l=1"], 2),
        (&["--label", "l=2"], 0),
        (&["--tag", "t", "--tag", "u"], 0),
        (&["--kind-prefix", "a"], 2),
        (&["--id-prefix", "g"], 1),
        (&["--tracked=false"], 5),
        (&["--tracked", "--unique-key", "u"], 0),
        (&["--attempts", "1", "--finished-since", "-1h"], 0),
        (&["--since", "-1h"], 5),
        (&["--until", "-1h"], 0),
        (&["--schedule", "none"], 0),
        (&["--worker", "nobody"], 0),
        (&["--group", "none", "--queue", "stock"], 0),
        (&["--kind", "a", "--tag", "t", "--state", "ready"], 2),
    ];
    for action in ["cancel", "delete"] {
        for (condition, count) in conditions {
            let mut arguments = vec!["job", action, "--dry-run", "--json"];
            arguments.extend(condition);
            let seen = json(&server.run_ok(&arguments, ""));
            let changed = seen["would_change"].as_u64().expect("a number");
            let skipped = seen["would_skip"].as_u64().expect("a number");
            assert_eq!(changed + skipped, count, "{arguments:?}: {seen}");
        }
    }
    let text = server.run_ok(&["job", "cancel", "--graph", "g", "--dry-run"], "");
    assert!(text.starts_with("2 jobs would be cancelled"), "{text}");
    let count = server.run_ok(&["job", "list", "--queue", "stock", "--count"], "");
    assert_eq!(count.trim(), "5", "a dry run changed something");
}

#[test]
fn selected_jobs_are_cancelled_retried_and_deleted() {
    let server = server_with_jobs();
    let counts =
        || json(&server.run_ok(&["queue", "get", "stock", "--json"], ""))["counts"].clone();
    let output = server.run_ok(&["job", "cancel", "--kind", "a"], "");
    assert_eq!(output.trim(), "2 jobs cancelled");
    assert_eq!(
        (&counts()["ready"], &counts()["cancelled"]),
        (&2.into(), &2.into())
    );
    let retry = [
        "job",
        "retry",
        "--queue",
        "stock",
        "--state",
        "cancelled",
        "--into",
        "other",
    ];
    let dry: Vec<&str> = retry.iter().copied().chain(["--dry-run"]).collect();
    let output = server.run_ok(&dry, "");
    assert!(output.starts_with("2 jobs would"), "{output}");
    assert_eq!(counts()["cancelled"], 2);
    assert_eq!(server.run_ok(&retry, "").trim(), "2 jobs put back");
    assert_eq!(counts()["cancelled"], 0);
    let output = server.run_ok(&["job", "delete", "--queue", "other"], "");
    assert_eq!(output.trim(), "2 jobs deleted");
    assert_eq!(
        server
            .run_ok(&["job", "list", "--queue", "other", "--count"], "")
            .trim(),
        "0"
    );
    assert_eq!(counts()["ready"], 2, "the others are as they were");
}

#[test]
fn jobs_that_meet_conditions_are_altered_by_an_operation() {
    let server = server_with_jobs();
    let changes = [
        "job",
        "alter",
        "--kind",
        "a",
        "--tag",
        "t",
        "--into",
        "other",
        "--set-priority",
        "-3",
        "--add-tag",
        "late",
        "--remove-tag",
        "t",
        "--set-label",
        "by=me",
        "--remove-label",
        "l",
        "--reason",
        "first",
    ];
    assert_eq!(server.run_ok(&changes, "").trim(), "2 jobs changed");
    let list = server.run_ok(&["job", "list", "--json", "--queue", "other"], "");
    let jobs: Vec<Value> = list.lines().map(json).collect();
    assert_eq!(jobs.len(), 2, "{list}");
    for job in &jobs {
        assert_eq!(job["priority"], -3);
        assert_eq!(job["tags"], serde_json::json!(["late"]));
        assert_eq!(job["labels"], serde_json::json!({"by": "me"}));
    }
    let shown = json(&server.run_ok(&["operation", "get", "op-1", "--json"], ""));
    assert_eq!(shown["action"], "alter");
    assert_eq!(shown["reason"], "first");
    let filter = &shown["filter"];
    assert_eq!(
        (&filter["kind"], &filter["tag"]),
        (&"a".into(), &"t".into())
    );
    for (arguments, words) in [
        (&["job", "alter", "--into", "q"][..], "give conditions"),
        (&["job", "alter", "--kind", "a"][..], "nothing to change"),
    ] {
        let (code, text) = run_failing(&server, arguments);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn an_operation_is_listed_shown_and_stopped() {
    let server = server_with_jobs();
    let arguments = ["job", "cancel", "--queue", "stock", "--at-most", "1"];
    assert_eq!(server.run_ok(&arguments, "").trim(), "1 job cancelled");
    let shown = json(&server.run_ok(&["operation", "get", "op-1", "--json"], ""));
    assert_eq!(
        (&shown["state"], &shown["done"]),
        (&"done".into(), &1.into())
    );
    assert_eq!(shown["filter"]["queue"], "stock");
    let text = server.run_ok(&["operation", "list"], "");
    assert!(text.contains("op-1") && text.contains("cancel"), "{text}");
    let text = server.run_ok(&["operation", "stop", "1/op-1"], "");
    assert!(text.contains("done"), "one that has ended stays so: {text}");
    let (code, text) = run_failing(&server, &["operation", "wait", "op-7"]);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("op-7 not found"), "{text}");
}

#[test]
fn a_cancellation_can_be_tried_first() {
    let server = server_with_jobs();
    let listed = server.run_ok(&["job", "list", "--queue", "stock", "--json"], "");
    let first = json(listed.lines().next().expect("a job"));
    let id = first["id"].as_str().expect("an id");
    let text = server.run_ok(&["job", "cancel", id, "--dry-run"], "");
    assert!(text.contains("would be cancelled"), "{text}");
    let effects = json(&server.run_ok(&["job", "cancel", id, "--dry-run", "--json"], ""));
    assert_eq!(
        (&effects["would_change"], &effects["complete"]),
        (&true.into(), &true.into())
    );
    let count = server.run_ok(&["job", "list", "--queue", "stock", "--count"], "");
    assert_eq!(count.trim(), "5");
}

#[test]
fn a_bulk_command_without_a_clear_selection_does_nothing_and_exits_with_2() {
    let server = server_with_jobs();
    for action in ["cancel", "retry", "delete"] {
        for (rest, words) in [
            (&[][..], "give ids, or conditions"),
            (&["--dry-run"], "give ids, or conditions"),
            (&["1/g", "--kind", "a"], "not both"),
            (&["--state", "done"], "there are blocked, scheduled"),
            (&["--label", "l"], "KEY=VALUE"),
            (
                &["--since", "yesterday"],
                "--since: \"yesterday\" is not a time",
            ),
        ] {
            let mut arguments = vec!["job", action];
            arguments.extend(rest);
            let (code, text) = run_failing(&server, &arguments);
            assert_eq!(code, Some(2), "{arguments:?}: {text}");
            assert!(text.contains(words), "{arguments:?}: {text}");
        }
    }
    let long = "k".repeat(300);
    let (code, text) = run_failing(&server, &["job", "cancel", "--kind", &long]);
    assert_eq!(code, Some(5), "{text}");
    assert!(text.contains("the limit is 255"), "{text}");
    let count = server.run_ok(&["job", "list", "--queue", "stock", "--count"], "");
    assert_eq!(count.trim(), "5");
}

#[test]
fn a_schedule_is_created_shown_paused_run_and_deleted() {
    let server = TestServer::new();
    let set = [
        "schedule",
        "set",
        "nightly",
        "--cron",
        "0 3 * * *",
        "--time-zone",
        "Europe/Rome",
        "--kind",
        "a",
        "--queue",
        "stock",
    ];
    server.run_ok(&set, "");
    assert!(
        server
            .run_ok(&["schedule", "list"], "")
            .contains("0 3 * * * Europe/Rome")
    );
    let shown = server.run_ok(&["schedule", "get", "nightly"], "");
    assert!(shown.contains("03:00:00 Europe/Rome"), "{shown}");
    assert_eq!(
        server
            .run_ok(&["schedule", "next", "nightly"], "")
            .lines()
            .count(),
        5
    );
    server.run_ok(&["schedule", "pause", "nightly"], "");
    let shown = server.run_ok(&["schedule", "get", "nightly"], "");
    assert!(shown.contains("next:     paused"), "{shown}");
    // A paused schedule can still be run manually.
    let job = server.run_ok(&["schedule", "run", "nightly"], "");
    let list = server.run_ok(&["job", "list", "--schedule", "nightly"], "");
    assert!(list.contains(job.trim()), "{job} {list}");
    server.run_ok(&["schedule", "resume", "nightly"], "");
    server.run_ok(&["schedule", "delete", "nightly"], "");
    let list = server.run_ok(&["job", "list", "--schedule", "nightly"], "");
    assert!(list.contains(job.trim()), "its jobs stay: {list}");
    for action in ["get", "pause", "resume", "run", "next", "delete"] {
        let (code, text) = run_failing(&server, &["schedule", action, "nightly"]);
        assert_eq!(code, Some(3), "{action}: {text}");
        assert!(
            text.contains("schedule nightly not found"),
            "{action}: {text}"
        );
    }
}

#[test]
fn an_invalid_schedule_is_refused_and_not_created() {
    let server = TestServer::new();
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--every", "1h"], 2, "give --kind"),
        (
            &["--kind", "a"],
            2,
            "give --every DURATION, --cron EXPRESSION",
        ),
        (
            &["--kind", "a", "--every", "1h", "--cron", "0 3 * * *"],
            2,
            "cannot be used with",
        ),
        (&["--kind", "a", "--every", "0s"], 5, "must be more than 0"),
        (
            &["--kind", "a", "--cron", "bad"],
            5,
            "cron expression \"bad\" cannot be read",
        ),
        (
            &[
                "--kind",
                "a",
                "--cron",
                "0 3 * * *",
                "--time-zone",
                "Mars/X",
            ],
            5,
            "IANA name",
        ),
    ];
    for (rest, wanted, words) in cases {
        let mut arguments = vec!["schedule", "set", "bad"];
        arguments.extend(rest);
        let (code, text) = run_failing(&server, &arguments);
        assert_eq!(code, Some(wanted), "{arguments:?}: {text}");
        assert!(text.contains(words), "{arguments:?}: {text}");
    }
    assert_eq!(run_failing(&server, &["schedule", "get", "bad"]).0, Some(3));
}

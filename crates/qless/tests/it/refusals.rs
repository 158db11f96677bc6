//! The texts with which commands about jobs refuse a call, and the order of their checks.

use crate::harness::Database;
use ganger_types::qless::Generation;

/// Returns a database with one job of each kind: `r` runs and `w` holds it, `d` waits for `r`, `f` failed, `c` is
/// complete.
fn database() -> Database {
    let mut it = Database::new(Generation::Two);
    for line in [
        "put 1 w q c k {} 0",
        "pop 1 q w 1",
        "complete 1 c w q {}",
        "put 1 w q f k {} 0",
        "pop 1 q w 1",
        "fail 1 f w g m",
        "put 1 w q r k {} 0",
        "pop 1 q w 1",
        r#"put 1 w q d k {} 0 depends ["r"]"#,
    ] {
        it.call(line);
    }
    it
}

#[test]
fn a_call_needs_a_command_that_is_known_and_a_time() {
    let mut it = database();
    assert_eq!(
        it.words(&[]).expect_err("no command").0,
        "Must provide a command"
    );
    for (line, words) in [
        ("Get 1 a", "Unknown command Get"),
        ("'' 1", "Unknown command "),
        ("nothing", "Unknown command nothing"),
        ("throttle.get 1 t", "Unknown command throttle.get"),
        ("get", r#"Arg "now" missing or not a number: nil"#),
        ("get x", r#"Arg "now" missing or not a number: nil"#),
        ("get inf a", r#"Arg "now" missing or not a number: nil"#),
        ("get '' a", r#"Arg "now" missing or not a number: nil"#),
    ] {
        assert_eq!(it.refused(line), words, "{line}");
    }
}

#[test]
fn what_is_missing_is_named() {
    let mut it = database();
    for (line, words) in [
        ("get 1", "Job(): no jid provided"),
        ("put 1 w", "Queue(): no queue name provided"),
        ("put 1 w q", r#"Put(): Arg "jid" missing"#),
        ("put 1 w q j", r#"Put(): Arg "klass" missing"#),
        (
            "put 1 w q j k",
            r#"Put(): Arg "data" missing or not JSON: nil"#,
        ),
        (
            "put 1 w q j k false",
            r#"Put(): Arg "data" missing or not JSON: false"#,
        ),
        (
            "put 1 w q j k {}",
            r#"Put(): Arg "delay" not a number: nil"#,
        ),
        (
            "put 1 w q j k {} soon",
            r#"Put(): Arg "delay" not a number: soon"#,
        ),
        (
            "put 1 w q j k {} 0 tags",
            "Odd number of additional args: tags",
        ),
        (
            "put 1 w q j k {} 0 retries x",
            r#"Put(): Arg "retries" not a number: x"#,
        ),
        (
            "put 1 w q j k {} 0 priority x",
            r#"Put(): Arg "priority" not a numberx"#,
        ),
        ("pop 1", "Queue(): no queue name provided"),
        ("pop 1 q", r#"Pop(): Arg "worker" missing"#),
        (
            "pop 1 q w",
            r#"Pop(): Arg "count" missing or not a number: nil"#,
        ),
        (
            "pop 1 q w x",
            r#"Pop(): Arg "count" missing or not a number: x"#,
        ),
        ("pop 1 q w 0.5", "value is not an integer or out of range"),
        (
            "peek 1 q ''",
            r#"Peek(): Arg "count" missing or not a number: "#,
        ),
        ("complete 1", "Job(): no jid provided"),
        ("complete 1 r", r#"Complete(): Arg "worker" missing"#),
        ("complete 1 r w", r#"Complete(): Arg "queue" missing"#),
        (
            "complete 1 r w q",
            r#"Complete(): Arg "data" missing or not JSON: nil"#,
        ),
        (
            "complete 1 r w q {} delay 5",
            r#"Complete(): "delay" cannot be used without a "next"."#,
        ),
        (
            "complete 1 r w q {} depends []",
            r#"Complete(): "depends" cannot be used without a "next"."#,
        ),
        ("fail 1 r w", r#"Fail(): Arg "group" missing"#),
        ("fail 1 r w g", r#"Fail(): Arg "message" missing"#),
        ("retry 1 r", r#"Retry(): Arg "queue" missing"#),
        ("retry 1 r q", r#"Retry(): Arg "worker" missing"#),
        ("retry 1 r q w x", r#"Retry(): Arg "delay" not a number: x"#),
        ("unfail 1 q", r#"Unfail(): Arg "group" missing"#),
        ("unfail 1 q g x", r#"Unfail(): Arg "count" not a number: x"#),
        (
            "failed 1 g x",
            r#"Failed(): Arg "start" is not a number: x"#,
        ),
        (
            "failed 1 g 0 x",
            r#"Failed(): Arg "limit" is not a number: x"#,
        ),
        ("heartbeat 1 r", r#"Heartbeat(): Arg "worker" missing"#),
        ("depends 1 d", r#"Depends(): Arg "command" missing"#),
        (
            "priority 1 r",
            r#"Priority(): Arg "priority" missing or not a number: nil"#,
        ),
    ] {
        assert_eq!(it.refused(line), words, "{line}");
    }
}

#[test]
fn a_job_that_is_not_there_or_not_held_is_not_ended() {
    let mut it = database();
    for (line, words) in [
        ("requeue 1 w q x k {} 0", "Requeue(): Job x does not exist"),
        ("complete 1 x w q {}", "Complete(): Job x does not exist"),
        (
            "complete 1 f w q {}",
            "Complete(): Job f is not currently running: failed",
        ),
        (
            "complete 1 r v q {}",
            "Complete(): Job r has been handed out to another worker: w",
        ),
        (
            "complete 1 r w p {}",
            "Complete(): Job r running in another queue: q",
        ),
        ("fail 1 x w g m", "Fail(): Job x does not exist"),
        (
            "fail 1 c w g m",
            "Fail(): Job c not currently running: complete",
        ),
        (
            "fail 1 r v g m",
            "Fail(): Job r running with another worker: w",
        ),
        ("retry 1 x q w", "Retry(): Job x does not exist"),
        (
            "retry 1 d q w",
            "Retry(): Job d is not currently running: depends",
        ),
        (
            "retry 1 r q v",
            "Retry(): Job r has been given to another worker: w",
        ),
        ("heartbeat 1 x w", "Heartbeat(): Job x does not exist"),
        (
            "heartbeat 1 f w",
            "Heartbeat(): Job f not currently running: failed",
        ),
        (
            "heartbeat 1 r v",
            "Heartbeat(): Job r given out to another worker: w",
        ),
        ("timeout 1 r x", "Timeout(): Job x does not exist"),
        ("timeout 1 r d", "Timeout(): Job d not running"),
        ("timeout 1 r r", "Timeout(): Job r not running"),
        ("priority 1 x 1", "Priority(): Job x does not exist"),
        (
            "depends 1 x on r",
            "Depends(): Job x not in the depends state: false",
        ),
        (
            "depends 1 r on d",
            "Depends(): Job r not in the depends state: running",
        ),
        (
            "depends 1 d maybe",
            r#"Depends(): Argument "command" must be "on" or "off""#,
        ),
        (
            "cancel 1 r",
            "Cancel(): r is a dependency of d but is not mentioned to be canceled",
        ),
    ] {
        assert_eq!(it.refused(line), words, "{line}");
    }
}

#[test]
fn an_option_that_is_no_number_makes_the_calls_fail_that_use_it() {
    let mut it = database();
    for (option, line) in [
        ("heartbeat", "heartbeat 1 r w"),
        ("q-heartbeat", "pop 1 q w 1"),
        ("q-max-concurrency", "pop 1 q w 1"),
        ("grace-period", "pop 1 q w 1"),
        ("max-job-history", "fail 1 r w g m"),
        ("jobs-history", "complete 1 r w q {}"),
        ("jobs-history-count", "complete 1 r w q {}"),
    ] {
        it.call(&format!("config.set 1 {option} much"));
        let words = it.refused(line);
        assert!(words.ends_with("is not a number: much"), "{line}: {words}");
        it.call(&format!("config.unset 1 {option}"));
    }
}

#[test]
fn a_message_holds_any_bytes_that_came() {
    let mut it = database();
    let refusal = it.words(&[b"complete", b"1", b"\xff\n", b"w", b"q", b"{}"]);
    assert_eq!(
        refusal.expect_err("no such job").0,
        &b"Complete(): Job \xff\n does not exist"[..]
    );
}

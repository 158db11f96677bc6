//! The command `track` with its subcommands.

use serde_json::json;

use super::caller::Caller;

fn with_jobs(jids: &[&str]) -> Caller {
    let mut it = Caller::new();
    for jid in jids {
        it.ask(&format!("put 1 w q {jid} k {{}} 0"));
    }
    it.messages();
    it
}

#[test]
fn each_wrong_argument_is_named() {
    let mut it = with_jobs(&["j"]);
    assert_eq!(it.refused("track 1 track"), r#"Track(): Arg "jid" missing"#);
    assert_eq!(it.refused("track 1 track x"), "Track(): Job does not exist");
    assert_eq!(
        it.refused("track 1 nothing x"),
        "Track(): Job does not exist"
    );
    assert_eq!(
        it.refused("track 1 nothing j"),
        r#"Track(): Unknown action "nothing""#
    );
}

#[test]
fn the_answer_shows_whether_it_changed_and_the_message_is_sent_anyway() {
    let mut it = with_jobs(&["j"]);
    assert_eq!(it.text("track 1 track j"), "1");
    assert_eq!(it.text("track 1 TRACK j"), "0");
    assert_eq!(it.text("track 1 Untrack j"), "1");
    assert_eq!(it.text("track 1 untrack j"), "0");
    assert_eq!(
        it.messages(),
        ["ql:track j", "ql:track j", "ql:untrack j", "ql:untrack j"]
    );
}

#[test]
fn tracked_jobs_are_listed_in_full_by_when_tracking_began() {
    let mut it = with_jobs(&["a", "b", "c"]);
    assert_eq!(it.text("track 1"), r#"{"jobs":{},"expired":{}}"#);
    it.ask("track 3 track a");
    it.ask("track 2 track c");
    it.ask("track 2 track b");
    let jids = |it: &mut Caller| {
        let jobs = it.json("track 4")["jobs"].clone();
        let jobs = jobs.as_array().expect("some are tracked").clone();
        jobs.iter()
            .map(|job| job["jid"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(jids(&mut it), ["b", "c", "a"]);
    it.ask("track 4 track b");
    assert_eq!(jids(&mut it), ["c", "a", "b"]);
    let job = it.json("get 4 b");
    assert_eq!(job["tracked"], true);
    assert_eq!(it.json("track 4")["jobs"][2], job);
}

#[test]
fn tracking_outlives_the_job_and_can_only_be_ended_while_it_is_there() {
    let mut it = with_jobs(&["a", "b"]);
    it.ask("track 1 track a");
    it.ask("track 2 track b");
    it.ask("cancel 3 a");
    let listed = it.json("track 3");
    assert_eq!(listed["expired"], json!(["a"]));
    assert_eq!(listed["jobs"][0]["jid"], "b");
    assert_eq!(
        it.refused("track 3 untrack a"),
        "Track(): Job does not exist"
    );
    it.ask("put 4 w q a k {} 0");
    assert_eq!(it.json("get 4 a")["tracked"], true);
    assert_eq!(it.text("track 4 untrack a"), "1");
    assert_eq!(it.json("get 4 a")["tracked"], false);
}

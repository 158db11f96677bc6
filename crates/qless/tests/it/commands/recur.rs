//! The commands `recur`, `recur.get`, `recur.update`, `recur.tag`, `recur.untag` and `unrecur`, and the children of
//! recurring jobs.

use ganger_types::qless::Generation;
use serde_json::json;

use super::caller::Caller;

fn recurring(words: &str) -> Caller {
    let mut it = Caller::new();
    assert_eq!(it.text(words), "r");
    it
}

#[test]
fn each_wrong_argument_is_named() {
    let mut it = Caller::new();
    assert_eq!(it.refused("recur 1"), "Queue(): no queue name provided");
    let missing = |what| format!("RecurringJob On(): Arg \"{what}\" missing");
    assert_eq!(it.refused("recur 1 q"), missing("jid"));
    assert_eq!(it.refused("recur 1 q r"), missing("klass"));
    assert_eq!(it.refused("recur 1 q r k"), missing("spec"));
    assert_eq!(it.refused("recur 1 q r k {}"), missing("spec"));
    it.refused("recur 1 q r k { interval 1 1");
    it.refused("recur 1 q r k false interval 1 1");
    assert_eq!(
        it.refused("recur 1 q r k {} cron 1 1"),
        r#"Recur(): schedule type "cron" unknown"#
    );
    let begin = "recur 1 q r k {} interval";
    for (rest, message) in [
        ("", r#"Recur(): Arg "interval" not a number: nil"#),
        (" x", r#"Recur(): Arg "interval" not a number: x"#),
        (" 1", r#"Recur(): Arg "offset" not a number: nil"#),
        (" 0 x", r#"Recur(): Arg "offset" not a number: x"#),
        (" 0 0", r#"Recur(): Arg "interval" must be greater than 0"#),
        (" -1 0", r#"Recur(): Arg "interval" must be greater than 0"#),
        (" 1 0 tags", "Odd number of additional args: tags"),
        (
            " 1 0 priority x",
            r#"Recur(): Arg "priority" not a number: x"#,
        ),
        (
            " 1 0 retries x",
            r#"Recur(): Arg "retries" not a number: x"#,
        ),
        (
            " 1 0 backlog x",
            r#"Recur(): Arg "backlog" not a number: x"#,
        ),
    ] {
        assert_eq!(it.refused(&format!("{begin}{rest}")), message);
    }
    for tags in ["x", "{\"a\":1}", "\"a\"", "[[]]"] {
        it.refused(&format!("{begin} 1 0 tags {tags}"));
    }
    assert_eq!(it.text("queues 1"), "{}");
}

#[test]
fn each_wrong_argument_of_the_others_is_named() {
    let mut it = recurring("recur 1 q r k {} interval 60 0");
    for command in [
        "recur.get",
        "recur.update",
        "recur.tag",
        "recur.untag",
        "unrecur",
    ] {
        assert_eq!(
            it.refused(&format!("{command} 1")),
            "Recurring(): no jid provided"
        );
    }
    assert_eq!(
        it.refused("recur.update 1 x"),
        "Recur(): No recurring job x"
    );
    assert_eq!(it.refused("recur.tag 1 x"), "Tag(): Job x does not exist");
    assert_eq!(
        it.refused("recur.untag 1 x"),
        "Untag(): Job x does not exist"
    );
    let before = it.json("recur.get 1 r");
    for (rest, message) in [
        ("klass", "No value provided for klass"),
        (
            "priority x",
            r#"Recur(): Arg "priority" must be a number: x"#,
        ),
        ("retries x", r#"Recur(): Arg "retries" must be a number: x"#),
        (
            "interval x",
            r#"Recur(): Arg "interval" must be a number: x"#,
        ),
        ("backlog x", r#"Recur(): Arg "backlog" not a number: x"#),
        ("jid x", r#"Recur(): Unrecognized option "jid""#),
        (
            "klass new queue other priority",
            "No value provided for priority",
        ),
    ] {
        assert_eq!(it.refused(&format!("recur.update 1 r {rest}")), message);
    }
    it.refused("recur.update 1 r klass new data {");
    it.refused("recur.update 1 r klass new data false");
    assert_eq!(it.json("recur.get 1 r"), before);
}

#[test]
fn a_recurring_job_is_shown_with_its_defaults() {
    let mut it = recurring("recur 1 q r k [] interval 60.5 10");
    assert_eq!(
        it.json("recur.get 1 r").to_string().len(),
        it.text("recur.get 1 r").len()
    );
    assert_eq!(
        it.text("recur.get 1 r"),
        concat!(
            r#"{"jid":"r","klass":"k","state":"recur","queue":"q","priority":0,"interval":60.5,"#,
            r#""retries":0,"count":0,"data":"[]","tags":{},"backlog":0}"#
        )
    );
    it.nil("recur.get 1 x");
    // A recurring job is not a job and publishes no message, but its queue becomes known.
    it.nil("get 1 r");
    assert!(it.messages().is_empty());
    assert_eq!(it.json("queues 1")[0]["recurring"], 1);
}

#[test]
fn options_are_kept_and_a_second_call_replaces_all_but_the_count() {
    let options = r#"tags ["a",1] priority 1.5 retries 3 backlog 2 unknown x"#;
    let mut it = recurring(&format!("recur 0 q r k {{}} interval 60 0 {options}"));
    let job = it.json("recur.get 1 r");
    assert_eq!(job["tags"], json!(["a", 1]));
    assert_eq!(job["priority"].to_string(), "1.5");
    assert_eq!(job["retries"], 3);
    assert_eq!(job["backlog"], 2);
    assert_eq!(it.json("pop 0 q w 5")[0]["jid"], "r-1");
    it.ask("recur 10 p r k2 {} interval 5 0");
    let job = it.json("recur.get 10 r");
    assert_eq!(job["count"], 1);
    assert_eq!(job["queue"], "p");
    assert_eq!(job["tags"], json!({}));
    assert_eq!(job["retries"], 0);
    assert_eq!(it.list("jobs 10 recurring q"), "");
    assert_eq!(it.json("pop 10 p w 5")[0]["jid"], "r-2");
}

#[test]
fn children_are_due_in_whole_seconds_and_no_further_back_than_the_backlog() {
    let mut it = recurring("recur 0.5 q r k {} interval 60.5 10.25 backlog 2");
    let popped = it.json("pop 300.75 q w 1");
    assert_eq!(popped.as_array().map(Vec::len), Some(1));
    assert_eq!(popped[0]["jid"], "r-1");
    assert_eq!(popped[0]["spawned_from_jid"], "r");
    assert_eq!(
        popped[0]["history"][0],
        json!({"what": "put", "when": 191, "q": "q"})
    );
    let popped = it.json("pop 300.75 q w 10");
    assert_eq!(popped.as_array().map(Vec::len), Some(1));
    assert_eq!(popped[0]["jid"], "r-2");
    assert_eq!(popped[0]["history"][0]["when"], 252);
    assert_eq!(it.text("pop 312 q w 10"), "{}");
    // The next run was at 312.5, which counts as 312 once it is due.
    assert_eq!(it.json("pop 312.5 q w 10")[0]["history"][0]["when"], 312);
}

#[test]
fn a_backlog_of_one_makes_up_for_one_run_besides_the_one_that_is_due() {
    let mut it = recurring("recur 0 q r k {} interval 60 0 backlog 1");
    let peeked = it.json("peek 600 q 10");
    let times: Vec<_> = peeked
        .as_array()
        .expect("some")
        .iter()
        .map(|it| it["history"][0]["when"].clone())
        .collect();
    assert_eq!(times, [540, 600]);
}

#[test]
fn missed_runs_make_as_many_children_as_a_call_asks_for() {
    let mut it = recurring("recur 0 q r k {} interval 60 0");
    assert_eq!(it.json("peek 600 q 3").as_array().map(Vec::len), Some(3));
    assert_eq!(it.json("recur.get 600 r")["count"], 3);
    assert_eq!(it.json("pop 600 q w 5").as_array().map(Vec::len), Some(5));
    assert_eq!(it.json("recur.get 600 r")["count"], 8);
    // Children that a peek created count as existing jobs, not as new children.
    assert_eq!(it.json("pop 600 q w 50").as_array().map(Vec::len), Some(6));
}

#[test]
fn children_have_what_the_recurring_job_says() {
    let mut it =
        recurring(r#"recur 5 q r k {"a":[]} interval 60 0 tags ["t",1] priority 2 retries 4"#);
    let child = it.json("peek 7 q 1")[0].clone();
    assert_eq!(child["klass"], "k");
    assert_eq!(child["data"], r#"{"a":[]}"#);
    assert_eq!(child["tags"], json!(["t", 1]));
    assert_eq!(child["priority"], 2);
    assert_eq!(child["retries"], 4);
    assert_eq!(child["remaining"], 4);
    assert_eq!(child["state"], "waiting");
    assert_eq!(child["worker"], "");
    assert_eq!(it.json("tag 7 get t")["jobs"], json!(["r-1"]));
    assert_eq!(it.json("tag 7 get 1")["jobs"], json!(["r-1"]));
    assert!(it.messages().is_empty());
}

#[test]
fn an_update_changes_what_it_names() {
    let mut it = recurring("recur 0 q r k {} interval 60 100");
    let update = "priority 7 retries 8 interval 90 data [1,2] klass k2 backlog 9 queue p";
    assert_eq!(it.number(&format!("recur.update 1 r {update}")), 1);
    assert_eq!(
        it.json("recur.get 1 r"),
        json!({
            "jid": "r", "klass": "k2", "state": "recur", "queue": "p", "priority": 7, "interval": 90, "retries": 8,
            "count": 0, "data": "[1,2]", "tags": {}, "backlog": 9,
        })
    );
    assert_eq!(it.number("recur.update 1 r"), 1);
    assert_eq!(it.list("jobs 1 recurring q"), "");
    assert_eq!(it.json("queues 1")[1]["name"], "p");
    // The next run moves by the change of the interval.
    assert_eq!(it.text("pop 129.9 p w 1"), "{}");
    assert_eq!(it.json("pop 130 p w 1")[0]["jid"], "r-1");
}

#[test]
fn tags_of_a_recurring_job_are_those_of_children_to_come() {
    let mut it = recurring(r#"recur 0 q r k {} interval 60 0 tags [1,"a"]"#);
    it.ask("pop 0 q w 1");
    assert_eq!(it.text("recur.tag 0 r b a 1 b"), r#"[1,"a","b"]"#);
    assert_eq!(it.text("recur.untag 0 r 1 x"), r#"["a","b"]"#);
    assert_eq!(it.json("tag 0 get b")["total"], 0);
    assert_eq!(it.text("tag 0 top"), "{}");
    assert_eq!(it.json("pop 60 q w 1")[0]["tags"], json!(["a", "b"]));
    assert_eq!(it.json("get 60 r-1")["tags"], json!([1, "a"]));
    assert_eq!(it.text("recur.untag 0 r a b"), "{}");
}

#[test]
fn removing_a_recurring_job_leaves_its_children() {
    let mut it = recurring("recur 0 q r k {} interval 60 0");
    it.ask("pop 0 q w 1");
    assert_eq!(it.number("unrecur 1 r"), 1);
    assert_eq!(it.number("unrecur 1 r"), 1);
    it.nil("recur.get 1 r");
    assert_eq!(it.text("pop 120 q w2 1"), "{}");
    assert_eq!(it.json("get 120 r-1")["state"], "running");
}

#[test]
fn a_recurring_job_that_is_made_again_counts_from_one_and_its_child_takes_the_place_of_the_older() {
    let mut it = recurring(r#"recur 0 q r k {} interval 60 0 tags ["old"]"#);
    it.ask("pop 0 q w 1");
    it.ask("unrecur 1 r");
    it.ask("recur 100 p r k2 {} interval 60 0");
    it.messages();
    let child = it.json("pop 100 p v 1")[0].clone();
    assert_eq!(child["jid"], "r-1");
    assert_eq!(child["klass"], "k2");
    assert_eq!(child["worker"], "v");
    let whats: Vec<_> = child["history"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| it["what"].clone())
        .collect();
    assert_eq!(whats, ["put", "popped", "put", "popped"]);
    assert_eq!(it.number("length 100 q"), 0);
    assert_eq!(it.json("workers 100 w")["jobs"], json!({}));
    assert!(it.messages().is_empty());
}

#[test]
fn the_third_generation_gives_children_throttles() {
    let mut it = Caller::of(Generation::Three);
    it.ask(r#"recur 0 q r k {} interval 60 0 throttles ["t",5]"#);
    let throttles = json!(["t", "5", "ql:q:q"]);
    assert_eq!(it.json("recur.get 0 r")["throttles"], throttles);
    assert_eq!(it.json("pop 0 q w 1")[0]["throttles"], throttles);
    it.ask("recur.update 0 r queue p");
    assert_eq!(
        it.json("recur.get 0 r")["throttles"],
        json!(["t", "5", "ql:q:p"])
    );
    it.speak(Generation::Two);
    assert_eq!(it.json("recur.get 0 r").get("throttles"), None);
}

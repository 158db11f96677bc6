//! The command `log` and its refusals.

use serde_json::json;

use super::caller::Caller;

fn with_job() -> Caller {
    let mut it = Caller::new();
    it.ask("put 1 w q j k {} 0");
    it
}

#[test]
fn each_wrong_argument_is_named() {
    let mut it = with_job();
    assert_eq!(it.refused("log 1"), "Log(): Argument 'jid' missing");
    assert_eq!(it.refused("log 1 j"), "Log(): Argument 'message' missing");
    assert_eq!(it.refused("log 1 x m"), "Log(): Job x does not exist");
    // The data is checked before the job.
    let syntax = it.refused("log 1 x m {");
    assert_eq!(
        syntax,
        "Expected object key string but found invalid token at character 2"
    );
}

#[test]
fn data_that_is_no_object_is_refused() {
    let mut it = with_job();
    for data in ["[1]", "1", "\"a\"", "null", "true", "''", "{\"a\":1e999}"] {
        it.refused(&format!("log 1 j m {data}"));
    }
    it.ask("config.set 1 max-job-history many");
    let message = it.refused("log 1 j m");
    assert!(message.contains("max-job-history"), "{message}");
}

#[test]
fn an_entry_has_the_keys_of_its_data_but_what_and_when_are_its_own() {
    let mut it = with_job();
    it.nil(r#"log 2.9 j m {"a":[1,{"b":[]}],"what":"x","when":7,"c/":"d"}"#);
    it.nil("log 3 j '' []");
    it.nil("log 4 j plain");
    let history = it.json("get 4 j")["history"].clone();
    assert_eq!(
        history,
        json!([
            {"what": "put", "when": 1, "q": "q"},
            {"what": "m", "when": 2, "a": [1, {"b": {}}], "c/": "d"},
            {"what": "", "when": 3},
            {"what": "plain", "when": 4},
        ])
    );
}

#[test]
fn the_oldest_entry_stays_and_of_the_others_the_newest() {
    for (limit, expected) in [
        ("5", vec![1, 97, 98, 99, 100]),
        ("2", vec![1, 100]),
        ("1", vec![1, 100]),
    ] {
        let mut it = with_job();
        it.ask(&format!("config.set 1 max-job-history {limit}"));
        for at in 2..=100 {
            it.nil(&format!("log {at} j m"));
        }
        let history = it.json("get 1 j")["history"].clone();
        let history = history.as_array().expect("a list");
        let times: Vec<_> = history.iter().map(|it| it["when"].clone()).collect();
        assert_eq!(times, expected, "{limit}");
    }
}

#[test]
fn a_hundred_entries_are_kept_unless_the_limit_is_taken_away() {
    let mut it = with_job();
    let length = |it: &mut Caller| {
        let history = it.json("get 1 j")["history"].clone();
        history.as_array().expect("a list").len()
    };
    for at in 2..=110 {
        it.nil(&format!("log {at} j m"));
    }
    assert_eq!(length(&mut it), 100);
    it.ask("config.set 1 max-job-history 0");
    it.nil("log 200 j m");
    assert_eq!(length(&mut it), 101);
}

//! The commands `config.get`, `config.set` and `config.unset`.

use serde_json::json;

use super::caller::Caller;

#[test]
fn each_missing_argument_is_named() {
    let mut it = Caller::new();
    let missing = |command, what| format!("{command}(): Arg \"{what}\" missing");
    assert_eq!(it.refused("config.set 1"), missing("config.set", "option"));
    assert_eq!(
        it.refused("config.set 1 heartbeat"),
        missing("config.set", "value")
    );
    assert_eq!(
        it.refused("config.unset 1"),
        missing("config.unset", "option")
    );
}

#[test]
fn without_an_option_the_defaults_are_shown_and_what_was_set() {
    let mut it = Caller::new();
    let mut expected = json!({
        "application": "qless", "heartbeat": 60, "grace-period": 10, "stats-history": 30,
        "histogram-history": 7, "jobs-history-count": 50_000, "jobs-history": 604_800,
    });
    assert_eq!(it.json("config.get 0"), expected);
    it.nil("config.set 0 heartbeat 100");
    it.nil("config.set 0 q-heartbeat 5");
    expected["heartbeat"] = json!("100");
    expected["q-heartbeat"] = json!("5");
    assert_eq!(it.json("config.get 0"), expected);
}

#[test]
fn an_option_is_a_number_by_default_a_text_when_it_was_set_and_nil_if_unknown() {
    let mut it = Caller::new();
    assert_eq!(it.number("config.get 0 heartbeat"), 60);
    assert_eq!(it.text("config.get 0 application"), "qless");
    it.nil("config.get 0 nothing");
    it.nil("config.get 0 max-job-history");
    it.nil("config.set 0 heartbeat 100");
    assert_eq!(it.text("config.get 0 heartbeat"), "100");
    it.nil("config.unset 0 heartbeat");
    it.nil("config.unset 0 heartbeat");
    assert_eq!(it.number("config.get 0 heartbeat"), 60);
}

#[test]
fn everybody_hears_of_options_that_are_set_and_unset() {
    let mut it = Caller::new();
    it.nil("config.set 0 heart\"beat a/b");
    it.nil("config.unset 0 nothing");
    assert_eq!(
        it.messages(),
        [
            r#"ql:log {"option":"heart\"beat","event":"config_set","value":"a\/b"}"#,
            r#"ql:log {"event":"config_unset","option":"nothing"}"#,
        ]
    );
}

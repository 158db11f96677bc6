//! The command `tag` with its subcommands.

use ganger_types::qless::{Generation, QlessKey};
use serde_json::json;

use super::caller::Caller;

fn with_job() -> Caller {
    let mut caller = Caller::new();
    caller.ask("put 1 w q j k {} 0");
    caller
}

#[test]
fn each_wrong_argument_is_named() {
    let mut it = with_job();
    let command = r#"Tag(): Arg "command" must be "add", "remove", "get" or "top""#;
    assert_eq!(it.refused("tag 1"), command);
    let first = r#"Tag(): First argument must be "add", "remove" or "get""#;
    assert_eq!(it.refused("tag 1 Add j"), first);
    for verb in ["add", "remove"] {
        assert_eq!(
            it.refused(&format!("tag 1 {verb}")),
            r#"Tag(): Arg "jid" missing"#
        );
        assert_eq!(
            it.refused(&format!("tag 1 {verb} x t")),
            "Tag(): Job x does not exist"
        );
    }
    assert_eq!(it.refused("tag 1 get"), r#"Tag(): Arg "tag" missing"#);
    for begin in ["tag 1 get t", "tag 1 top"] {
        let offset = it.refused(&format!("{begin} x"));
        assert_eq!(offset, r#"Tag(): Arg "offset" not a number: x"#);
        let count = it.refused(&format!("{begin} 0 ''"));
        assert_eq!(count, r#"Tag(): Arg "count" not a number: "#);
        let fraction = it.refused(&format!("{begin} 0.5"));
        assert_eq!(fraction, "value is not an integer or out of range");
    }
}

#[test]
fn added_tags_are_appended_once_and_found() {
    let mut it = with_job();
    assert_eq!(it.text("tag 2 add j b a b"), r#"["b","a"]"#);
    assert_eq!(it.text("tag 3 add j a c"), r#"["b","a","c"]"#);
    assert_eq!(it.json("get 3 j")["tags"], json!(["b", "a", "c"]));
    assert_eq!(it.json("tag 3 get a"), json!({"total": 1, "jobs": ["j"]}));
    assert_eq!(it.json("tag 3 get x"), json!({"total": 0, "jobs": {}}));
    assert!(it.messages().len() == 1);
}

#[test]
fn removed_tags_are_found_no_more_and_the_others_keep_their_order() {
    let mut it = with_job();
    it.ask("tag 2 add j a b c d");
    assert_eq!(it.text("tag 3 remove j b d x"), r#"["a","c"]"#);
    assert_eq!(it.text("tag 3 remove j a c"), "{}");
    assert_eq!(it.json("tag 3 get b"), json!({"total": 0, "jobs": {}}));
}

#[test]
fn a_number_among_the_tags_is_found_as_its_text() {
    let mut it = Caller::new();
    it.ask("put 1 w q j k {} 0 tags [1,2.50]");
    assert_eq!(it.json("tag 1 get 2.5")["total"], 1);
    assert_eq!(it.text("tag 2 add j 1 x"), r#"[1,2.5,"x"]"#);
    assert_eq!(it.text("tag 2 remove j 1"), r#"[2.5,"x"]"#);
}

#[test]
fn jobs_are_listed_by_when_they_were_tagged_and_ties_by_jid() {
    let mut it = Caller::new();
    for (at, jid) in [(3, "c"), (2, "b"), (2, "a"), (1, "d")] {
        it.ask(&format!("put 1 w q {jid} k {{}} 0"));
        it.ask(&format!("tag {at} add {jid} t"));
    }
    let jobs = |it: &mut Caller, page: &str| it.json(&format!("tag 9 get t{page}"))["jobs"].clone();
    assert_eq!(jobs(&mut it, ""), json!(["d", "a", "b", "c"]));
    it.ask("tag 4 add a t");
    assert_eq!(jobs(&mut it, ""), json!(["d", "b", "c", "a"]));
    assert_eq!(jobs(&mut it, " 1 2"), json!(["b", "c"]));
    // Pages follow the range rule: a count of 0 at offset 0 means everything.
    assert_eq!(jobs(&mut it, " 0 0"), json!(["d", "b", "c", "a"]));
    assert_eq!(jobs(&mut it, " -2 1"), json!(["c"]));
    assert_eq!(it.json("tag 9 get t 1 1")["total"], 4);
}

#[test]
fn tags_that_occur_twice_or_more_are_listed_most_frequent_first() {
    let mut it = Caller::new();
    assert_eq!(it.text("tag 1 top"), "{}");
    for jid in ["1", "2", "3"] {
        it.ask(&format!(
            "put 1 w q {jid} k {{}} 0 tags [\"a\",\"b\",\"c\",5]"
        ));
    }
    it.ask("tag 1 add 1 a once");
    assert_eq!(it.text("tag 1 top"), r#"["a","c","b","5"]"#);
    assert_eq!(it.text("tag 1 top 1 2"), r#"["c","b"]"#);
    assert_eq!(it.text("tag 1 top 2 -1"), r#"["b","5"]"#);
    assert_eq!(it.text("tag 1 top 0 0"), "{}");
    assert_eq!(it.text("tag 1 top -1 5"), "{}");
}

#[test]
fn counters_go_up_again_for_the_same_tag_and_down_below_nothing() {
    let mut it = with_job();
    it.ask("tag 1 add j a");
    it.ask("tag 1 add j a");
    assert_eq!(it.text("tag 1 top"), r#"["a"]"#);
    it.ask("tag 1 remove j b b");
    it.ask("put 2 w q j k {} 0 tags [\"b\",\"b\",\"b\"]");
    // The counter was 2 below 0 and went up by 3.
    assert_eq!(it.text("tag 2 top"), "{}");
    assert_eq!(it.json("get 2 j")["tags"], json!(["b", "b", "b"]));
    it.ask("tag 2 add j b");
    assert_eq!(it.text("tag 2 top"), r#"["b"]"#);
}

#[test]
fn the_first_generation_gets_the_tags_encoded_twice() {
    let mut it = with_job();
    it.speak(Generation::One);
    assert_eq!(it.text("tag 2 add j a x"), r#""[\"a\",\"x\"]""#);
    assert_eq!(it.text("tag 2 remove j x"), r#"["a"]"#);
}

#[test]
fn the_third_generation_forgets_the_counter_of_a_tag_that_no_job_has() {
    let mut it = with_job();
    it.speak(Generation::Three);
    it.ask("tag 2 add j a");
    it.ask("tag 2 add j a");
    it.ask("tag 2 remove j a b");
    for tag in ["a", "b"] {
        assert_eq!(it.stored(&QlessKey::TagCount(tag.into())), None);
    }
}

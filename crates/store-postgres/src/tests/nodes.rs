//! Nodes of one cluster: whose turn it is, judged by elapsed time that the test sets.

use std::time::Duration;

use ganger_store::StoreError;

use super::support::Ground;
use crate::{Database, Membership, NodeName, Turn, nodes};

const SECOND: Duration = Duration::from_secs(1);

fn member(ground: &Ground, node: &str, incarnation: &str) -> Membership {
    let database = Database::new(ground.settings()).expect("they are possible");
    let name = NodeName {
        node: node.to_owned(),
        incarnation: incarnation.to_owned(),
        address: format!("{node}:1"),
        version: "1".to_owned(),
    };
    Membership::new(&database, name)
}

fn turn(member: &mut Membership, second: u32) -> Turn {
    member.beat(SECOND * (100 + second)).expect("it is there")
}

fn theirs(node: &str) -> Turn {
    Turn::Theirs {
        node: node.to_owned(),
        address: if node.is_empty() {
            String::new()
        } else {
            format!("{node}:1")
        },
    }
}

#[test]
fn a_node_takes_the_turn_of_one_that_has_not_beaten_for_a_lease() {
    let Some(ground) = Ground::start("a_node_takes_the_turn_of_one_that") else {
        return;
    };
    let (mut one, mut two) = (member(&ground, "a", "x"), member(&ground, "b", "y"));
    assert_eq!(turn(&mut one, 0), Turn::Ours);
    for second in 0..20 {
        assert_eq!(turn(&mut two, second), theirs("a"));
        assert_eq!(turn(&mut one, second), Turn::Ours);
    }
    for second in 20..26 {
        assert_eq!(turn(&mut two, second), theirs("a"), "{second}");
    }
    assert_eq!(turn(&mut two, 26), Turn::Ours);
    let lost = Turn::Lost {
        node: "b".to_owned(),
    };
    assert_eq!(turn(&mut one, 27), lost);
    let database = Database::new(ground.settings()).expect("they are possible");
    let listed = nodes(&database).expect("it is there");
    let active: Vec<_> = listed
        .iter()
        .map(|node| (node.node.as_str(), node.is_active))
        .collect();
    assert_eq!(active, [("a", false), ("b", true)]);
}

#[test]
fn a_turn_that_was_given_back_is_taken_at_once_by_one() {
    let Some(ground) = Ground::start("a_turn_that_was_given_back") else {
        return;
    };
    let (mut one, mut two) = (member(&ground, "a", "x"), member(&ground, "b", "y"));
    let mut three = member(&ground, "c", "z");
    assert_eq!(turn(&mut one, 0), Turn::Ours);
    assert_eq!(turn(&mut two, 0), theirs("a"));
    one.leave().expect("it is there");
    assert_eq!(turn(&mut two, 1), Turn::Ours);
    assert_eq!(turn(&mut three, 1), theirs("b"));
}

#[test]
fn a_node_that_starts_again_has_its_turn_at_once_and_two_of_one_name_are_refused() {
    let Some(ground) = Ground::start("a_node_that_starts_again") else {
        return;
    };
    let (mut old, mut new) = (member(&ground, "a", "x"), member(&ground, "a", "y"));
    assert_eq!(turn(&mut old, 0), Turn::Ours);
    assert_eq!(turn(&mut new, 0), Turn::Ours);
    let refused = old.beat(SECOND * 101).expect_err("it is another process");
    assert!(matches!(refused, StoreError::Io { .. }), "{refused:?}");
    assert!(refused.to_string().contains("--node"), "{refused}");
}

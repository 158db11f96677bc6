//! Nodes of one cluster: which shards each holds, judged by elapsed time that the test sets.

use std::cell::Cell;
use std::time::Duration;

use ganger_types::ShardId;

use super::support::Ground;
use crate::{
    BeatError, Database, Directory, Formats, Holds, Member, NextFormat, NodeName, OWNERSHIP_LEASE,
    Seen, finalize, set_draining,
};

const SECOND: Duration = Duration::from_secs(1);

/// A node that holds a shard which is placed on another one, too.
struct Keeps(u32, &'static str);

impl Holds for Keeps {
    fn may_hold(&self, _: u32) -> bool {
        true
    }

    fn keeps(&self, shard: u32, placed: &str) -> bool {
        (shard, placed) == (self.0, self.1)
    }
}

/// A cluster and the time of the test.
struct Nodes {
    ground: Ground,
    now: Cell<Duration>,
}

impl Nodes {
    /// Starts a cluster with so many shards; `None` where there cannot be one.
    fn start(test: &str, shards: u32) -> Option<Self> {
        let mut ground = Ground::start(test)?;
        for number in 1..=shards {
            let id = ShardId::new(&number.to_string()).expect("it is a name");
            ground.admin.add_shard(number, &id).expect("it is new");
        }
        Some(Self {
            ground,
            now: Cell::new(SECOND * 100),
        })
    }

    fn member(&self, node: &str, incarnation: &str) -> Member {
        self.member_that_knows(node, incarnation, Formats::OWN)
    }

    fn member_that_knows(&self, node: &str, incarnation: &str, formats: Formats) -> Member {
        let database = Database::new(self.ground.settings()).expect("they are possible");
        let name = NodeName {
            node: node.to_owned(),
            incarnation: incarnation.to_owned(),
            address: format!("{node}:1"),
            version: "1".to_owned(),
            formats,
            lease: OWNERSHIP_LEASE,
        };
        Member::new(&database, name)
    }

    fn beat(&self, member: &mut Member) -> Seen {
        self.try_beat(member).expect("the database is there")
    }

    fn try_beat(&self, member: &mut Member) -> Result<Seen, BeatError> {
        member.beat(&|| self.now.get(), &|_: u32| true)
    }

    fn pass(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }
}

/// The numbers of the shards that the process has.
fn ours(seen: &Seen) -> Vec<u32> {
    let ours = seen.shards.iter().filter(|shard| shard.is_ours);
    ours.map(|shard| shard.number).collect()
}

#[test]
fn the_shards_of_a_node_that_does_not_beat_go_to_others_after_a_lease() {
    let Some(nodes) = Nodes::start("the_shards_of_a_node_that_does_not_beat", 4) else {
        return;
    };
    let (mut one, mut two) = (nodes.member("a", "x"), nodes.member("b", "y"));
    assert_eq!(ours(&nodes.beat(&mut one)), [1, 2, 3, 4], "it is alone");
    for _ in 0..20 {
        assert!(
            ours(&nodes.beat(&mut two)).is_empty(),
            "the first one lives"
        );
        assert_eq!(ours(&nodes.beat(&mut one)).len(), 4);
        nodes.pass(SECOND);
    }
    for second in 0..6 {
        assert!(ours(&nodes.beat(&mut two)).is_empty(), "{second}");
        nodes.pass(SECOND);
    }
    let seen = nodes.beat(&mut two);
    assert_eq!((ours(&seen), seen.taken_over), (vec![1, 2, 3, 4], 4));
    let lives: Vec<_> = seen.nodes.iter().map(|node| node.is_live).collect();
    assert_eq!(lives, [false, true]);
    let late = nodes.beat(&mut one);
    assert!(ours(&late).is_empty(), "it comes back and has lost them");
}

#[test]
fn a_beat_on_its_way_keeps_the_shards_of_its_node() {
    let Some(nodes) = Nodes::start("a_beat_on_its_way", 2) else {
        return;
    };
    let (mut one, mut two) = (nodes.member("a", "x"), nodes.member("b", "y"));
    nodes.beat(&mut one);
    for _ in 0..6 {
        nodes.beat(&mut two);
        nodes.pass(SECOND);
    }
    // The node beats between the look of the other one and what follows from it.
    let looked = Cell::new(0);
    let clock = || {
        looked.set(looked.get() + 1);
        if looked.get() == 2 {
            nodes
                .ground
                .sql("UPDATE ganger.node SET beat = beat + 1 WHERE id = 'a'");
        }
        nodes.now.get()
    };
    let seen = two.beat(&clock, &|_: u32| true).expect("it is there");
    assert_eq!((ours(&seen), seen.taken_over), (vec![], 0));
    assert_eq!(ours(&nodes.beat(&mut one)), [1, 2]);
}

#[test]
fn a_node_that_left_loses_its_shards_at_once() {
    let Some(nodes) = Nodes::start("a_node_that_left", 3) else {
        return;
    };
    let (mut one, mut two) = (nodes.member("a", "x"), nodes.member("b", "y"));
    nodes.beat(&mut one);
    nodes.beat(&mut two);
    one.leave().expect("it is there");
    assert_eq!(ours(&nodes.beat(&mut two)), [1, 2, 3]);
}

#[test]
fn a_node_that_starts_again_has_its_shards_at_once_and_two_of_one_name_are_refused() {
    let Some(nodes) = Nodes::start("a_node_that_starts_again", 2) else {
        return;
    };
    let (mut old, mut new) = (nodes.member("a", "x"), nodes.member("a", "y"));
    assert_eq!(ours(&nodes.beat(&mut old)), [1, 2]);
    assert_eq!(ours(&nodes.beat(&mut new)), [1, 2]);
    let refused = nodes.try_beat(&mut old).expect_err("it is another process");
    assert!(
        matches!(&refused, BeatError::NameTaken(name) if name == "a"),
        "{refused}"
    );
}

#[test]
fn a_draining_node_gives_its_shards_away_four_at_once() {
    let Some(nodes) = Nodes::start("a_draining_node", 5) else {
        return;
    };
    let (mut one, mut two) = (nodes.member("a", "x"), nodes.member("b", "y"));
    nodes.beat(&mut one);
    nodes.beat(&mut two);
    let database = Database::new(nodes.ground.settings()).expect("they are possible");
    assert!(!set_draining(&database, "nobody", true).expect("it is there"));
    one.drain().expect("it is there");
    let seen = nodes.beat(&mut two);
    assert_eq!(
        (seen.moved, ours(&seen)),
        (4, vec![]),
        "the owner holds them still"
    );
    let seen = nodes.beat(&mut one);
    assert_eq!(
        (seen.moved, ours(&seen).len()),
        (0, 5),
        "the fifth one waits"
    );
    let leaving = seen.shards.iter().filter(|shard| shard.node == "b");
    let leaving: Vec<_> = leaving.map(|shard| shard.number).collect();
    for shard in &leaving {
        one.release(*shard).expect("it is there");
    }
    let seen = nodes.beat(&mut two);
    assert_eq!(seen.moved, 1, "there is room for the fifth one");
    assert_eq!(ours(&seen), leaving);
}

#[test]
fn a_shard_that_was_refused_is_held_by_nobody() {
    let Some(nodes) = Nodes::start("a_shard_that_was_refused", 2) else {
        return;
    };
    let mut one = nodes.member("a", "x");
    let seen = one.beat(&|| nodes.now.get(), &|shard: u32| shard != 1);
    let seen = seen.expect("it is there");
    assert_eq!(ours(&seen), [2]);
    assert_eq!(seen.shards[0].holder, "");
}

#[test]
fn a_shard_that_its_new_node_does_not_take_is_held_again_by_the_one_that_released_it() {
    let Some(nodes) = Nodes::start("a_shard_that_its_new_node_does_not_take", 2) else {
        return;
    };
    let (mut one, mut two) = (nodes.member("a", "x"), nodes.member("b", "y"));
    nodes.beat(&mut one);
    nodes.beat(&mut two);
    one.drain().expect("it is there");
    assert_eq!(nodes.beat(&mut two).moved, 2);
    for shard in [1, 2] {
        one.release(shard).expect("it is there");
    }
    let holds = Keeps(1, "b");
    let now = || nodes.now.get();
    let seen = one.beat(&now, &holds).expect("it is there");
    assert_eq!(ours(&seen), [1]);
    assert!(seen.shards[0].is_new, "what it had of it is out of date");
    assert_eq!(ours(&nodes.beat(&mut two)), [2], "the other one is free");
    one.release(1).expect("it is there");
    assert_eq!(ours(&nodes.beat(&mut two)), [1, 2]);
    let seen = one.beat(&now, &holds).expect("it is there");
    assert!(ours(&seen).is_empty(), "it has been taken");
}

#[test]
fn a_cluster_gets_the_next_format_once_all_its_nodes_know_it() {
    let Some(mut nodes) = Nodes::start("a_cluster_gets_the_next_format", 1) else {
        return;
    };
    nodes.ground.admin.make_cluster("test").expect("it is new");
    let database = Database::new(nodes.ground.settings()).expect("they are possible");
    let finalize = || finalize(&database).expect("the database is there");
    assert_eq!(finalize(), NextFormat::NoNodes);
    let newer = Formats { min: 1, max: 2 };
    let (mut a, mut b) = (
        nodes.member_that_knows("a", "1", newer),
        nodes.member("b", "1"),
    );
    nodes.beat(&mut b);
    assert_eq!(finalize(), NextFormat::Newest(1));
    nodes.beat(&mut a);
    let held = NextFormat::Held {
        format: 1,
        node: "b".to_owned(),
    };
    assert_eq!(finalize(), held);
    let mut c = nodes.member_that_knows("b", "2", newer);
    assert_eq!(nodes.beat(&mut c).format, 1, "not before ten minutes");
    assert_eq!(finalize(), NextFormat::Ready(2));
    assert_eq!(nodes.beat(&mut a).format, 2);
    assert_eq!(finalize(), NextFormat::Newest(2));

    // This program knows format 1 only, and has come too late.
    let refused = nodes.try_beat(&mut nodes.member("d", "1"));
    let refused = refused.expect_err("it does not know it");
    assert!(
        matches!(refused, BeatError::FormatTooNew { found: 2, known: 1 }),
        "{refused}"
    );
    assert!(Directory::read(&database).is_err());
    let two = ShardId::new("2").expect("it is a name");
    nodes.ground.admin.add_shard(2, &two).expect("it is new");
    let formats = "SELECT DISTINCT format FROM ganger_s_2.fence";
    assert_eq!(nodes.ground.sql(formats), "2");
    nodes.ground.sql("DELETE FROM ganger.node WHERE id = 'd'");

    // Without an operator, once all have known it for ten minutes.
    nodes.ground.sql("UPDATE ganger.cluster SET format = 1");
    nodes
        .ground
        .sql("UPDATE ganger.node SET since = now() - interval '11 minutes' WHERE id = 'a'");
    assert_eq!(nodes.beat(&mut a).format, 1, "the other one has not");
    nodes
        .ground
        .sql("UPDATE ganger.node SET since = now() - interval '11 minutes'");
    assert_eq!(nodes.beat(&mut a).format, 2);
}

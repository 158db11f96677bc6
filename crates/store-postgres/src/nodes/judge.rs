//! Judges which nodes live, and places their shards.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_types::ShardId;

use crate::formats::{Formats, Knows, NextFormat, next_format};
use crate::nodes::{SILENT_AFTER, SeenNode, SeenShard};
use crate::placement::{LiveNode, PlacedShard, place};

/// Largest time between two looks that counts as watching, and largest part of a lease: in a longer one this node
/// itself, or the database, was away.
const WATCH_GAP_MAX: Duration = Duration::from_secs(2);
const WATCH_GAP_PART: u32 = 2;

/// The row of a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NodeRow {
    pub(super) name: String,
    pub(super) incarnation: String,
    pub(super) address: String,
    pub(super) version: String,
    pub(super) formats: Formats,
    pub(super) beat: i64,
    pub(super) lease: Duration,
    pub(super) is_draining: bool,
    /// Time since it came into the cluster, and since its last beat, by the clock of the database.
    pub(super) age: Duration,
    pub(super) silent_for: Duration,
}

/// The row of a shard.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlaceRow {
    pub(super) number: u32,
    pub(super) id: ShardId,
    /// Node that is to serve it; empty for none.
    pub(super) node: String,
    /// Node and process that hold it; empty for none.
    pub(super) holder: String,
    pub(super) incarnation: String,
    /// Whether this process has just begun to hold it.
    pub(super) is_new: bool,
    /// Time since it moved from a live node, by the clock of the database.
    pub(super) moved: Option<Duration>,
}

/// The control tables, as one look found them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// Number that every change of places raises.
    pub(super) version: i64,
    /// Format of the cluster's tables; 0 while nobody has said.
    pub(super) format: u32,
    pub(super) nodes: Vec<NodeRow>,
    pub(super) places: Vec<PlaceRow>,
}

impl Table {
    /// Returns what becomes of the cluster's format if these of its nodes live.
    pub(super) fn next_format<'a>(&self, live: impl Iterator<Item = &'a NodeRow>) -> NextFormat {
        let knows = live.map(|node| Knows {
            node: &node.name,
            formats: node.formats,
        });
        next_format(self.format, knows)
    }

    /// Returns the shards as the process `incarnation` sees them.
    pub(super) fn shards(self, incarnation: &str) -> Vec<SeenShard> {
        let shards = self.places.into_iter().map(|place| SeenShard {
            number: place.number,
            id: place.id,
            node: place.node,
            is_ours: place.incarnation == incarnation,
            is_new: place.is_new,
            holder: place.holder,
        });
        shards.collect()
    }
}

/// A new place for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlaceChange {
    pub(super) shard: u32,
    pub(super) node: String,
    /// The process that held it and has lost it; `None` if its holder stays.
    pub(super) freed: Option<String>,
    /// Whether it moves from a live node.
    pub(super) is_planned: bool,
}

/// What follows from a look at the control tables.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Judgement {
    pub(super) nodes: Vec<SeenNode>,
    pub(super) changes: Vec<PlaceChange>,
    /// Dead processes that lose shards: name, incarnation, and the beat that was seen last. A later beat means that the
    /// process lives.
    pub(super) dead: Vec<(String, String, i64)>,
    /// What becomes of the cluster's format, and for how long all live nodes have known what they know.
    pub(super) next_format: NextFormat,
    pub(super) known_for: Duration,
}

impl Judgement {
    /// Number of shards taken from dead nodes.
    pub(super) fn taken_over(&self) -> u64 {
        self.count(|change| change.freed.is_some())
    }

    /// Number of shards moved between live nodes.
    pub(super) fn moved(&self) -> u64 {
        self.count(|change| change.is_planned)
    }

    fn count(&self, is_counted: impl Fn(&PlaceChange) -> bool) -> u64 {
        let changes = self.changes.iter();
        let counted = changes.filter(|change| is_counted(change)).count();
        u64::try_from(counted).unwrap_or(u64::MAX)
    }
}

/// Watches the beats of all nodes.
#[derive(Clone, Debug)]
pub(super) struct Watches {
    /// Name of this node, which lives.
    own: String,
    /// Incarnation and beat of each node, and the time at which they were seen first.
    seen: BTreeMap<String, (String, i64, Duration)>,
    /// Time of the last look.
    looked_at: Option<Duration>,
    /// Names of those whose beats have stood still for [`SILENT_AFTER`], and of those among them that are dead.
    silent: Vec<String>,
    dead: Vec<String>,
}

impl Watches {
    pub(super) fn new(own: &str) -> Self {
        Self {
            own: own.to_owned(),
            seen: BTreeMap::new(),
            looked_at: None,
            silent: Vec::new(),
            dead: Vec::new(),
        }
    }

    /// Notes what was read between two moments. Only time in which this node was looking counts: a beat that stood
    /// still is judged by the earlier moment, and one that moved by the later one.
    pub(super) fn look(&mut self, nodes: &[NodeRow], before: Duration, after: Duration) {
        let gap = self.looked_at.map(|last| before.saturating_sub(last));
        self.looked_at = Some(after);
        self.seen
            .retain(|name, _| nodes.iter().any(|node| node.name == *name));
        self.silent.clear();
        self.dead.clear();
        for node in nodes {
            let was_away =
                gap.is_none_or(|gap| gap > WATCH_GAP_MAX.min(node.lease / WATCH_GAP_PART));
            let new = || (node.incarnation.clone(), node.beat, after);
            let seen = self.seen.entry(node.name.clone()).or_insert_with(new);
            if was_away || seen.0 != node.incarnation || seen.1 != node.beat {
                *seen = new();
            }
            let still_for = before.saturating_sub(seen.2);
            if node.name != self.own && still_for >= SILENT_AFTER {
                self.silent.push(node.name.clone());
            }
            if node.name != self.own && still_for >= node.lease {
                self.dead.push(node.name.clone());
            }
        }
    }

    /// Returns the node that gets a shard which this one cannot serve: the next live one by name, so that one node after
    /// another tries. `None` if there is no other.
    pub(super) fn next_node<'a>(&self, nodes: &'a [NodeRow]) -> Option<&'a str> {
        let others = nodes.iter().filter(|node| {
            node.name != self.own && !node.is_draining && !self.silent.contains(&node.name)
        });
        let names = others.map(|node| node.name.as_str());
        names.min_by_key(|name| (*name < self.own.as_str(), *name))
    }

    /// Returns what the nodes are, and which places change.
    pub(super) fn judge(&self, table: &Table) -> Judgement {
        let is_live = |node: &NodeRow| !self.dead.contains(&node.name);
        let holds = |place: &PlaceRow| {
            let mut nodes = table.nodes.iter();
            nodes.find(|node| node.name == place.holder && node.incarnation == place.incarnation)
        };
        let live = table.nodes.iter().filter(|node| is_live(node));
        let live: Vec<_> = live
            .map(|node| LiveNode {
                name: node.name.clone(),
                is_draining: node.is_draining,
                is_silent: self.silent.contains(&node.name),
                age: node.age,
            })
            .collect();
        let shards = table.places.iter().map(|place| PlacedShard {
            number: place.number,
            node: Some(place.node.clone()),
            moved: place.moved,
            is_moving: !place.holder.is_empty() && place.holder != place.node,
        });
        let moves = place(&shards.collect::<Vec<_>>(), &live);
        let (mut changes, mut dead) = (Vec::new(), Vec::new());
        for row in &table.places {
            let holder = holds(row);
            let is_freed = !row.holder.is_empty() && !holder.is_some_and(is_live);
            let to = moves.iter().find(|it| it.shard == row.number);
            if !is_freed && to.is_none() {
                continue;
            }
            if let Some(node) = holder.filter(|_| is_freed) {
                let process = (node.name.clone(), node.incarnation.clone(), node.beat);
                if !dead.contains(&process) {
                    dead.push(process);
                }
            }
            changes.push(PlaceChange {
                shard: row.number,
                node: to.map_or_else(|| row.node.clone(), |it| it.to.clone()),
                freed: is_freed.then(|| row.incarnation.clone()),
                is_planned: to.is_some_and(|it| it.is_planned),
            });
        }
        let nodes = table.nodes.iter().map(|node| SeenNode {
            name: node.name.clone(),
            address: node.address.clone(),
            version: node.version.clone(),
            silent_for: node.silent_for,
            is_live: is_live(node),
            is_draining: node.is_draining,
        });
        let of_live = || table.nodes.iter().filter(|node| is_live(node));
        Judgement {
            nodes: nodes.collect(),
            changes,
            dead,
            next_format: table.next_format(of_live()),
            known_for: of_live().map(|node| node.age).min().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn node(name: &str, beat: i64) -> NodeRow {
        NodeRow {
            name: name.to_owned(),
            incarnation: format!("{name}-1"),
            address: format!("{name}:1"),
            version: "1".to_owned(),
            formats: Formats::OWN,
            beat,
            lease: SECOND * 6,
            is_draining: false,
            age: SECOND * 3_600,
            silent_for: SECOND,
        }
    }

    fn held(number: u32, node: &str) -> PlaceRow {
        PlaceRow {
            number,
            id: ShardId::default(),
            node: node.to_owned(),
            holder: node.to_owned(),
            incarnation: format!("{node}-1"),
            is_new: false,
            moved: None,
        }
    }

    /// Looks every second at nodes of which `b` does not beat.
    fn watch(watches: &mut Watches, seconds: std::ops::Range<u32>) {
        for second in seconds {
            let nodes = [
                node("a", i64::from(second)),
                node("b", 0),
                node("c", i64::from(second)),
            ];
            let at = SECOND * (100 + second);
            watches.look(&nodes, at, at);
        }
    }

    #[test]
    fn a_node_is_dead_after_its_lease_without_a_beat() {
        let mut watches = Watches::new("a");
        watch(&mut watches, 0..6);
        assert!(watches.dead.is_empty());
        watch(&mut watches, 6..7);
        assert_eq!(watches.dead, ["b"]);
        let at = SECOND * 107;
        watches.look(&[node("a", 7), node("b", 1)], at, at);
        assert!(watches.dead.is_empty(), "it has beaten");
    }

    #[test]
    fn a_silent_node_gets_no_shard_of_a_draining_one() {
        let mut watches = Watches::new("a");
        watch(&mut watches, 0..4);
        let mut draining = node("a", 3);
        draining.is_draining = true;
        let mut table = Table {
            version: 1,
            format: 1,
            nodes: vec![draining, node("b", 0)],
            places: vec![held(1, "a")],
        };
        assert!(watches.judge(&table).changes.is_empty(), "b may be dead");
        table.nodes.push(node("c", 3));
        let judgement = watches.judge(&table);
        assert_eq!(judgement.changes[0].node, "c");
    }

    #[test]
    fn time_in_which_nobody_looked_makes_nobody_dead() {
        let mut watches = Watches::new("a");
        watch(&mut watches, 0..5);
        watch(&mut watches, 60..66);
        assert!(watches.dead.is_empty());
        watch(&mut watches, 66..67);
        assert_eq!(watches.dead, ["b"]);
    }

    #[test]
    fn a_look_that_took_long_gives_no_lease_a_shorter_time() {
        let mut watches = Watches::new("a");
        watches.look(&[node("b", 0)], SECOND * 100, SECOND * 104);
        for second in 105..110 {
            watches.look(&[node("b", 0)], SECOND * second, SECOND * second);
            assert!(watches.dead.is_empty(), "{second}");
        }
        watches.look(&[node("b", 0)], SECOND * 110, SECOND * 110);
        assert_eq!(watches.dead, ["b"]);
    }

    #[test]
    fn a_shard_that_cannot_be_served_goes_from_node_to_node() {
        let next = |own: &str, nodes: &[NodeRow]| {
            let next = Watches::new(own).next_node(nodes).map(str::to_owned);
            next.unwrap_or_default()
        };
        let mut nodes = vec![node("a", 1), node("b", 1), node("c", 1)];
        assert_eq!(next("a", &nodes), "b");
        assert_eq!(next("b", &nodes), "c");
        assert_eq!(next("c", &nodes), "a");
        nodes[1].is_draining = true;
        assert_eq!(next("a", &nodes), "c");
        assert_eq!(next("a", &nodes[..2]), "");
        let mut watches = Watches::new("a");
        watch(&mut watches, 0..5);
        let nodes = [node("a", 4), node("b", 0), node("c", 4)];
        assert_eq!(watches.next_node(&nodes), Some("c"), "b is silent");
    }

    #[test]
    fn a_node_never_counts_itself_as_dead() {
        let mut watches = Watches::new("b");
        watch(&mut watches, 0..20);
        assert!(watches.dead.is_empty());
    }

    #[test]
    fn the_shards_of_a_dead_node_are_freed_and_placed_elsewhere() {
        let mut watches = Watches::new("a");
        watch(&mut watches, 0..7);
        let table = Table {
            version: 1,
            format: 1,
            nodes: vec![node("a", 6), node("b", 0), node("c", 6)],
            places: vec![held(1, "a"), held(2, "b"), held(3, "c")],
        };
        let judgement = watches.judge(&table);
        assert_eq!(judgement.dead, [("b".to_owned(), "b-1".to_owned(), 0)]);
        let [change] = judgement.changes.as_slice() else {
            panic!("one shard moves: {judgement:?}");
        };
        assert!(change.shard == 2 && !change.is_planned);
        assert_eq!(change.freed.as_deref(), Some("b-1"));
        assert!(["a", "c"].contains(&change.node.as_str()), "{change:?}");
    }

    #[test]
    fn a_process_that_started_again_loses_what_the_last_one_held_and_gets_it_back() {
        let watches = Watches::new("a");
        let mut again = node("b", 0);
        again.incarnation = "b-2".to_owned();
        let table = Table {
            version: 1,
            format: 1,
            nodes: vec![node("a", 6), again],
            places: vec![held(1, "a"), held(2, "b")],
        };
        let judgement = watches.judge(&table);
        assert!(judgement.dead.is_empty(), "it cannot beat any more");
        let change = PlaceChange {
            shard: 2,
            node: "b".to_owned(),
            freed: Some("b-1".to_owned()),
            is_planned: false,
        };
        assert_eq!(judgement.changes, [change]);
    }
}

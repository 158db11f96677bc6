//! Which node serves which shard: a pure function of the live nodes and the present placement.
//!
//! Every node computes it from what it sees; the first one that stores its result wins. A wrong result costs time and
//! never safety: the fence of a shard decides who owns it.

use std::collections::BTreeMap;
use std::time::Duration;

/// Time for which a node must have been in the cluster before shards of other live nodes move to it.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Smallest time between two moves of shards whose nodes live.
pub(crate) const MOVE_EVERY: Duration = Duration::from_secs(5);

/// Largest number of shards that move from draining nodes at once.
pub(crate) const DRAIN_TOGETHER: usize = 4;

/// A shard and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedShard {
    /// Number of the shard.
    pub(crate) number: u32,
    /// Name of the node that is to serve it; `None` if no node is.
    pub(crate) node: Option<String>,
    /// Time since it was moved from a live node; `None` if it never was.
    pub(crate) moved: Option<Duration>,
    /// Whether another node than `node` still holds it.
    pub(crate) is_moving: bool,
}

/// A node that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LiveNode {
    /// Name of the node.
    pub(crate) name: String,
    /// Whether it gives its shards away and gets none.
    pub(crate) is_draining: bool,
    /// Whether its beat has stood still for a while: it may be dead, and gets no shard that another node can take.
    pub(crate) is_silent: bool,
    /// Time since it came into the cluster.
    pub(crate) age: Duration,
}

impl LiveNode {
    /// Whether shards of live nodes may move to it.
    fn takes(&self) -> bool {
        !self.is_draining && !self.is_silent
    }
}

/// A new place for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// Number of the shard.
    pub(crate) shard: u32,
    /// Name of the node that is to serve it.
    pub(crate) to: String,
    /// Whether the node that served it lives.
    pub(crate) is_planned: bool,
}

/// Returns the shards whose places change.
///
/// A shard without a live node gets one at once: the first by rendezvous hashing among those with the fewest shards, so
/// that the shards of a node that died are spread. The shards of draining nodes move too, [`DRAIN_TOGETHER`] at once. A
/// shard stays where it is otherwise, but for one move every [`MOVE_EVERY`] to a node that is older than
/// [`STABLE_AFTER`] and has at least two shards less, and a tenth of the mean. No shard moves from a live node to a silent
/// one. Without any live node nothing changes.
pub(crate) fn place(shards: &[PlacedShard], nodes: &[LiveNode]) -> Vec<Move> {
    let mut loads = Loads::new(shards, nodes);
    let mut moves = Vec::new();
    if loads.takers.is_empty() {
        return moves;
    }
    let mut homeless: Vec<&PlacedShard> = shards.iter().filter(|shard| !loads.has(shard)).collect();
    homeless.sort_unstable_by_key(|shard| shard.number);
    for shard in homeless {
        let to = loads.taker(shard.number);
        loads.add(&to);
        moves.push(Move {
            shard: shard.number,
            to,
            is_planned: false,
        });
    }
    if moves.is_empty() {
        moves = drain(shards, nodes, &mut loads);
    }
    let newest = shards.iter().filter_map(|shard| shard.moved).min();
    if moves.is_empty() && newest.is_none_or(|age| age >= MOVE_EVERY) {
        moves.extend(balance(shards, nodes, &loads));
    }
    moves
}

/// Number of shards of each live node.
struct Loads<'a> {
    of: BTreeMap<&'a str, usize>,
    /// The nodes that get shards: those that beat and do not drain; or all that do not drain, or all, if there are none.
    takers: Vec<&'a str>,
}

impl<'a> Loads<'a> {
    fn new(shards: &[PlacedShard], nodes: &'a [LiveNode]) -> Self {
        let mut of: BTreeMap<&str, usize> =
            nodes.iter().map(|node| (node.name.as_str(), 0)).collect();
        for node in shards.iter().filter_map(|shard| shard.node.as_deref()) {
            if let Some(load) = of.get_mut(node) {
                *load += 1;
            }
        }
        let named = |takes: &dyn Fn(&LiveNode) -> bool| -> Vec<&str> {
            let takers = nodes.iter().filter(|node| takes(node));
            takers.map(|node| node.name.as_str()).collect()
        };
        let by_choice = [
            named(&LiveNode::takes),
            named(&|node| !node.is_draining),
            named(&|_| true),
        ];
        let takers = by_choice.into_iter().find(|it| !it.is_empty());
        Self {
            of,
            takers: takers.unwrap_or_default(),
        }
    }

    fn has(&self, shard: &PlacedShard) -> bool {
        let node = shard.node.as_deref();
        node.is_some_and(|node| self.of.contains_key(node))
    }

    fn add(&mut self, node: &str) {
        if let Some(load) = self.of.get_mut(node) {
            *load += 1;
        }
    }

    /// Returns the node that gets a shard: of those with the fewest shards, the first by rank.
    fn taker(&self, shard: u32) -> String {
        let best = self.takers.iter().min_by_key(|node| {
            let rank = std::cmp::Reverse(rank(node, shard));
            (self.of[*node], rank, **node)
        });
        (*best.expect("the caller has looked")).to_owned()
    }
}

/// Moves shards from draining nodes, if another node stays.
fn drain(shards: &[PlacedShard], nodes: &[LiveNode], loads: &mut Loads<'_>) -> Vec<Move> {
    let is_left = |node: &str| {
        let left = nodes.iter().find(|it| it.name == node);
        left.is_some_and(|node| node.is_draining)
    };
    if !nodes.iter().any(LiveNode::takes) {
        return Vec::new();
    }
    let moving = shards.iter().filter(|shard| shard.is_moving).count();
    let mut leaving: Vec<_> = shards
        .iter()
        .filter(|shard| shard.node.as_deref().is_some_and(is_left))
        .collect();
    leaving.sort_unstable_by_key(|shard| shard.number);
    let together = leaving.iter().take(DRAIN_TOGETHER.saturating_sub(moving));
    let moves = together.map(|shard| {
        let to = loads.taker(shard.number);
        loads.add(&to);
        Move {
            shard: shard.number,
            to,
            is_planned: true,
        }
    });
    moves.collect()
}

/// Moves one shard from the node with the most to the stable node with the fewest, if that is worth it.
fn balance(shards: &[PlacedShard], nodes: &[LiveNode], loads: &Loads<'_>) -> Option<Move> {
    let stable = nodes
        .iter()
        .filter(|node| node.takes() && node.age >= STABLE_AFTER);
    let to = stable.min_by_key(|node| (loads.of[node.name.as_str()], &node.name))?;
    let (from, most) = loads
        .of
        .iter()
        .max_by_key(|(name, load)| (**load, std::cmp::Reverse(**name)))?;
    let gain = most.saturating_sub(loads.of[to.name.as_str()]);
    let total: usize = loads.of.values().sum();
    if gain < 2 || gain * 10 * loads.takers.len() <= total {
        return None;
    }
    let theirs = shards
        .iter()
        .filter(|shard| shard.node.as_deref() == Some(*from));
    let shard = theirs.max_by_key(|shard| (rank(&to.name, shard.number), shard.number))?;
    Some(Move {
        shard: shard.number,
        to: to.name.clone(),
        is_planned: true,
    })
}

/// Returns the rank of a node for a shard: the higher the better. All versions of the program must agree on it.
fn rank(node: &str, shard: u32) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in node.bytes().chain(shard.to_be_bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The last bytes have not reached the high bits.
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OLD: Duration = Duration::from_secs(3_600);

    fn node(name: u8, is_draining: bool, age: Duration) -> LiveNode {
        LiveNode {
            name: format!("node-{name}"),
            is_draining,
            is_silent: false,
            age,
        }
    }

    /// Places of shards on nodes that may be gone, and nodes that live.
    fn clusters() -> impl Strategy<Value = (Vec<PlacedShard>, Vec<LiveNode>)> {
        let nodes = proptest::collection::btree_map(0_u8..8, (any::<bool>(), 0_u64..60), 0..6);
        let shards = proptest::collection::vec(proptest::option::of(0_u8..8), 0..40);
        (shards, nodes).prop_map(|(shards, nodes)| {
            let shards = shards.into_iter().zip(0..).map(|(at, number)| PlacedShard {
                number,
                node: at.map(|at| format!("node-{at}")),
                moved: None,
                is_moving: false,
            });
            let nodes = nodes.into_iter().map(|(name, (is_draining, age))| {
                node(name, is_draining, Duration::from_secs(age))
            });
            (shards.collect(), nodes.collect())
        })
    }

    fn apply(shards: &mut [PlacedShard], moves: &[Move]) {
        for change in moves {
            let mut found = shards.iter_mut();
            let shard = found.find(|shard| shard.number == change.shard);
            shard.expect("only known shards move").node = Some(change.to.clone());
        }
    }

    fn loads(shards: &[PlacedShard], nodes: &[LiveNode]) -> Vec<usize> {
        let of = |node: &LiveNode| {
            let theirs = shards
                .iter()
                .filter(|shard| shard.node.as_ref() == Some(&node.name));
            theirs.count()
        };
        nodes.iter().map(of).collect()
    }

    proptest! {
        #[test]
        fn every_shard_has_a_live_node_at_once((mut shards, nodes) in clusters()) {
            let before = shards.clone();
            let moves = place(&shards, &nodes);
            apply(&mut shards, &moves);
            let lives = |name: &String| nodes.iter().any(|node| node.name == *name);
            for (old, new) in before.iter().zip(&shards) {
                if nodes.is_empty() {
                    prop_assert_eq!(old, new);
                    continue;
                }
                prop_assert!(new.node.as_ref().is_some_and(lives));
                let kept = old.node.as_ref().filter(|name| lives(name));
                let is_planned = moves.iter().any(|it| it.shard == new.number && it.is_planned);
                prop_assert!(kept.is_none() || kept == new.node.as_ref() || is_planned);
            }
            prop_assert!(moves.iter().filter(|it| it.is_planned).count() <= DRAIN_TOGETHER);
        }

        #[test]
        fn the_order_of_what_is_seen_does_not_matter((mut shards, mut nodes) in clusters()) {
            let mut one = place(&shards, &nodes);
            shards.reverse();
            nodes.reverse();
            let mut other = place(&shards, &nodes);
            one.sort_unstable_by_key(|it| it.shard);
            other.sort_unstable_by_key(|it| it.shard);
            prop_assert_eq!(one, other);
        }

        #[test]
        fn no_shard_of_a_live_node_moves_to_a_silent_one((shards, mut nodes) in clusters(), silent in 0_u8..255) {
            for (bit, node) in nodes.iter_mut().enumerate() {
                node.is_silent = silent & (1 << bit) != 0;
                node.age = OLD;
            }
            let is_taken = |name: &String| nodes.iter().any(|node| node.name == *name && node.takes());
            let has_taker = nodes.iter().any(LiveNode::takes);
            for change in place(&shards, &nodes) {
                prop_assert!(is_taken(&change.to) || !has_taker && !change.is_planned, "{change:?}");
            }
        }

        #[test]
        fn places_settle_and_are_even((mut shards, mut nodes) in clusters()) {
            for node in &mut nodes {
                node.age = OLD;
            }
            let mut left = 2 * shards.len() + 2;
            loop {
                let moves = place(&shards, &nodes);
                if moves.is_empty() {
                    break;
                }
                apply(&mut shards, &moves);
                left -= 1;
                prop_assert!(left > 0, "it does not settle");
            }
            let stays: Vec<_> = nodes.iter().filter(|node| !node.is_draining).cloned().collect();
            if !stays.is_empty() {
                let loads = loads(&shards, &stays);
                prop_assert_eq!(loads.iter().sum::<usize>(), shards.len(), "a draining node is empty");
                let (least, most) = (loads.iter().min(), loads.iter().max());
                let apart = most.unwrap_or(&0) - least.unwrap_or(&0);
                prop_assert!(apart < 2 || apart * 10 * stays.len() <= shards.len());
            }
        }

        #[test]
        fn a_young_node_and_a_recent_move_wait((shards, mut nodes) in clusters()) {
            for node in &mut nodes {
                node.age = STABLE_AFTER / 2;
                node.is_draining = false;
            }
            prop_assert!(place(&shards, &nodes).iter().all(|it| !it.is_planned));
            let mut recent = shards;
            for node in &mut nodes {
                node.age = OLD;
            }
            if let Some(first) = recent.first_mut() {
                first.moved = Some(MOVE_EVERY / 2);
                prop_assert!(place(&recent, &nodes).iter().all(|it| !it.is_planned));
            }
        }
    }

    #[test]
    fn a_few_shards_of_a_draining_node_move_at_once() {
        let placed = |number: u32, is_moving| PlacedShard {
            number,
            node: Some(if is_moving { "node-2" } else { "node-1" }.to_owned()),
            moved: Some(Duration::ZERO),
            is_moving,
        };
        let nodes = [node(1, true, OLD), node(2, false, OLD), node(3, false, OLD)];
        let shards: Vec<_> = (1..=9).map(|number| placed(number, false)).collect();
        let moves = place(&shards, &nodes);
        let numbers: Vec<_> = moves.iter().map(|it| it.shard).collect();
        assert_eq!(numbers, [1, 2, 3, 4]);
        let to_third = moves.iter().filter(|it| it.to == "node-3").count();
        assert_eq!(to_third, 2, "they are spread: {moves:?}");
        let shards: Vec<_> = (1..=9).map(|number| placed(number, number <= 3)).collect();
        let moves = place(&shards, &nodes);
        assert_eq!(moves.len(), 1, "three are on their way: {moves:?}");
    }

    #[test]
    fn the_shards_of_a_dead_node_are_spread() {
        let shards: Vec<_> = (0..9)
            .zip([0_u8, 1, 2].repeat(3))
            .map(|(number, at)| {
                let node = Some(format!("node-{at}"));
                PlacedShard {
                    number,
                    node,
                    moved: None,
                    is_moving: false,
                }
            })
            .collect();
        let nodes = [node(1, false, OLD), node(2, false, OLD)];
        let mut after = shards.clone();
        apply(&mut after, &place(&shards, &nodes));
        let mut found = loads(&after, &nodes);
        found.sort_unstable();
        assert_eq!(found, [4, 5]);
    }

    #[test]
    fn ranks_are_the_same_in_all_versions() {
        assert_eq!(rank("node-1", 1), 0x298a_9e75_f011_0eec);
        let first: Vec<_> = (0..8)
            .map(|shard| rank("a", shard) > rank("b", shard))
            .collect();
        assert!(first.contains(&true) && first.contains(&false), "{first:?}");
    }
}

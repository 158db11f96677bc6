//! The database of the model: the control tables, the shards' own tables, and the statements on them.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_types::ShardId;

use super::super::judge::{Judgement, NodeRow, PlaceRow, Table};
use super::{LEASE, Planted};
use crate::formats::Formats;

/// The row of a node in the control tables.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) incarnation: u64,
    pub(super) beat: i64,
    pub(super) since: u64,
    pub(super) at: u64,
    pub(super) is_draining: bool,
}

/// The row of a shard there. The holder is a node and its incarnation.
#[derive(Clone, Default)]
pub(super) struct Place {
    pub(super) node: Option<usize>,
    pub(super) holder: Option<(usize, u64)>,
    pub(super) moved_at: Option<u64>,
}

/// A shard's own tables: its fence, and the number of its commits.
#[derive(Clone, Copy, Default)]
pub(super) struct Fence {
    pub(super) epoch: u64,
    pub(super) commits: u64,
    /// Commits that were acknowledged to somebody.
    pub(super) acknowledged: u64,
}

/// The database of the model: what is committed there.
pub(super) struct Tables {
    pub(super) version: i64,
    pub(super) rows: BTreeMap<usize, Row>,
    pub(super) places: BTreeMap<u32, Place>,
    pub(super) fences: BTreeMap<u32, Fence>,
}

pub(super) fn name_of(node: usize) -> String {
    format!("node-{node}")
}

pub(super) fn node_of(name: &str) -> Option<usize> {
    name.strip_prefix("node-")?.parse().ok()
}

/// Returns the node that a shard is placed on.
pub(super) fn placed_on(table: &Table, shard: u32) -> Option<usize> {
    let mut places = table.places.iter();
    node_of(&places.find(|place| place.number == shard)?.node)
}

pub(super) fn incarnation(node: usize, number: u64) -> String {
    format!("{node}.{number}")
}

impl Tables {
    pub(super) fn look(&self, now: u64) -> Table {
        let elapsed = |since: u64| Duration::from_micros(now.saturating_sub(since));
        let nodes = self.rows.iter().map(|(node, row)| NodeRow {
            name: name_of(*node),
            incarnation: incarnation(*node, row.incarnation),
            address: String::new(),
            version: String::new(),
            formats: Formats::OWN,
            beat: row.beat,
            lease: LEASE,
            is_draining: row.is_draining,
            age: elapsed(row.since),
            silent_for: elapsed(row.at),
        });
        let places = self.places.iter().map(|(number, place)| PlaceRow {
            number: *number,
            id: ShardId::default(),
            node: place.node.map(name_of).unwrap_or_default(),
            holder: place
                .holder
                .map(|(node, _)| name_of(node))
                .unwrap_or_default(),
            incarnation: place
                .holder
                .map(|(node, number)| incarnation(node, number))
                .unwrap_or_default(),
            is_new: false,
            moved: place.moved_at.map(elapsed),
        });
        Table {
            version: self.version,
            format: 1,
            nodes: nodes.collect(),
            places: places.collect(),
        }
    }

    /// As the statement `store`.
    pub(super) fn store(
        &mut self,
        now: u64,
        version: i64,
        judgement: &Judgement,
        planted: Planted,
    ) {
        let is_as_seen = judgement.dead.iter().all(|(name, process, beat)| {
            let node = node_of(name).expect("a node");
            let row = self.rows.get(&node);
            row.is_some_and(|row| {
                incarnation(node, row.incarnation) == *process
                    && (row.beat == *beat || planted == Planted::ForgetsTheBeat)
            })
        });
        if version != self.version || !is_as_seen {
            return;
        }
        self.version += 1;
        for change in &judgement.changes {
            let place = self.places.get_mut(&change.shard).expect("a shard");
            place.node = node_of(&change.node);
            let holder = place.holder.map(|(node, number)| incarnation(node, number));
            if change.freed.is_some() && holder == change.freed {
                place.holder = None;
            }
            if change.is_planned {
                place.moved_at = Some(now);
            }
        }
    }
}

/// A statement on its way.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    Raise,
    Look,
    Store(i64, Box<Judgement>),
    Hold(u32, Option<usize>),
    /// Releases a shard, for another node if there is one.
    Release(u32, Option<usize>),
    Claim(u32),
    /// With the epoch of its process.
    Commit(u32, u64),
}

#[derive(Clone, Debug)]
pub(super) enum Answer {
    Done,
    /// The node holds the shard.
    Held,
    Table(Box<Table>),
    /// The epoch, and the commits that were there.
    Claimed(u64, u64),
    Committed(u64),
    Fenced,
    NameTaken,
    /// The connection has ended: it may have been executed.
    Lost,
}

//! Makes the shape of a graph from its members and edges.

use std::collections::HashMap;

use ganger_types::{JobId, JobKey, JobName, Kind, ShardId, Timestamp};

use crate::edges::{Adjacency, Edge};
use crate::groups::Groups;
use crate::index::MemberIndex;
use crate::shape::{Member, MemberId, Shape};
use crate::{BOXES_MAX, LINES_MAX};

/// Collects the members and edges of a graph.
#[derive(Debug, Default)]
pub struct ShapeBuilder {
    members: Vec<Member>,
    edges: Vec<Edge>,
    shards: Vec<ShardId>,
    kinds: Vec<Kind>,
    kind_places: HashMap<Kind, u32>,
    submitted_at: Option<Timestamp>,
    edges_outside: u64,
}

impl ShapeBuilder {
    /// Adds a shard, whose members follow in the order of their numbers.
    ///
    /// # Panics
    /// Beyond 65,536 shards.
    pub fn shard(&mut self, shard: ShardId) {
        assert!(u16::try_from(self.shards.len()).is_ok(), "too many shards");
        self.shards.push(shard);
    }

    /// Adds a member of the last shard.
    ///
    /// # Panics
    /// Before the first shard.
    pub fn member(
        &mut self,
        key: JobKey,
        id: &JobId,
        name: Option<JobName>,
        kind: &Kind,
        created_at: Timestamp,
    ) -> MemberIndex {
        let shard = self.shards.len().checked_sub(1).expect("there is a shard");
        let kind = match self.kind_places.get(kind) {
            Some(place) => *place,
            None => {
                let place = u32::try_from(self.kinds.len()).expect("fewer kinds than members");
                self.kinds.push(kind.clone());
                self.kind_places.insert(kind.clone(), place);
                place
            }
        };
        let id = match id.parts() {
            Some((number, tag)) if number == key => MemberId::Made(tag),
            _ => MemberId::Given(id.clone()),
        };
        let submitted_at = self.submitted_at.get_or_insert(created_at);
        *submitted_at = (*submitted_at).min(created_at);
        self.members.push(Member {
            key,
            id,
            name,
            shard: u16::try_from(shard).expect("shards were counted"),
            kind,
        });
        MemberIndex::new(self.members.len() - 1)
    }

    /// Number of members so far.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Number of edges so far, those outside not counted.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Adds an edge between two members.
    pub fn edge(&mut self, edge: Edge) {
        self.edges.push(edge);
    }

    /// Counts an edge whose dependency is no member, or was removed.
    pub fn edge_outside(&mut self) {
        self.edges_outside += 1;
    }

    /// Finishes the shape: sorts the edges, finds the levels and the groups.
    pub fn build(mut self) -> Shape {
        let members = self.members.len();
        self.edges.retain(|edge| edge.from != edge.to);
        let forward = Adjacency::new(members, &mut self.edges, |edge| (edge.from, edge.to));
        let backward = Adjacency::new(members, &mut self.edges, |edge| (edge.to, edge.from));
        let levels = levels(&forward, &backward, members);
        let mut shape = Shape {
            level_count: levels.iter().max().map_or(0, |last| last + 1),
            order: by_level(&levels),
            members: self.members,
            shards: self.shards,
            kinds: self.kinds,
            forward,
            backward,
            levels,
            submitted_at: self.submitted_at,
            edges_outside: self.edges_outside,
            groups: Groups::default(),
        };
        shape.groups = Groups::new(&shape, BOXES_MAX, LINES_MAX);
        shape
    }
}

/// The longest path to each member, in time linear in members and edges. Members on a circle, which the engine never
/// accepts, get level 0.
fn levels(forward: &Adjacency, backward: &Adjacency, members: usize) -> Vec<u32> {
    let mut levels = vec![0_u32; members];
    let mut missing: Vec<usize> = (0..members)
        .map(|at| backward.of(MemberIndex::new(at)).len())
        .collect();
    let mut next: Vec<MemberIndex> = (0..members)
        .filter(|at| missing[*at] == 0)
        .map(MemberIndex::new)
        .collect();
    while let Some(member) = next.pop() {
        let level = levels[member.at()] + 1;
        for dependent in forward.of(member) {
            let at = dependent.at();
            levels[at] = levels[at].max(level);
            missing[at] -= 1;
            if missing[at] == 0 {
                next.push(*dependent);
            }
        }
    }
    for (level, missing) in levels.iter_mut().zip(&missing) {
        if *missing > 0 {
            *level = 0;
        }
    }
    levels
}

/// All members, those of lower levels first.
fn by_level(levels: &[u32]) -> Vec<MemberIndex> {
    let mut order: Vec<MemberIndex> = (0..levels.len()).map(MemberIndex::new).collect();
    order.sort_by_key(|member| levels[member.at()]);
    order
}

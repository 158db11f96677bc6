//! The members of a graph and how they depend on each other; states come from elsewhere, as they change all the time.

use std::collections::HashMap;

use ganger_types::{IdTag, JobId, JobKey, JobName, JobRef, JobState, Kind, ShardId, Timestamp};

use crate::counts::Counts;
use crate::edges::Adjacency;
use crate::groups::Groups;
use crate::index::MemberIndex;

/// A job of the graph, without its state.
#[derive(Clone, Debug)]
pub struct Member {
    /// Number of the job in its shard.
    pub key: JobKey,
    pub(crate) id: MemberId,
    /// Name that the submission gave the job; `None`: none.
    pub name: Option<JobName>,
    /// Place of the shard in [`Shape::shards`].
    pub(crate) shard: u16,
    /// Place of the kind in [`Shape::kinds`].
    pub(crate) kind: u32,
}

/// The id of a member: ids that the engine made are not kept, as their numbers are.
#[derive(Clone, Debug)]
pub(crate) enum MemberId {
    Made(IdTag),
    Given(JobId),
}

impl Member {
    /// Id of the job.
    pub fn id(&self) -> JobId {
        match &self.id {
            MemberId::Made(tag) => JobId::made(self.key, *tag),
            MemberId::Given(id) => id.clone(),
        }
    }
}

/// The members of a graph on all its shards, and the edges between them.
#[derive(Debug)]
pub struct Shape {
    pub(crate) members: Vec<Member>,
    pub(crate) shards: Vec<ShardId>,
    pub(crate) kinds: Vec<Kind>,
    /// From dependencies to dependents.
    pub(crate) forward: Adjacency,
    /// From dependents to dependencies.
    pub(crate) backward: Adjacency,
    /// Longest path from a member without dependencies, in edges.
    pub(crate) levels: Vec<u32>,
    pub(crate) level_count: u32,
    /// All members, dependencies before their dependents.
    pub(crate) order: Vec<MemberIndex>,
    /// Time at which the first member was enqueued; `None` without members.
    pub(crate) submitted_at: Option<Timestamp>,
    /// Number of edges that lead to jobs outside the graph or to jobs that were removed.
    pub(crate) edges_outside: u64,
    /// Groups of the drawing in which nothing is open.
    pub(crate) groups: Groups,
}

/// The members of one level and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelRow {
    /// Number of the level, from 0.
    pub level: u32,
    /// Place of the kind in [`Shape::kinds`].
    pub kind: usize,
    /// Number of these members in each state.
    pub counts: Counts,
}

impl Shape {
    /// The members, in the order of their shards and numbers.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The member at a place.
    pub fn member(&self, index: MemberIndex) -> &Member {
        &self.members[index.at()]
    }

    /// The member as `shard/id`.
    pub fn reference(&self, index: MemberIndex) -> JobRef {
        let member = self.member(index);
        JobRef {
            shard: self.shards[usize::from(member.shard)].clone(),
            id: member.id(),
        }
    }

    /// The place of a job; `None` if it is no member.
    pub fn find(&self, job: &JobRef) -> Option<MemberIndex> {
        let shard = self.shards.iter().position(|shard| *shard == job.shard)?;
        let is_it = |member: &Member| usize::from(member.shard) == shard && member.id() == job.id;
        // Members of a shard are in the order of their numbers, and most ids tell the number.
        if let Some((key, _)) = job.id.parts() {
            let found = self
                .members
                .binary_search_by_key(&(shard, key), |it| (usize::from(it.shard), it.key));
            if let Ok(at) = found
                && is_it(&self.members[at])
            {
                return Some(MemberIndex::new(at));
            }
        }
        self.members.iter().position(is_it).map(MemberIndex::new)
    }

    /// Kind of a member.
    pub fn kind(&self, index: MemberIndex) -> &Kind {
        &self.kinds[self.kind_index(index)]
    }

    pub(crate) fn kind_index(&self, index: MemberIndex) -> usize {
        usize::try_from(self.member(index).kind).expect("32 bits fit")
    }

    /// All kinds of the members.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The shards that have members, as far as they answered.
    pub fn shards(&self) -> &[ShardId] {
        &self.shards
    }

    /// Place of a member's shard in [`Shape::shards`].
    pub fn shard_of(&self, index: MemberIndex) -> usize {
        usize::from(self.member(index).shard)
    }

    /// Level of a member: the longest path to it, in edges.
    pub fn level(&self, index: MemberIndex) -> u32 {
        self.levels[index.at()]
    }

    /// Number of levels; 0 without members.
    pub fn levels(&self) -> u32 {
        self.level_count
    }

    /// Number of edges between members; several inputs from one job count once.
    pub fn edges(&self) -> usize {
        self.forward.len()
    }

    /// Number of edges that lead to jobs outside the graph, or to jobs that were removed.
    pub fn edges_outside(&self) -> u64 {
        self.edges_outside
    }

    /// Time at which the first kept member was enqueued; `None` without members.
    pub fn submitted_at(&self) -> Option<Timestamp> {
        self.submitted_at
    }

    /// All places, in order.
    pub fn indexes(&self) -> impl Iterator<Item = MemberIndex> + use<> {
        (0..u32::try_from(self.members.len()).unwrap_or(u32::MAX)).map(MemberIndex)
    }

    /// Rows of a table: level, kind, and the members by state, in order of levels and kinds.
    pub fn level_rows(&self, states: &[JobState]) -> Vec<LevelRow> {
        let mut rows: HashMap<(u32, usize), Counts> = HashMap::new();
        for index in self.indexes() {
            let row = (self.level(index), self.kind_index(index));
            rows.entry(row).or_default().add(states[index.at()]);
        }
        let mut rows: Vec<LevelRow> = rows
            .into_iter()
            .map(|((level, kind), counts)| LevelRow {
                level,
                kind,
                counts,
            })
            .collect();
        rows.sort_by(|a, b| (a.level, &self.kinds[a.kind]).cmp(&(b.level, &self.kinds[b.kind])));
        rows
    }
}

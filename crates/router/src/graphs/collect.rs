//! Collects the members and edges of a graph from its shards, page by page.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use ganger_graphs::{Edge, MemberIndex, Shape, ShapeBuilder};
use ganger_shard::graph::{Dependency, GraphEdge, GraphMember, GraphQuery};
use ganger_types::{Graph, JobId, JobKey, JobRef, JobState, Namespace, ShardId, Timestamp};

use super::{Graphs, MEMBERS_MAX};
use crate::RouteError;

/// Members and edges that are read at a time: a few milliseconds of a reading thread.
const PAGE_ROWS: usize = 2_000;
/// Members whose states are read at a time.
const STATES_PAGE: usize = 5_000;
/// Edges that are kept; a graph with more is shown without the others.
const EDGES_MAX: usize = 20_000_000;

/// A graph as it was read.
pub(super) struct Collected {
    pub(super) shape: Shape,
    pub(super) states: States,
    /// Shards that did not answer.
    pub(super) unreachable: Vec<ShardId>,
    /// Whether there are more members or edges than were read.
    pub(super) is_cut: bool,
}

/// The states of all members, in the order of the shape.
#[derive(Clone, Debug, Default)]
pub(super) struct States {
    pub(super) states: Vec<JobState>,
    /// Time at which the last of the members that have ended did so.
    pub(super) ended_at: Option<Timestamp>,
}

impl States {
    fn add(&mut self, state: JobState, ended_at: Option<Timestamp>) {
        self.states.push(state);
        self.ended_at = self.ended_at.max(ended_at);
    }
}

/// What is known while pages come in.
#[derive(Default)]
struct Collecting {
    builder: ShapeBuilder,
    states: States,
    /// Numbers of the members of each shard, in order, and the place of the first of them.
    numbers: Vec<(usize, Vec<JobKey>)>,
    /// Members whose ids do not tell their number, by shard and id.
    ids: HashMap<(usize, JobId), MemberIndex>,
    shards: Vec<ShardId>,
    /// Edges, each with the shard of its dependent, until all members are known.
    edges: Vec<(usize, GraphEdge)>,
    is_cut: bool,
}

impl Graphs {
    /// Reads a graph on all shards that are known, and on those that its edges name.
    pub(super) async fn collect(
        &self,
        namespace: &Namespace,
        graph: &Graph,
        progress: &AtomicU64,
    ) -> Result<Collected, RouteError> {
        progress.store(0, Ordering::Relaxed);
        let mut all = Collecting::default();
        let mut unreachable = Vec::new();
        let mut first = None;
        let mut waiting: BTreeSet<ShardId> = self.known().into_iter().collect();
        let mut seen = waiting.clone();
        while let Some(shard) = waiting.pop_first() {
            let edges = all.edges.len();
            match self
                .collect_shard(&shard, (namespace, graph), &mut all, progress)
                .await
            {
                Ok(()) => {}
                Err(error) if error.is_absence() => {
                    first.get_or_insert(error);
                    unreachable.push(shard);
                }
                Err(error) => return Err(error),
            }
            let named = all.edges[edges..]
                .iter()
                .filter_map(|(_, edge)| match &edge.from {
                    Dependency::Elsewhere(job) => Some(&job.shard),
                    Dependency::Here(_) | Dependency::Ignored(_) => None,
                });
            let new: BTreeSet<ShardId> = named.filter(|it| !seen.contains(*it)).cloned().collect();
            seen.extend(new.iter().cloned());
            waiting.extend(new);
        }
        if let Some(error) = first.filter(|_| all.builder.is_empty()) {
            return Err(error);
        }
        let is_cut = all.is_cut;
        let finish = tokio::task::spawn_blocking(move || all.finish());
        let (shape, states) = finish.await.map_err(|error| RouteError::Unreachable {
            shard: self.home(),
            reason: error.to_string(),
        })?;
        Ok(Collected {
            shape,
            states,
            unreachable,
            is_cut,
        })
    }

    async fn collect_shard(
        &self,
        shard: &ShardId,
        (namespace, graph): (&Namespace, &Graph),
        all: &mut Collecting,
        progress: &AtomicU64,
    ) -> Result<(), RouteError> {
        let client = self.client(shard)?;
        let mut query = GraphQuery {
            namespace: namespace.clone(),
            graph: graph.clone(),
            after: None,
            limit: PAGE_ROWS,
        };
        let mut page = client.graph_page(query.clone()).await?;
        loop {
            query.after = page.next;
            // The next page is read while this one is added.
            let add = async { all.add(shard, page.members, page.edges) };
            if query.after.is_none() {
                add.await;
                progress.store(all.members(), Ordering::Relaxed);
                return Ok(());
            }
            let next = client.graph_page(query.clone());
            let (next, ()) = futures::future::join(next, add).await;
            progress.store(all.members(), Ordering::Relaxed);
            all.is_cut |= all.builder.len() >= MEMBERS_MAX || all.edges.len() >= EDGES_MAX;
            if all.is_cut {
                return Ok(());
            }
            page = next?;
        }
    }

    /// Reads the states of all members; `None` if the members are no longer those of the shape.
    pub(super) async fn collect_states(
        &self,
        namespace: &Namespace,
        graph: &Graph,
        shape: &Shape,
    ) -> Result<Option<States>, RouteError> {
        let mut states = States::default();
        let mut members = shape.indexes();
        for (place, shard) in shape.shards().iter().enumerate() {
            let client = self.client(shard)?;
            let mut after = None;
            loop {
                let page = client
                    .graph_states((namespace, graph), after, STATES_PAGE)
                    .await?;
                for found in &page {
                    let expected = members.next();
                    let is_it = expected.is_some_and(|it| {
                        shape.shard_of(it) == place && shape.member(it).key == found.key
                    });
                    if !is_it {
                        return Ok(None);
                    }
                    states.add(found.state, found.ended_at);
                }
                match page.last() {
                    Some(last) => after = Some(last.key),
                    None => break,
                }
            }
        }
        Ok(members.next().is_none().then_some(states))
    }
}

impl Collecting {
    /// Number of members so far.
    fn members(&self) -> u64 {
        u64::try_from(self.builder.len()).unwrap_or(u64::MAX)
    }

    /// Adds a page of a shard.
    fn add(&mut self, shard: &ShardId, members: Vec<GraphMember>, edges: Vec<GraphEdge>) {
        for member in members {
            self.member(shard, member);
        }
        let place = self.shards.len().saturating_sub(1);
        self.edges
            .extend(edges.into_iter().map(|edge| (place, edge)));
    }

    fn member(&mut self, shard: &ShardId, member: GraphMember) {
        if self.shards.last() != Some(shard) {
            self.shards.push(shard.clone());
            self.numbers.push((self.builder.len(), Vec::new()));
            self.builder.shard(shard.clone());
        }
        let place = self.shards.len() - 1;
        let index = self.builder.member(
            member.key,
            &member.id,
            member.name,
            &member.kind,
            member.created_at,
        );
        self.states.add(member.state, member.ended_at);
        self.numbers[place].1.push(member.key);
        if member.id.parts().is_none_or(|(key, _)| key != member.key) {
            self.ids.insert((place, member.id), index);
        }
    }

    fn finish(mut self) -> (Shape, States) {
        let places: BTreeMap<ShardId, usize> = self.shards.iter().cloned().zip(0..).collect();
        for (place, edge) in std::mem::take(&mut self.edges) {
            let to = self.numbered(place, edge.to);
            let from = match &edge.from {
                Dependency::Here(key) => self.numbered(place, *key),
                Dependency::Elsewhere(job) => self.by_reference(&places, job),
                Dependency::Ignored(id) => self.by_id(place, id),
            };
            match (from, to) {
                (Some(from), Some(to)) => self.builder.edge(Edge {
                    from,
                    to,
                    carries_data: edge.carries_data,
                    policy: edge.policy.into(),
                }),
                _ => self.builder.edge_outside(),
            }
        }
        drop((self.numbers, self.ids));
        (self.builder.build(), self.states)
    }

    /// The member of a shard with a number. Most graphs have numbers without gaps, so that the place follows from the
    /// first one.
    fn numbered(&self, place: usize, key: JobKey) -> Option<MemberIndex> {
        let (base, keys) = self.numbers.get(place)?;
        let first = keys.first()?;
        let guess = usize::try_from(key.0.checked_sub(first.0)?).ok()?;
        let at = match keys.get(guess) {
            Some(found) if *found == key => guess,
            _ => keys.binary_search(&key).ok()?,
        };
        u32::try_from(base + at).ok().map(MemberIndex)
    }

    fn by_reference(&self, places: &BTreeMap<ShardId, usize>, job: &JobRef) -> Option<MemberIndex> {
        self.on_shard(*places.get(&job.shard)?, &job.id)
    }

    fn on_shard(&self, place: usize, id: &JobId) -> Option<MemberIndex> {
        let given = self.ids.get(&(place, id.clone()));
        let made = || self.numbered(place, id.parts()?.0);
        given.copied().or_else(made)
    }

    /// The member with an id whose shard is not kept: most likely on the shard of its dependent.
    fn by_id(&self, near: usize, id: &JobId) -> Option<MemberIndex> {
        let others = (0..self.shards.len()).filter(|place| *place != near);
        let mut places = std::iter::once(near).chain(others);
        places.find_map(|place| self.on_shard(place, id))
    }
}

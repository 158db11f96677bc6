//! The list of graphs over all shards, the newest first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::future::join_all;
use ganger_graphs::Counts;
use ganger_shard::GraphTotals;
use ganger_types::{Graph, Namespace, ShardId, Timestamp};

use super::{Graphs, SHARE};
use crate::RouteError;

/// Names that are read at a time.
const NAMES_PAGE: usize = 2_000;
/// Names that are read of one shard; older graphs are not listed.
const NAMES_MAX: usize = 50_000;
/// Lists are read again for each question until they are as long.
const SMALL: usize = 2_000;
/// Namespaces whose lists are kept.
const KEPT_MAX: usize = 16;
/// Jobs of one page whose states are looked at; further graphs are listed without counts.
const STATES_MAX: usize = 20_000;

/// A page of the list of graphs.
#[derive(Clone, Debug, Default)]
pub struct GraphRows {
    /// The graphs of the page, the newest first.
    pub rows: Vec<GraphRow>,
    /// Where the next page begins; `None`: this is the last.
    pub next: Option<(Timestamp, Graph)>,
    /// Shards that did not answer, whose graphs and jobs are missing.
    pub unreachable: Vec<ShardId>,
    /// Whether there are more graphs than the list has.
    pub is_cut: bool,
}

/// A graph in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GraphRow {
    /// Name of the graph.
    pub graph: Graph,
    /// Time at which its first kept job was enqueued.
    pub submitted_at: Timestamp,
    /// Number of kept jobs.
    pub jobs: u64,
    /// Jobs by state; `None` if there are too many to look at for a list.
    pub counts: Option<Counts>,
    /// Time at which the last of the jobs that have ended did so; `None` if none has, or without counts.
    pub ended_at: Option<Timestamp>,
    /// Shards that have jobs of the graph.
    pub shards: Vec<ShardId>,
}

/// The names of a namespace's graphs, the newest first.
#[derive(Clone, Debug, Default)]
struct Names {
    graphs: Arc<[(Timestamp, Graph)]>,
    shards: Arc<BTreeMap<Graph, BTreeSet<ShardId>>>,
    unreachable: Vec<ShardId>,
    is_cut: bool,
}

/// Long lists, so that a page needs not read all names again.
#[derive(Default)]
pub(super) struct Lists(Mutex<Vec<Kept>>);

struct Kept {
    namespace: Namespace,
    names: Names,
    read_at: Instant,
    took: Duration,
}

impl Graphs {
    /// Lists graphs, the newest first, after the last one of the page before.
    ///
    /// # Errors
    /// If no shard answers.
    pub async fn list(
        &self,
        namespace: &Namespace,
        after: Option<&(Timestamp, Graph)>,
        limit: usize,
    ) -> Result<GraphRows, RouteError> {
        let names = self.names(namespace).await?;
        let place = |(at, graph): &(Timestamp, Graph)| (std::cmp::Reverse(*at), graph.clone());
        let from = after.map_or(0, |after| {
            names.graphs.partition_point(|it| place(it) <= place(after))
        });
        let rest = &names.graphs[from..];
        let page = &rest[..limit.min(rest.len())];
        let mut rows: Vec<GraphRow> = page
            .iter()
            .map(|(submitted_at, graph)| GraphRow {
                graph: graph.clone(),
                submitted_at: *submitted_at,
                jobs: 0,
                counts: Some(Counts::default()),
                ended_at: None,
                shards: names
                    .shards
                    .get(graph)
                    .into_iter()
                    .flatten()
                    .cloned()
                    .collect(),
            })
            .collect();
        let mut unreachable = names.unreachable.clone();
        self.count(namespace, &mut rows, &mut unreachable).await?;
        // What was removed since the names were read is no graph any more.
        rows.retain(|row| row.jobs > 0 || !unreachable.is_empty());
        Ok(GraphRows {
            next: page.last().filter(|_| rest.len() > limit).cloned(),
            rows,
            unreachable,
            is_cut: names.is_cut,
        })
    }

    /// Adds the jobs of each shard to the rows.
    async fn count(
        &self,
        namespace: &Namespace,
        rows: &mut [GraphRow],
        unreachable: &mut Vec<ShardId>,
    ) -> Result<(), RouteError> {
        let mut by_shard: BTreeMap<ShardId, Vec<usize>> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            for shard in &row.shards {
                by_shard.entry(shard.clone()).or_default().push(place);
            }
        }
        let asked = by_shard.iter().map(|(shard, places)| {
            let graphs: Vec<Graph> = places.iter().map(|at| rows[*at].graph.clone()).collect();
            async move {
                let client = self.client(shard)?;
                client.graph_totals(namespace, &graphs, STATES_MAX).await
            }
        });
        let found = join_all(asked).await;
        for ((shard, places), found) in by_shard.iter().zip(found) {
            match found {
                Ok(totals) => {
                    for (place, totals) in places.iter().zip(totals) {
                        rows[*place].add(totals);
                    }
                }
                Err(error) if error.is_absence() => {
                    for place in places {
                        rows[*place].counts = None;
                    }
                    if !unreachable.contains(shard) {
                        unreachable.push(shard.clone());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn names(&self, namespace: &Namespace) -> Result<Names, RouteError> {
        if let Some(names) = self.cache.lists.fresh(namespace) {
            return Ok(names);
        }
        let began = Instant::now();
        let shards = self.known();
        let asked = shards.iter().map(|shard| self.names_of(namespace, shard));
        let mut names = Names::default();
        let mut graphs: BTreeMap<Graph, Timestamp> = BTreeMap::new();
        let mut places: BTreeMap<Graph, BTreeSet<ShardId>> = BTreeMap::new();
        let mut first = None;
        for (shard, found) in shards.iter().zip(join_all(asked).await) {
            match found {
                Ok((found, is_cut)) => {
                    names.is_cut |= is_cut;
                    for (graph, submitted_at) in found {
                        places
                            .entry(graph.clone())
                            .or_default()
                            .insert(shard.clone());
                        let at = graphs.entry(graph).or_insert(submitted_at);
                        *at = (*at).min(submitted_at);
                    }
                }
                Err(error) if error.is_absence() => {
                    first.get_or_insert(error);
                    names.unreachable.push(shard.clone());
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = first.filter(|_| names.unreachable.len() == shards.len()) {
            return Err(error);
        }
        let mut sorted: Vec<(Timestamp, Graph)> =
            graphs.into_iter().map(|(graph, at)| (at, graph)).collect();
        sorted.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        names.graphs = sorted.into();
        names.shards = Arc::new(places);
        self.cache.lists.keep(namespace, &names, began);
        Ok(names)
    }

    /// The names of a shard, and whether there are more.
    async fn names_of(
        &self,
        namespace: &Namespace,
        shard: &ShardId,
    ) -> Result<(Vec<(Graph, Timestamp)>, bool), RouteError> {
        let client = self.client(shard)?;
        let mut found = Vec::new();
        let mut before = None;
        loop {
            let page = client.graph_names(namespace, before, NAMES_PAGE).await?;
            let is_last = page.len() < NAMES_PAGE;
            before = page.last().map(|entry| entry.graph.clone());
            found.extend(
                page.into_iter()
                    .map(|entry| (entry.graph, entry.submitted_at)),
            );
            if is_last || found.len() >= NAMES_MAX {
                return Ok((found, !is_last));
            }
        }
    }
}

impl GraphRow {
    fn add(&mut self, totals: GraphTotals) {
        self.jobs += totals.jobs;
        let Some(states) = totals.states else {
            self.counts = None;
            self.ended_at = None;
            return;
        };
        if let Some(counts) = &mut self.counts {
            for member in &states {
                counts.add(member.state);
                self.ended_at = self.ended_at.max(member.ended_at);
            }
        }
    }
}

impl Lists {
    /// The list of a namespace, if it is long and was read a short time ago.
    fn fresh(&self, namespace: &Namespace) -> Option<Names> {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = lists.iter().find(|kept| kept.namespace == *namespace)?;
        (kept.read_at.elapsed() <= kept.took * SHARE).then(|| kept.names.clone())
    }

    fn keep(&self, namespace: &Namespace, names: &Names, began: Instant) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|kept| kept.namespace != *namespace);
        if names.graphs.len() <= SMALL {
            return;
        }
        if lists.len() >= KEPT_MAX {
            lists.remove(0);
        }
        lists.push(Kept {
            namespace: namespace.clone(),
            names: names.clone(),
            read_at: Instant::now(),
            took: began.elapsed(),
        });
    }
}

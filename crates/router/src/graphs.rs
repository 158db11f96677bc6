//! Graphs over all their shards: what they look like, how far they are, and which there are.
//!
//! Small graphs are read for each question. Of large ones the shape is kept, as far as memory allows, and only the
//! states are read again; the first caller waits a little and then gets the number of jobs read so far.

mod collect;
mod documents;
mod list;
mod remote;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ganger_document::view::graphs::{GraphLayout, GraphSummary};
use ganger_graphs::{Counts, Drawing, LevelRow, Selection, Shape};
use ganger_shard::Handle;
use ganger_types::{Graph, JobState, Namespace, ShardId, Timestamp};

use crate::reach::ShardClient;
use crate::{RouteError, Router};
use collect::{Collected, States};
pub use documents::{
    BOXES_MAX, BOXES_MIN, DEPTH_MAX, LayoutRequest, OPEN_MAX, position_text, read_position,
};
pub use list::{GraphRow, GraphRows};
pub(crate) use remote::{serve_names, serve_page, serve_states, serve_totals};

/// Members of a graph that is read again for each question.
const SMALL: usize = 1_000;
/// Graphs whose shapes are kept.
const KEPT_MAX: usize = 64;
/// Members of all graphs whose shapes are kept.
const KEPT_MEMBERS_MAX: usize = 2_000_000;
/// Members that are read; a graph with more is shown without the others.
const MEMBERS_MAX: usize = 2_000_000;
/// Reading takes at most this part of the time.
const SHARE: u32 = 10;
/// A shape is read again after this time, as jobs and dependencies may have been added or removed.
const SHAPE_FOR: Duration = Duration::from_secs(10);

/// Reads graphs. Cheap to clone.
#[derive(Clone)]
pub struct Graphs {
    source: Source,
    cache: Arc<Cache>,
}

/// Where the shards are.
#[derive(Clone)]
enum Source {
    Router(Router),
    Here(Arc<[Handle]>),
}

/// The graphs whose shapes are kept, the one asked for last at the end, and lists of names.
#[derive(Default)]
pub(crate) struct Cache {
    entries: Mutex<VecDeque<Arc<Entry>>>,
    lists: list::Lists,
}

/// What is kept of a graph.
struct Entry {
    namespace: Namespace,
    graph: Graph,
    /// Members read so far, while the graph is read.
    progress: AtomicU64,
    /// Held by the task that reads the graph.
    reading: Arc<tokio::sync::Mutex<()>>,
    kept: Mutex<Option<GraphState>>,
}

/// A graph as it was at some time.
#[derive(Clone)]
pub struct GraphState {
    /// Members and edges, as they were read.
    pub shape: Arc<Shape>,
    /// The states of the members, in their order.
    pub states: Arc<[JobState]>,
    /// Number of members in each state.
    pub counts: Counts,
    /// Time at which the last of the members that have ended did so.
    pub ended_at: Option<Timestamp>,
    /// Shards that did not answer, whose members and edges are missing.
    pub unreachable: Vec<ShardId>,
    /// Whether there are more members or edges than were read.
    pub is_cut: bool,
    /// The drawing in which nothing is open.
    drawing: Arc<Drawing>,
    /// Documents of these states that were made already.
    made: Arc<Made>,
    shape_read_at: Instant,
    shape_took: Duration,
    /// Time at which the reading of the states began: what happened later may be missing.
    states_read_at: Instant,
    states_took: Duration,
}

/// Documents of a graph at some time. Each takes time linear in the size of the graph and is made for the first reader,
/// once until the states are read again.
#[derive(Default)]
struct Made {
    summary: OnceLock<GraphSummary>,
    layout: OnceLock<GraphLayout>,
    level_rows: OnceLock<Vec<LevelRow>>,
}

/// Why a graph is not shown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// No shard has a job of the graph.
    #[error("graph {graph} not found: never submitted, or the retention of its jobs has passed")]
    NotFound {
        /// Name of the graph.
        graph: String,
    },
    /// The graph is large and is read in the background.
    #[error("the graph is being read: {jobs} jobs so far; try again in a second")]
    Computing {
        /// Number of jobs read so far.
        jobs: u64,
    },
    /// The job in focus is no member.
    #[error("job {job} is not in the graph: focus on one of its jobs")]
    NoMember {
        /// The job as `shard/id`.
        job: String,
    },
    /// A shard did not answer.
    #[error(transparent)]
    Route(#[from] RouteError),
}

impl Router {
    /// Returns the reader of graphs on all shards.
    pub fn graphs(&self) -> Graphs {
        Graphs {
            source: Source::Router(self.clone()),
            cache: Arc::clone(&self.0.graphs),
        }
    }
}

impl GraphState {
    /// Makes the drawing of a selection.
    pub fn draw(&self, selection: &Selection) -> Arc<Drawing> {
        if is_default(selection) {
            return Arc::clone(&self.drawing);
        }
        Arc::new(Drawing::new(&self.shape, selection, &self.states))
    }

    /// Rows of a table: level, kind, and the members by state, in order of levels and kinds.
    pub fn level_rows(&self) -> &[LevelRow] {
        let rows = || self.shape.level_rows(&self.states);
        self.made.level_rows.get_or_init(rows)
    }

    /// Whether reading only the states would be soon enough for another question.
    fn needs_states(&self) -> bool {
        self.states_read_at.elapsed() > self.states_took * SHARE
    }

    fn is_small(&self) -> bool {
        self.shape.members().len() <= SMALL
    }

    fn needs_shape(&self) -> bool {
        self.is_small()
            || self.shape_read_at.elapsed() > SHAPE_FOR.max(self.shape_took * SHARE)
            || !self.unreachable.is_empty()
    }
}

impl Graphs {
    /// Reads graphs of shards of this process alone.
    ///
    /// # Panics
    /// If the server has no shard.
    pub fn of_shards(shards: &[Handle]) -> Self {
        assert!(!shards.is_empty(), "there is a shard");
        Self {
            source: Source::Here(shards.into()),
            cache: Arc::default(),
        }
    }

    fn known(&self) -> Vec<ShardId> {
        match &self.source {
            Source::Router(router) => router.known(),
            Source::Here(shards) => shards.iter().map(|it| it.id().clone()).collect(),
        }
    }

    fn home(&self) -> ShardId {
        match &self.source {
            Source::Router(router) => router.home().clone(),
            Source::Here(shards) => shards[0].id().clone(),
        }
    }

    fn client(&self, shard: &ShardId) -> Result<ShardClient, RouteError> {
        match &self.source {
            Source::Router(router) => router.reach(shard),
            Source::Here(shards) => {
                let mut shards = shards.iter();
                let found = shards.find(|it| it.id() == shard);
                let found = found.cloned().map(ShardClient::Here);
                found.ok_or_else(|| RouteError::Unknown {
                    shard: shard.clone(),
                    known: self.known(),
                })
            }
        }
    }

    /// Returns a graph as it is now; a large one as it was a short time ago.
    ///
    /// # Errors
    /// If no shard has a job of the graph; if the graph is not read within `wait`, which goes on in the background; or
    /// if no shard answers.
    pub async fn read(
        &self,
        namespace: &Namespace,
        graph: &Graph,
        wait: Duration,
    ) -> Result<GraphState, GraphError> {
        let asked_at = Instant::now();
        let entry = self.cache.entry(namespace, graph);
        if let Some(kept) = entry.kept().filter(|kept| !kept.is_small()) {
            let is_old = kept.needs_shape();
            if !is_old && !kept.needs_states() {
                return Ok(kept);
            }
            // A large graph is shown as it was until its shape is there again.
            if is_old && let Ok(reading) = Arc::clone(&entry.reading).try_lock_owned() {
                let (graphs, entry) = (self.clone(), Arc::clone(&entry));
                tokio::spawn(async move {
                    drop(graphs.refresh_shape(&entry).await);
                    drop(reading);
                });
                return Ok(kept);
            }
        }
        let reading = Arc::clone(&entry.reading).lock_owned();
        let (graphs, working) = (self.clone(), Arc::clone(&entry));
        let work = async move {
            let reading = reading.await;
            // A reading that began after the question answers it too.
            if let Some(kept) = working
                .kept()
                .filter(|kept| kept.states_read_at >= asked_at)
            {
                return Ok(kept);
            }
            let found = graphs.refresh(&working).await;
            drop(reading);
            found
        };
        let work = tokio::spawn(work);
        let found = match tokio::time::timeout(wait, work).await {
            Ok(found) => found.unwrap_or_else(|error| {
                Err(RouteError::Unreachable {
                    shard: self.home(),
                    reason: error.to_string(),
                }
                .into())
            }),
            Err(_) => entry.kept().ok_or_else(|| GraphError::Computing {
                jobs: entry.progress.load(Ordering::Relaxed),
            }),
        };
        if matches!(found, Err(GraphError::NotFound { .. })) {
            self.cache.forget(&entry);
        }
        found
    }

    /// Reads the states of a large graph, or all of it.
    async fn refresh(&self, entry: &Entry) -> Result<GraphState, GraphError> {
        if let Some(kept) = entry.kept()
            && !kept.needs_shape()
        {
            let began = Instant::now();
            let states = self.collect_states(&entry.namespace, &entry.graph, &kept.shape);
            if let Some(states) = states.await? {
                return Ok(entry.keep(kept.with_states(states, began)));
            }
        }
        self.refresh_shape(entry).await
    }

    async fn refresh_shape(&self, entry: &Entry) -> Result<GraphState, GraphError> {
        let began = Instant::now();
        let collected = self.collect(&entry.namespace, &entry.graph, &entry.progress);
        let collected = collected.await?;
        if collected.shape.members().is_empty() {
            entry.forget();
            return Err(GraphError::NotFound {
                graph: entry.graph.to_text().into_owned(),
            });
        }
        let state = tokio::task::spawn_blocking(move || GraphState::new(collected, began));
        let state = state.await.map_err(|error| RouteError::Unreachable {
            shard: self.home(),
            reason: error.to_string(),
        })?;
        let state = entry.keep(state);
        self.cache.shrink(entry);
        Ok(state)
    }
}

/// Whether a selection is of the whole graph with nothing open.
fn is_default(selection: &Selection) -> bool {
    let has_all_boxes = matches!(selection.boxes_max, 0 | BOXES_MAX);
    has_all_boxes && selection.open.is_empty() && selection.focus.is_none()
}

impl GraphState {
    fn new(collected: Collected, began: Instant) -> Self {
        let states: Arc<[JobState]> = collected.states.states.into();
        let drawing = Drawing::new(&collected.shape, &Selection::default(), &states);
        let took = began.elapsed();
        Self {
            counts: states.iter().copied().collect(),
            drawing: Arc::new(drawing),
            made: Arc::default(),
            shape: Arc::new(collected.shape),
            states,
            ended_at: collected.states.ended_at,
            unreachable: collected.unreachable,
            is_cut: collected.is_cut,
            shape_read_at: Instant::now(),
            shape_took: took,
            states_read_at: began,
            states_took: took,
        }
    }

    fn with_states(self, found: States, began: Instant) -> Self {
        Self {
            counts: found.states.iter().copied().collect(),
            states: found.states.into(),
            made: Arc::default(),
            ended_at: found.ended_at,
            states_read_at: began,
            states_took: began.elapsed(),
            ..self
        }
    }
}

impl Entry {
    fn kept(&self) -> Option<GraphState> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clone()
    }

    fn keep(&self, state: GraphState) -> GraphState {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(state.clone());
        state
    }

    fn forget(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Cache {
    /// The entry of a graph, which is made if there is none.
    fn entry(&self, namespace: &Namespace, graph: &Graph) -> Arc<Entry> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let found = entries
            .iter()
            .position(|entry| entry.namespace == *namespace && entry.graph == *graph);
        let entry = match found.and_then(|at| entries.remove(at)) {
            Some(entry) => entry,
            None => Arc::new(Entry {
                namespace: namespace.clone(),
                graph: graph.clone(),
                progress: AtomicU64::new(0),
                reading: Arc::default(),
                kept: Mutex::default(),
            }),
        };
        entries.push_back(Arc::clone(&entry));
        if entries.len() > KEPT_MAX {
            entries.pop_front();
        }
        entry
    }

    fn forget(&self, entry: &Arc<Entry>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|known| !Arc::ptr_eq(known, entry));
    }

    /// Gives the oldest shapes up until the others fit into memory. The newest one stays in any case.
    fn shrink(&self, newest: &Entry) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let members =
            |entry: &Arc<Entry>| entry.kept().map_or(0, |kept| kept.shape.members().len());
        let mut total: usize = entries.iter().map(members).sum();
        entries.retain(|entry| {
            let is_newest = std::ptr::eq(Arc::as_ptr(entry), newest);
            if total <= KEPT_MEMBERS_MAX || is_newest {
                return true;
            }
            total -= members(entry);
            false
        });
    }
}

//! The jobs around a job: breadth first over dependencies, both ways, up to a limit.

use std::collections::{HashSet, VecDeque};

use ganger_document::names::{full_name, text};
use ganger_document::view::graph::{Graph, GraphEdge, GraphJob};
use ganger_proto::v1;
use ganger_shard::StoredJob;
use ganger_types::{InputRow, InputState, JobId, JobKey, ShardId};

use crate::ServiceContext;
use crate::decode::{self, At};
use crate::problem::Problem;

/// Jobs shown unless asked otherwise, and at most.
const JOBS_DEFAULT: u32 = 1_000;
const JOBS_MAX: u32 = 10_000;
/// Dependencies looked at per job.
const EDGES_MAX: usize = 10_000;

/// A job whose neighbours have not been looked at.
struct Waiting {
    key: JobKey,
    id: JobId,
    /// Distance from the job asked for, in steps.
    depth: u32,
}

/// A search over the graph.
struct Search {
    graph: Graph,
    shown: HashSet<JobKey>,
    waiting: VecDeque<Waiting>,
    /// Maximum distance from the job asked for, in steps.
    depth_max: u32,
    /// Maximum number of jobs.
    jobs_max: usize,
}

impl ServiceContext {
    pub(crate) async fn around(
        &self,
        request: &v1::GraphRequest,
    ) -> Result<v1::GraphView, Problem> {
        let namespace = decode::namespace(&request.namespace)?;
        let id = decode::job_id(self.handle.id(), At::top("job"), &request.job)?;
        let limit = decode::bounded(At::top("limit"), request.limit, JOBS_DEFAULT, JOBS_MAX)?;
        let depth_max = match request.depth {
            0 => u32::MAX,
            depth => depth,
        };
        let start = self.find(&namespace, &id).await?;
        let graph = start.record.graph.as_ref();
        let mut search = Search {
            graph: Graph {
                graph: graph.map(|graph| text(graph.as_bytes())),
                ..Graph::default()
            },
            shown: HashSet::new(),
            waiting: VecDeque::new(),
            depth_max,
            jobs_max: usize::try_from(limit).expect("the limit is small"),
        };
        search.add(self.handle.id(), start, 0);
        while let Some(job) = search.waiting.pop_front() {
            self.look_around(job, &mut search).await?;
        }
        Ok(search.graph.into())
    }

    async fn look_around(&self, job: Waiting, search: &mut Search) -> Result<(), Problem> {
        let shard = self.handle.id();
        let inputs = self.handle.inputs(job.key, 0, EDGES_MAX).await?;
        let dependents = self.handle.dependents(job.key, EDGES_MAX).await?;
        if inputs.len() == EDGES_MAX {
            search.graph.edges_cut.push(full_name(shard, &job.id));
        }
        search.graph.more |= inputs.len() == EDGES_MAX || dependents.len() == EDGES_MAX;
        let dependencies: Vec<JobKey> = inputs.iter().filter_map(dependency_here).collect();
        let edges = inputs.into_iter();
        let edges = edges.filter_map(|row| GraphEdge::new(shard, &job.id, row));
        search.graph.edges.extend(edges);
        if job.depth >= search.depth_max {
            return Ok(());
        }
        for neighbour in dependencies.into_iter().chain(dependents) {
            if search.shown.contains(&neighbour) {
                continue;
            }
            if search.graph.jobs.len() >= search.jobs_max {
                search.graph.more = true;
                break;
            }
            if let Some(stored) = self.handle.job_by_key(neighbour).await? {
                search.add(shard, stored, job.depth + 1);
            }
        }
        Ok(())
    }
}

/// The job of this shard that an input comes from.
fn dependency_here(row: &InputRow) -> Option<JobKey> {
    match row.state {
        InputState::Missing { dependency, .. } | InputState::Delivered { dependency, .. } => {
            Some(dependency)
        }
        InputState::Value(_)
        | InputState::Ignored { .. }
        | InputState::Remote { .. }
        | InputState::Received { .. } => None,
    }
}

impl Search {
    fn add(&mut self, shard: &ShardId, job: StoredJob, depth: u32) {
        let (key, id) = (job.record.key, job.record.id.clone());
        self.shown.insert(key);
        self.waiting.push_back(Waiting { key, id, depth });
        self.graph.jobs.push(GraphJob::new(shard, job));
    }
}

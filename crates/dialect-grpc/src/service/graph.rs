//! The jobs around a job: breadth first over dependencies, both ways, up to a limit.

use std::collections::{BTreeSet, HashMap, VecDeque};

use ganger_proto::v1;
use ganger_shard::StoredJob;
use ganger_types::{InputRow, InputState, JobKey, ShardId};

use crate::ServiceContext;
use crate::decode::{self, At};
use crate::encode;
use crate::problem::Problem;

/// Jobs shown unless asked otherwise, and at most.
const JOBS_DEFAULT: u32 = 1_000;
const JOBS_MAX: u32 = 10_000;
/// Dependencies looked at per job.
const EDGES_MAX: usize = 10_000;

/// What has been found so far.
struct Found {
    view: v1::GraphView,
    ids: HashMap<JobKey, String>,
    waiting: VecDeque<(JobKey, u32)>,
    /// Dependencies as (dependency, dependent, slot of the dependent).
    edges: BTreeSet<(JobKey, JobKey, u32)>,
    limit: usize,
}

impl ServiceContext {
    pub(crate) async fn around(
        &self,
        request: &v1::GraphRequest,
    ) -> Result<v1::GraphView, Problem> {
        let namespace = decode::namespace(&request.namespace)?;
        let id = decode::job_id(self.handle.id(), At::top("job"), &request.job)?;
        let limit = decode::bounded(At::top("limit"), request.limit, JOBS_DEFAULT, JOBS_MAX)?;
        let depth_max = if request.depth == 0 {
            u32::MAX
        } else {
            request.depth
        };
        let start = self.find(&namespace, &id).await?;
        let mut found = Found {
            view: v1::GraphView {
                graph: encode::text!(start.record.graph),
                ..v1::GraphView::default()
            },
            ids: HashMap::new(),
            waiting: VecDeque::new(),
            edges: BTreeSet::new(),
            limit: usize::try_from(limit).expect("the limit is small"),
        };
        found.add(self.handle.id(), &start, 0);
        while let Some((key, depth)) = found.waiting.pop_front() {
            self.look_around(key, depth, depth_max, &mut found).await?;
        }
        Ok(found.finish())
    }

    async fn look_around(
        &self,
        key: JobKey,
        depth: u32,
        depth_max: u32,
        found: &mut Found,
    ) -> Result<(), Problem> {
        let inputs = self.handle.inputs(key, 0, EDGES_MAX).await?;
        let dependents = self.handle.dependents(key, EDGES_MAX).await?;
        found.view.more |= inputs.len() == EDGES_MAX || dependents.len() == EDGES_MAX;
        let dependencies = inputs.iter().filter_map(dependency_of);
        let neighbours: Vec<JobKey> = dependencies
            .map(|(dependency, _)| dependency)
            .chain(dependents)
            .collect();
        for (dependency, slot) in inputs.iter().filter_map(dependency_of) {
            found.edges.insert((dependency, key, slot));
        }
        if depth >= depth_max {
            return Ok(());
        }
        for neighbour in neighbours {
            if found.ids.contains_key(&neighbour) {
                continue;
            }
            if found.view.jobs.len() >= found.limit {
                found.view.more = true;
                break;
            }
            if let Some(stored) = self.handle.job_by_key(neighbour).await? {
                found.add(self.handle.id(), &stored, depth + 1);
            }
        }
        Ok(())
    }
}

fn dependency_of(row: &InputRow) -> Option<(JobKey, u32)> {
    match row.state {
        InputState::Missing { dependency, .. } | InputState::Delivered { dependency, .. } => {
            Some((dependency, row.slot))
        }
        InputState::Value(_)
        | InputState::Ignored { .. }
        | InputState::Remote { .. }
        | InputState::Received { .. } => None,
    }
}

impl Found {
    fn add(&mut self, shard: &ShardId, stored: &StoredJob, depth: u32) {
        let record = &stored.record;
        let id = encode::global(shard, &record.id);
        let shown = match stored.lease {
            Some(_) => ganger_types::JobState::Running,
            None => record.state,
        };
        self.view.jobs.push(v1::GraphJob {
            id: id.clone(),
            kind: record.kind.to_text().into_owned(),
            state: encode::state(shown),
            queue: record.queue.to_text().into_owned(),
            progress: record.progress.clone().map(Into::into),
            name: record
                .name
                .as_ref()
                .map_or_else(String::new, |name| name.to_text().into_owned()),
        });
        self.ids.insert(record.key, id);
        self.waiting.push_back((record.key, depth));
    }

    /// Keeps the edges both of whose ends are shown.
    fn finish(mut self) -> v1::GraphView {
        for (dependency, downstream, slot) in &self.edges {
            if let (Some(from), Some(to)) = (self.ids.get(dependency), self.ids.get(downstream)) {
                self.view.edges.push(v1::GraphEdge {
                    from: from.clone(),
                    to: to.clone(),
                    input: Some(*slot).filter(|slot| *slot < InputRow::EDGE_FIRST),
                });
            }
        }
        self.view
    }
}

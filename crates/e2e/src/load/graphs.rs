//! A producer of graphs over several shards.

use std::thread;

use serde_json::{Value, json};

use super::{LoadClient, PAUSE, job};
use crate::history::{GraphJob, Operation, Outcome};

/// Largest number of jobs in a graph.
const JOBS_MAX: u64 = 5;
/// Number of times that a submission is repeated until it is answered.
const REPEATS: u32 = 1_000;

/// Returns the shard of a job of a graph, which its id names; `None` for other jobs.
pub(super) fn shard_of(job: &str) -> Option<&str> {
    job.rsplit_once('@').map(|(_, shard)| shard)
}

impl LoadClient {
    /// Submits graphs over these shards until the producers are stopped.
    pub(super) fn submit_graphs(mut self, number: u64, shards: u32) {
        let mut count = 0;
        while let Some(()) = self.next_turn() {
            let graph = self.graph(number, count, shards);
            self.submit(&graph);
            count += 1;
            thread::sleep(self.every);
        }
    }

    /// Draws a graph: each job but the first needs the result of an earlier one, or of two.
    fn graph(&mut self, number: u64, count: u64, shards: u32) -> Vec<GraphJob> {
        let mut jobs: Vec<GraphJob> = Vec::new();
        for place in 0..2 + self.random.below(JOBS_MAX - 1) {
            let shard = 1 + self.random.below(shards.into());
            let mut inputs = Vec::new();
            for _ in 0..=self.random.below(2) {
                let earlier = self.random.below(place.max(1));
                let earlier = jobs.get(usize::try_from(earlier).unwrap_or(0));
                inputs.extend(earlier.map(|job| job.id.clone()));
            }
            inputs.dedup();
            let id = format!("g{number}-{count}-{place}@{shard}");
            jobs.push(GraphJob { id, inputs });
        }
        jobs
    }

    /// Submits a graph, again and again until the answer is certain. Its ids make it one graph, and so does the key that
    /// half of them have.
    fn submit(&mut self, graph: &[GraphJob]) {
        let jobs: Vec<Value> = graph.iter().map(document).collect();
        let key = self.random.chance(50).then(|| graph[0].id.as_str());
        for _ in 0..REPEATS {
            let operation = Operation::Submit {
                jobs: graph.to_vec(),
            };
            let api = &mut self.api;
            let send = || match key {
                Some(key) => api.submit_with_key(&jobs, key),
                None => api.submit(&jobs),
            };
            match self.recorder.exchange(operation, send) {
                Outcome::Done { .. } => return self.has_enqueued(graph.len()),
                _ => thread::sleep(PAUSE),
            }
        }
    }
}

fn document(member: &GraphJob) -> Value {
    let mut document = job(&member.id);
    let results = member.inputs.iter().map(|id| json!({ "result_of": id }));
    document["name"] = json!(member.id);
    document["shard"] = json!(shard_of(&member.id));
    document["inputs"] = results.collect();
    document
}

//! Kills the node that owns a shard with many waiting jobs, and measures when another node answers for the shard.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::json;

use super::Progress;
use super::report::Report;
use crate::cluster::TestCluster;
use crate::http::Client;
use crate::nodes::{LEASE, Nodes, ask};
use crate::random::Random;
use crate::server::Setup;

/// Names of the nodes. The first one comes alone, and owns all shards at first.
const NODES: [&str; 3] = ["a", "b", "c"];
/// Number of shards. The others have no jobs.
const SHARDS: u32 = 3;
/// As much as PostgreSQL has as installed; instances of tests have less.
const DATABASE: &str = "shared_buffers = 128MB\n";
/// Number of jobs in one request of the loading.
const BATCH: usize = 5_000;
/// Characters of the payload of a waiting job.
const PAYLOAD: usize = 200;
/// Longest wait for the answer of one try.
const TRY_MAX: Duration = Duration::from_millis(250);
/// Pause after a try that was refused.
const RETRY_AFTER: Duration = Duration::from_millis(5);
/// Time after which the shard counts as lost.
const TAKE_OVER_MAX: Duration = Duration::from_secs(60);
/// Kills come at any moment between two beats.
const BETWEEN_BEATS_MS: u64 = 1_000;

/// The times of all take-overs, and the jobs before and after.
pub(super) struct TakeOvers {
    /// Times from each kill to the first acknowledged enqueue.
    times: Vec<Duration>,
    /// Number of acknowledged jobs.
    acknowledged: usize,
    /// Number of jobs that the shard had at the end.
    found: usize,
}

/// Loads jobs into a shard, and kills its owner so often.
pub(super) fn measure(kills: usize, jobs: usize, progress: &Progress<'_>) -> Result<TakeOvers> {
    let cluster = TestCluster::with_settings("cluster_figures", SHARDS, DATABASE)?;
    let cluster = cluster.context("PostgreSQL is missing")?;
    let mut nodes = Nodes::over(cluster, &NODES, LEASE)?;
    load(nodes.setup(NODES[0]), jobs)?;
    (progress.print)(&format!("take-over: {jobs} jobs wait in shard 1"));
    let mut random = Random::new(1);
    let mut times = Vec::new();
    let mut owner = nodes.wait_for_owner(NODES[0], "1", "")?;
    for kill in 1..=kills {
        thread::sleep(Duration::from_millis(random.below(BETWEEN_BEATS_MS)));
        // The node itself knows best whether it still is the owner.
        owner = nodes.wait_for_owner(&owner, "1", "")?;
        // Sometimes the new owner is asked, and sometimes a node that passes the request on.
        let observer = nodes.others(&owner).swap_remove(kill % 2);
        let begun = Instant::now();
        nodes.server(&owner).kill()?;
        wait_for_enqueue(nodes.setup(&observer), kill, begun)?;
        times.push(begun.elapsed());
        let new = nodes.wait_for_owner(&observer, "1", &owner)?;
        nodes.start_again(&owner)?;
        progress.done(kill, &format!("{owner} to {new} in {:?}", times[kill - 1]));
        owner = new;
    }
    let found = count(nodes.setup(&owner))?;
    nodes.stop()?;
    Ok(TakeOvers {
        times,
        acknowledged: jobs + kills,
        found,
    })
}

impl TakeOvers {
    /// Adds the figures to the report.
    pub(super) fn add_to(self, report: &mut Report) {
        let lost = self.acknowledged.saturating_sub(self.found);
        let double = self.found.saturating_sub(self.acknowledged);
        report.add_note(format!(
            "take-over: {} jobs acknowledged, {lost} lost, {double} double; lease {LEASE}",
            self.acknowledged
        ));
        report.add_faults("take-over", lost, "jobs lost");
        report.add_faults("take-over", double, "jobs more than were enqueued");
        report.add_times(
            "take-over: kill of the owner to the first acknowledged job",
            self.times,
            "lease + 2 s: 4000; aim: 2700",
        );
    }
}

/// Enqueues jobs in shard 1, which nobody takes.
fn load(setup: &Setup, jobs: usize) -> Result<()> {
    let payload = "x".repeat(PAYLOAD);
    let job = json!({"shard": "1", "queue": "waiting", "kind": "k", "payload": payload});
    let line = format!("{job}\n");
    let mut client = setup.client();
    let mut left = jobs;
    while left > 0 {
        let size = left.min(BATCH);
        let path = "/api/v1/jobs/batch?answers=errors";
        let lines = line.repeat(size);
        let answer = client.request_bytes("POST", path, "application/x-ndjson", lines.as_bytes());
        let answer = answer.map_err(|error| anyhow!("{error:?}"))?;
        let accepted = format!("\"accepted\":{size},");
        let text = answer.to_text();
        ensure!(answer.status == 200 && text.contains(&accepted), "{text}");
        left -= size;
    }
    let found = count(setup)?;
    ensure!(found == jobs, "{found} jobs wait instead of {jobs}");
    Ok(())
}

/// Number of jobs that wait in shard 1.
fn count(setup: &Setup) -> Result<usize> {
    let answer = ask(setup, "/api/v1/jobs/count?state=ready&shard=1")?;
    let count = answer.json()["count"].as_u64();
    let count = count.with_context(|| format!("no count: {}", answer.to_text()))?;
    Ok(usize::try_from(count)?)
}

/// Tries to enqueue one job until that is acknowledged. The job has an id, so a repeat of a try without an answer does no
/// harm.
fn wait_for_enqueue(setup: &Setup, kill: usize, begun: Instant) -> Result<()> {
    let job = json!({"id": format!("kill-{kill}"), "queue": "waiting", "kind": "k"});
    loop {
        let mut client = Client::new(setup.address, TRY_MAX);
        let answer = client.request("POST", "/api/v1/jobs?shard=1", &job);
        let refused = match answer {
            Ok(answer) if (200..300).contains(&answer.status) => return Ok(()),
            Ok(answer) => answer.to_text(),
            Err(error) => format!("{error:?}"),
        };
        if begun.elapsed() > TAKE_OVER_MAX {
            let log = setup.log_text();
            bail!("no node took the shard over: {refused}\n{log}");
        }
        thread::sleep(RETRY_AFTER);
    }
}

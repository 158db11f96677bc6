//! Three servers in a virtual network whose links are cut, in both directions and in one (f31, f32).

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::api::Api;
use ganger_e2e::history::Outcome;
use ganger_e2e::network::Network;
use ganger_e2e::server::{Server, Setup, TIMEOUT};
use ganger_e2e::skip::note_skip;
use serde_json::{Value, json};

const PORT: u16 = 3733;
/// Longest time until a shard is reported as unreachable: the promised 5 s and a margin for the test.
const REPORTED_WITHIN: Duration = Duration::from_secs(8);

struct Cluster {
    network: Network,
    setups: Vec<Setup>,
    servers: Vec<Server>,
}

impl Cluster {
    fn start(directory: &std::path::Path, network: Network) -> Result<Self> {
        let token = directory.join("token");
        fs::write(&token, "a-token-of-the-test-only-0123456789\n")?;
        let addresses: Vec<SocketAddr> = (0..3)
            .map(|node| SocketAddr::new(network.address(node), PORT))
            .collect();
        let list: Vec<String> = addresses
            .iter()
            .zip(1..)
            .map(|(address, shard)| format!("{shard}={address}"))
            .collect();
        let topology = format!("static:{}", list.join(","));
        let setups: Vec<Setup> = addresses
            .iter()
            .enumerate()
            .map(|(node, address)| Setup {
                store: directory.join(format!("{node}.db")),
                log: directory.join(format!("{node}.log")),
                address: *address,
                arguments: vec![
                    "--insecure".to_owned(),
                    "--shard".to_owned(),
                    (node + 1).to_string(),
                    "--topology".to_owned(),
                    topology.clone(),
                ],
                wrapper: network.wrapper(node),
                variables: Vec::new(),
            })
            .collect();
        let servers = setups.iter().map(Setup::start).collect::<Result<_>>()?;
        Ok(Self {
            network,
            setups,
            servers,
        })
    }

    fn api(&self, node: usize) -> Api {
        Api::new(self.setups[node].client())
    }

    /// Submits a chain over all shards and back: 1, 2, 3, 1. Returns the ids.
    fn submit(&self, node: usize) -> Result<Vec<String>> {
        let step = |index: usize, shard: &str| {
            let mut job = json!({ "name": format!("s{index}"), "kind": "step", "shard": shard });
            if index > 0 {
                job["inputs"] = json!([{ "result_of": format!("s{}", index - 1) }]);
            }
            job
        };
        let jobs: Vec<Value> = ["1", "2", "3", "1"]
            .iter()
            .enumerate()
            .map(|(index, shard)| step(index, shard))
            .collect();
        let answer = self
            .api(node)
            .expect("POST", "graphs", &json!({ "jobs": jobs }))?;
        let jobs = answer["jobs"]
            .as_array()
            .context("the response has no list of jobs")?;
        let name = |job: &Value| job["ref"].as_str().map(str::to_owned);
        let names: Option<Vec<String>> = jobs.iter().map(name).collect();
        names.with_context(|| format!("the jobs are named: {answer}"))
    }

    /// Completes the ready jobs of a shard; returns their number.
    fn work(&self, node: usize) -> Result<usize> {
        let mut api = self.api(node);
        let lease_for = Duration::from_secs(60);
        let wait = Duration::ZERO;
        let leases = match api.lease("default", "w", 100, lease_for, wait) {
            Outcome::Leased(leases) => leases,
            other => bail!("a lease was answered with {other:?}"),
        };
        for lease in &leases {
            api.complete(lease, "done");
        }
        Ok(leases.len())
    }

    fn state(&self, through: usize, job: &str) -> Option<String> {
        let path = format!("jobs/{}", job.replace('/', "%2F"));
        let job = self.api(through).expect("GET", &path, &Value::Null).ok()?;
        job["state"].as_str().map(str::to_owned)
    }

    /// Works on all shards until these jobs have succeeded.
    fn drain(&self, jobs: &[String]) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT * 3 {
            for node in 0..3 {
                self.work(node)?;
            }
            let is_done = |job: &String| self.state(0, job).as_deref() == Some("succeeded");
            if jobs.iter().all(is_done) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let states: Vec<_> = jobs.iter().map(|job| self.state(0, job)).collect();
        bail!("after {:?} the jobs are {states:?}", begun.elapsed())
    }

    fn finish(mut self) -> Result<()> {
        for server in &mut self.servers {
            server.kill()?;
        }
        for setup in &self.setups {
            setup.check()?;
            setup.expect_no_panic()?;
        }
        Ok(())
    }
}

#[test]
fn cut_links_delay_only_what_needs_them_and_unreachable_shards_are_reported() -> Result<()> {
    let network = match Network::new(3) {
        Ok(network) => network,
        Err(error) => {
            note_skip("partitions", &format!("{error:#}"));
            return Ok(());
        }
    };
    let directory = tempfile::tempdir()?;
    let cluster = Cluster::start(directory.path(), network)?;

    let first_jobs = cluster.submit(0)?;
    // Nothing passes between shards 1 and 2 in either direction.
    cluster.network.cut_link(0, 1)?;
    cluster.network.cut_link(1, 0)?;
    ensure!(cluster.work(0)? == 1, "shard 1 works for itself");
    let begun = Instant::now();
    let path = format!("jobs/{}", first_jobs[1].replace('/', "%2F"));
    let answer = cluster.api(0).call("GET", &path, &Value::Null);
    let answer = answer.map_err(|error| anyhow::anyhow!("no answer: {error:?}"))?;
    ensure!(
        answer.status == 503 && begun.elapsed() < REPORTED_WITHIN,
        "unreachable, never unknown: {} after {:?}",
        answer.to_text(),
        begun.elapsed()
    );
    ensure!(
        cluster.state(2, &first_jobs[1]).as_deref() == Some("blocked"),
        "shard 3 still reaches shard 2"
    );
    let refused = cluster.submit(0).expect_err("a part of it would be lost");
    ensure!(refused.to_string().contains("503"), "{refused}");
    cluster.network.restore_links()?;
    cluster.drain(&first_jobs)?;

    // In one direction only: answers of shard 2 do not reach shard 1.
    let second_jobs = cluster.submit(2)?;
    ensure!(cluster.work(0)? == 1, "shard 1 works for itself");
    cluster.network.cut_link(1, 0)?;
    std::thread::sleep(Duration::from_secs(1));
    cluster.network.restore_links()?;
    cluster.drain(&second_jobs)?;
    cluster.finish()
}

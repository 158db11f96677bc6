//! Several nodes over one private PostgreSQL, as tests and measurements start, kill and stop them.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use crate::cluster::TestCluster;
use crate::command::run_successfully;
use crate::http::Response;
use crate::server::{Server, Setup};

/// Ownership lease of the nodes, as a setting: the shortest one.
pub const LEASE: &str = "2s";
/// Time in which a shard must have a new owner, on a machine that does other things too.
const TAKE_OVER_MAX: Duration = Duration::from_secs(60);

/// Nodes of one cluster.
pub struct Nodes {
    /// The database, and the cluster in it.
    pub cluster: TestCluster,
    started: BTreeMap<String, (Setup, Server)>,
    _directories: Vec<tempfile::TempDir>,
}

impl Nodes {
    /// Starts nodes over a cluster with so many shards; `None` where there is no PostgreSQL.
    pub fn start(test: &str, shards: u32, names: &[&str]) -> Result<Option<Self>> {
        Self::start_with(test, shards, names, LEASE)
    }

    /// Starts nodes with an ownership lease; see [`Nodes::start`].
    pub fn start_with(
        test: &str,
        shards: u32,
        names: &[&str],
        lease: &str,
    ) -> Result<Option<Self>> {
        let cluster = TestCluster::new(test, shards)?;
        cluster
            .map(|cluster| Self::over(cluster, names, lease))
            .transpose()
    }

    /// Starts nodes over a cluster, one after the other.
    pub fn over(cluster: TestCluster, names: &[&str], lease: &str) -> Result<Self> {
        let (mut started, mut directories) = (BTreeMap::new(), Vec::new());
        for name in names {
            let directory = tempfile::tempdir()?;
            let setup = cluster.member(directory.path(), name, lease)?;
            let server = setup.start()?;
            started.insert((*name).to_owned(), (setup, server));
            directories.push(directory);
        }
        Ok(Self {
            cluster,
            started,
            _directories: directories,
        })
    }

    /// Returns the setup of a node.
    ///
    /// # Panics
    /// If there is no node of this name.
    pub fn setup(&self, name: &str) -> &Setup {
        &self.started[name].0
    }

    /// Returns the setup of a node, to change what it is started with next.
    ///
    /// # Panics
    /// If there is no node of this name.
    pub fn setup_mut(&mut self, name: &str) -> &mut Setup {
        &mut self.started.get_mut(name).expect("it is a node").0
    }

    /// Returns the process of a node.
    ///
    /// # Panics
    /// If there is no node of this name.
    pub fn server(&mut self, name: &str) -> &mut Server {
        &mut self.started.get_mut(name).expect("it is a node").1
    }

    /// Starts a node again that has ended, and waits until it is ready.
    pub fn start_again(&mut self, name: &str) -> Result<()> {
        *self.server(name) = self.setup(name).start()?;
        Ok(())
    }

    /// Returns a node other than this one.
    ///
    /// # Panics
    /// If there is only one node.
    pub fn other(&self, name: &str) -> String {
        self.others(name).remove(0)
    }

    /// Returns all nodes other than this one, by name.
    pub fn others(&self, name: &str) -> Vec<String> {
        let others = self.started.keys().filter(|node| *node != name);
        others.cloned().collect()
    }

    /// Returns the owner of a shard, as a node sees it.
    pub fn owner(&self, seen_by: &str, shard: &str) -> Result<Option<String>> {
        let shards = ask(self.setup(seen_by), "/api/v1/shards")?.json();
        let shards = shards["shards"].as_array().context("there is a list")?;
        let mut found = shards.iter().filter(|it| it["shard"] == shard);
        let found = found.next().context("the shard is listed")?;
        Ok(found["owner"].as_str().map(str::to_owned))
    }

    /// Waits until another node than `last` owns a shard and answers for it through `seen_by`; returns its name.
    pub fn wait_for_owner(&self, seen_by: &str, shard: &str, last: &str) -> Result<String> {
        let begun = Instant::now();
        let setup = self.setup(seen_by);
        loop {
            let owner = self.owner(seen_by, shard)?.filter(|owner| owner != last);
            if let Some(owner) = owner
                && let Ok(listed) = ask(setup, &format!("/api/v1/jobs?limit=1&shard={shard}"))
                && listed.status == 200
            {
                return Ok(owner);
            }
            if begun.elapsed() > TAKE_OVER_MAX {
                bail!("no node took shard {shard} over:\n{}", setup.log_text());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops all nodes in order.
    pub fn stop(mut self) -> Result<()> {
        for (setup, server) in self.started.values_mut() {
            server.stop()?;
            setup.expect_no_panic()?;
        }
        Ok(())
    }
}

/// Drains a node, or takes that back with `--undo`.
pub fn drain(nodes: &Nodes, node: &str, undo: &[&str]) -> Result<()> {
    let (store, password) = (nodes.cluster.address(), nodes.cluster.password_file());
    let command = ["cluster", "drain", node, "--store", &store];
    let password = ["--store-password-file", &password];
    run_successfully(&[&command, &password[..], undo].concat(), &[]).map(drop)
}

/// Reads a path of a node.
pub fn ask(setup: &Setup, path: &str) -> Result<Response> {
    let answer = setup.client().request("GET", path, &Value::Null);
    answer.map_err(|error| anyhow!("{path}: {error:?}"))
}

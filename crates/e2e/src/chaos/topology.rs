//! Three nodes over a PostgreSQL with standbys, and perhaps a pooler, with a link between each two that talk.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ganger_postgres_instance::{Instance, Pooler, missing_pooler};

use super::case::FormerPrimary;
use super::links::{End, Links};
use crate::cluster::{PASSWORD, TestCluster};
use crate::command::wait_for;
use crate::disks::{self, LoopDisk};
use crate::server::{Server, Setup, TIMEOUT};
use crate::skip::note_skip;

/// Number of nodes in every run.
pub(super) const NODES: usize = 3;
/// Time without a beat after which others take a node's shards over.
pub(super) const LEASE: Duration = Duration::from_secs(3);
/// Number of shards. The load's single jobs are all in the first one; its graphs are in all.
pub(super) const SHARDS: u32 = 2;
/// Library that gives a program another wall clock.
const CLOCK_LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
/// Size of the disk of a server of the database.
const DISK_BYTES: u64 = 2 << 30;
/// File that takes the free space of a disk.
const BALLAST: &str = "ballast";
/// Sessions of a pooler with its server.
const POOL: u32 = 20;

/// One node and its process.
pub(super) struct Node {
    /// How it is started.
    pub(super) setup: Setup,
    /// The process that runs now.
    pub(super) server: Server,
    /// File with what its wall clock is wrong by.
    clock: std::path::PathBuf,
}

/// One server of the database, with its number in the nodes' list of hosts.
pub(crate) struct Database {
    /// Its place in the list of hosts.
    pub(crate) number: usize,
    /// The standby that has this number now.
    pub(crate) instance: Instance,
    /// The disk with its data; `None`: it is on that of the machine.
    disk: Option<DataDisk>,
}

/// The disk of a server of the database.
struct DataDisk {
    disk: LoopDisk,
    _directory: tempfile::TempDir,
}

impl DataDisk {
    fn new() -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("ganger-disk")
            // The server runs as another user.
            .permissions(fs::Permissions::from_mode(0o755))
            .tempdir()?;
        Ok(Self {
            disk: LoopDisk::new(directory.path(), DISK_BYTES)?,
            _directory: directory,
        })
    }
}

/// The servers of the database, and what is before them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Databases {
    /// Number of standbys of the primary.
    pub standbys: usize,
    /// Number of standbys for which a commit waits.
    pub confirming: usize,
    /// Whether nodes reach the primary through a pooler.
    pub has_pooler: bool,
    /// Whether each server has a disk of its own, which can be filled up.
    pub has_disks: bool,
}

/// The whole of it.
pub(crate) struct Topology {
    /// The cluster. Its server is the primary of the database.
    pub(crate) cluster: TestCluster,
    /// Number of the primary.
    pub(super) primary: usize,
    /// The disk of the primary; `None`: it is that of the machine.
    primary_disk: Option<DataDisk>,
    /// The other servers of the database.
    pub(super) standbys: Vec<Database>,
    /// The nodes, by their numbers.
    pub(super) nodes: Vec<Node>,
    /// The links between all of them.
    pub(super) links: Links,
    confirming: usize,
    has_disks: bool,
    pooler: Option<Pooler>,
    directory: tempfile::TempDir,
}

impl Topology {
    /// Starts everything; `None`, and a note, where there is no PostgreSQL, or no pooler if one is asked for.
    pub(crate) fn start(test: &str, databases: Databases) -> Result<Option<Self>> {
        let Databases {
            standbys,
            confirming,
            has_pooler,
            has_disks,
        } = databases;
        if let Some(reason) = missing_pooler().filter(|_| has_pooler) {
            note_skip(test, &reason);
            return Ok(None);
        }
        let name = "cluster_name = 'pg0'\n";
        let Some(cluster) = TestCluster::with_settings(test, SHARDS, name)? else {
            return Ok(None);
        };
        let mut topology = Self {
            cluster,
            primary: 0,
            primary_disk: None,
            standbys: Vec::new(),
            nodes: Vec::new(),
            links: Links::default(),
            confirming,
            has_disks,
            pooler: None,
            directory: tempfile::Builder::new().prefix("ganger-chaos").tempdir()?,
        };
        if has_disks {
            let disk = DataDisk::new()?;
            topology.cluster.postgres.move_data(disk.disk.path())?;
            topology.primary_disk = Some(disk);
        }
        for number in 1..=standbys {
            topology.add_standby(number)?;
        }
        topology.confirm_by_standbys()?;
        if has_pooler {
            topology.start_pooler()?;
        }
        for number in 0..NODES {
            topology.add_node(number)?;
        }
        Ok(Some(topology))
    }

    /// Number of the node that owns the shard of the load; `None` if none does.
    pub(super) fn owner(&self) -> Result<Option<usize>> {
        let owner = self
            .cluster
            .sql("SELECT holder FROM ganger.place WHERE shard = 1")?;
        Ok((0..NODES).find(|number| node_name(*number) == owner))
    }

    /// Addresses of the nodes, by their numbers.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = self.nodes.iter().map(|node| node.setup.address);
        addresses.collect()
    }

    /// Opens links from one more client to all servers of the database; returns their addresses.
    pub(crate) fn links_of_client(&self) -> Result<Vec<SocketAddr>> {
        let databases = 0..=self.standbys.len();
        let links = databases.map(|database| self.links.to_database(NODES, database));
        links.collect()
    }

    /// Directory with what the nodes logged.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps that directory after the end.
    pub(crate) fn keep_logs(&mut self) {
        self.directory.disable_cleanup(true);
    }

    /// Starts a node again that was killed.
    pub(super) fn restart(&mut self, number: usize) -> Result<()> {
        let node = &mut self.nodes[number];
        node.server = node.setup.spawn()?;
        self.links.is_process(number, node.server.id());
        Ok(())
    }

    /// Whether nodes can have another wall clock here.
    pub(super) fn has_clocks() -> bool {
        Path::new(CLOCK_LIBRARY).exists()
    }

    /// Sets a node's wall clock to this many hours after the right time, from its next start on. Once it was started so,
    /// its clock jumps.
    pub(super) fn set_clock(&mut self, number: usize, hours: i64) -> Result<()> {
        let node = &mut self.nodes[number];
        let variables = clock_variables(&node.clock);
        if !node.setup.variables.contains(&variables[0]) {
            node.setup.variables.extend(variables);
        }
        Ok(fs::write(&node.clock, format!("{hours:+}h\n"))?)
    }

    /// Promotes the standby that has received most, which the others follow then. The former primary is returned, and
    /// nobody's standby.
    pub(crate) fn promote(&mut self, former: FormerPrimary) -> Result<Database> {
        let new = self.standbys.remove(self.most_advanced()?);
        // The others follow it before: one that still heard of the former primary could get ahead of the new one.
        for standby in &self.standbys {
            new.instance.lead(&standby.instance)?;
        }
        if former != FormerPrimary::Dead {
            let others = self.standbys.len().to_string();
            wait_for("the other standbys to follow the new primary", || {
                let sql = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
                Ok((new.instance.sql("postgres", sql)? == others).then_some(()))
            })?;
        }
        new.instance.promote()?;
        let old = std::mem::replace(&mut self.cluster.postgres, new.instance);
        let number = std::mem::replace(&mut self.primary, new.number);
        let disk = std::mem::replace(&mut self.primary_disk, new.disk);
        Ok(Database {
            number,
            instance: old,
            disk,
        })
    }

    /// Place in the list of the standby that has received most: if commits wait for fewer than all, another one may lack
    /// some that were acknowledged.
    fn most_advanced(&self) -> Result<usize> {
        const RECEIVED: &str = "SELECT pg_wal_lsn_diff(
            greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()), '0/0')::bigint";
        let mut most = None;
        for (place, standby) in self.standbys.iter().enumerate() {
            let received: u64 = standby.instance.sql("postgres", RECEIVED)?.parse()?;
            if most.is_none_or(|(_, bytes)| received > bytes) {
                most = Some((place, received));
            }
        }
        most.map(|(place, _)| place).context("there is no standby")
    }

    /// Makes a new standby with this number, which is free.
    pub(crate) fn add_standby(&mut self, number: usize) -> Result<()> {
        let mut instance = self.cluster.postgres.standby(&format!("pg{number}"))?;
        let disk = self.has_disks.then(DataDisk::new).transpose()?;
        if let Some(disk) = &disk {
            instance.move_data(disk.disk.path())?;
        }
        self.links
            .lead(End::Database(number), loopback(instance.port()));
        self.standbys.push(Database {
            number,
            instance,
            disk,
        });
        Ok(())
    }

    /// Takes all free space of the primary's disk.
    pub(super) fn fill_disk(&self) -> Result<()> {
        let disk = self
            .primary_disk
            .as_ref()
            .context("it has no disk of its own")?;
        disks::take_free_space(&disk.disk.path().join(BALLAST))
    }

    /// Frees the space, and starts the primary again if it has ended.
    pub(super) fn free_disk(&mut self) -> Result<()> {
        let disk = self
            .primary_disk
            .as_ref()
            .context("it has no disk of its own")?;
        fs::remove_file(disk.disk.path().join(BALLAST))?;
        Ok(self.cluster.postgres.start_if_ended()?)
    }

    /// Stops the pooler, and starts another one; without one, nothing happens.
    pub(super) fn restart_pooler(&mut self) -> Result<()> {
        if self.pooler.take().is_some() {
            self.start_pooler()?;
        }
        Ok(())
    }

    /// Puts a pooler before the primary.
    fn start_pooler(&mut self) -> Result<()> {
        let pooler = Pooler::start(&self.cluster.postgres, "ganger_node", PASSWORD, POOL)?;
        self.links
            .lead(End::Database(self.primary), loopback(pooler.port()));
        self.pooler = Some(pooler);
        Ok(())
    }

    /// Lets commits wait for standbys, and waits until all are there.
    fn confirm_by_standbys(&self) -> Result<()> {
        self.links
            .lead(End::Database(0), loopback(self.cluster.postgres.port()));
        if self.standbys.is_empty() {
            return Ok(());
        }
        let names = (0..=self.standbys.len()).map(|number| format!("pg{number}"));
        let setting = format!(
            "ALTER SYSTEM SET synchronous_standby_names = 'ANY {} ({})'",
            self.confirming,
            names.collect::<Vec<_>>().join(", ")
        );
        let others = self.standbys.iter().map(|standby| &standby.instance);
        for server in others.chain([&self.cluster.postgres]) {
            server.sql("postgres", &setting)?;
            server.sql("postgres", "SELECT pg_reload_conf()")?;
        }
        self.wait_for_standbys()
    }

    /// Waits until all standbys can confirm commits.
    pub(crate) fn wait_for_standbys(&self) -> Result<()> {
        let standbys = self.standbys.len().to_string();
        wait_for("the standbys", || {
            let sql =
                "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
            Ok((self.cluster.sql(sql)? == standbys).then_some(()))
        })
    }

    fn add_node(&mut self, number: usize) -> Result<()> {
        let directory = self.directory.path().join(node_name(number));
        fs::create_dir(&directory)?;
        let mut setup = self.cluster.member(
            &directory,
            &node_name(number),
            &format!("{}s", LEASE.as_secs()),
        )?;
        let hosts: Result<Vec<String>> = (0..=self.standbys.len())
            .map(|database| Ok(self.links.to_database(number, database)?.to_string()))
            .collect();
        let own = format!("127.0.0.1:{}", self.cluster.postgres.port());
        setup.arguments[1] = setup.arguments[1].replace(&own, &hosts?.join(","));
        if self.pooler.is_some() {
            setup
                .variables
                .push(("GANGER_STORE_PREPARED".to_owned(), "false".to_owned()));
        }
        let advertised = self.links.to_node(number)?;
        self.links.lead(End::Node(number), setup.address);
        setup
            .arguments
            .extend(["--advertise".to_owned(), advertised.to_string()]);
        let clock = directory.join("clock");
        let mut server = setup.spawn()?;
        self.links.is_process(number, server.id());
        server.wait_until_ready(TIMEOUT)?;
        self.nodes.push(Node {
            setup,
            server,
            clock,
        });
        Ok(())
    }

    /// Stops all nodes in order; none may have panicked.
    pub(crate) fn stop(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.server
                .stop()
                .with_context(|| node.setup.log.display().to_string())?;
            node.setup.expect_no_panic()?;
        }
        Ok(())
    }
}

/// Variables of a process whose wall clock a file sets. Its other clocks stay right.
fn clock_variables(file: &Path) -> [(String, String); 4] {
    [
        ("LD_PRELOAD", CLOCK_LIBRARY.to_owned()),
        ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
        ("FAKETIME_CACHE_DURATION", "1".to_owned()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// Name of a node.
pub(super) fn node_name(number: usize) -> String {
    format!("n{number}")
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

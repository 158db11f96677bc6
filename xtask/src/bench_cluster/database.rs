//! A private PostgreSQL with the tables of a cluster of one shard.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use ganger_postgres_instance::{Instance, unavailable_reason};

use super::program;
use crate::bench_peers::scratch::Scratch;
use crate::process::output;

const NAME: &str = "ganger";
/// Name of the standby.
const STANDBY: &str = "standby_1";
/// Password of the role of the nodes.
const PASSWORD: &str = "a secret of nodes";

/// A private PostgreSQL with the tables of a cluster of one shard, and with a synchronous standby if it has one.
pub(super) struct Database {
    primary: Instance,
    /// Runs until it is dropped.
    standby: Option<Instance>,
    directory: PathBuf,
}

impl Database {
    pub(super) fn start(scratch: &Scratch, has_standby: bool) -> Result<Self> {
        if let Some(reason) = unavailable_reason() {
            bail!("{reason}");
        }
        // As much as PostgreSQL has as installed; instances of tests have less.
        let primary = Instance::start_with("shared_buffers = 128MB\n")?;
        primary.create_database(NAME)?;
        let directory = scratch.directory(if has_standby { "pair" } else { "single" })?;
        fs::write(directory.join("password"), PASSWORD)?;
        fs::write(directory.join("insert.sql"), INSERT)?;
        let mut database = Self {
            primary,
            standby: None,
            directory,
        };
        database.make_tables()?;
        if has_standby {
            database.standby = Some(database.primary.standby(STANDBY)?);
            let setting = format!("alter system set synchronous_standby_names = '{STANDBY}'");
            database.primary.sql("postgres", &setting)?;
            database
                .primary
                .sql("postgres", "select pg_reload_conf()")?;
        }
        Ok(database)
    }

    fn make_tables(&self) -> Result<()> {
        let host = self.primary.socket_directory().display().to_string();
        let host = host.replace('/', "%2F");
        let store = format!("postgres://postgres@{host}:{}/{NAME}", self.primary.port());
        output(
            Command::new(program())
                .args(["cluster", "init", "--store", &store])
                .args([
                    "--cluster",
                    "bench",
                    "--shards",
                    "1",
                    "--node-password-file",
                ])
                .arg(self.directory.join("password")),
        )?;
        self.primary.sql(
            NAME,
            "create table bare (id bigserial primary key, payload text not null)",
        )?;
        Ok(())
    }

    /// Names the database to a server.
    pub(super) fn name_to(&self, command: &mut Command, node: &str) {
        let port = self.primary.port();
        command
            .args([
                "--store",
                &format!("postgres://ganger_node@127.0.0.1:{port}/{NAME}"),
            ])
            .args(["--node", node, "--store-password-file"])
            .arg(self.directory.join("password"));
    }

    /// Process id of the primary.
    pub(super) fn process(&self) -> Result<u32> {
        Ok(self.primary.process()?)
    }

    /// Inserts single rows by a prepared statement, one by one; returns the average time of one in ms.
    pub(super) fn insert_time(&self, seconds: f64) -> Result<f64> {
        let printed = output(
            self.primary
                .program("pgbench")
                .args([
                    "--no-vacuum",
                    "--protocol",
                    "prepared",
                    "--client",
                    "1",
                    "--file",
                ])
                .arg(self.directory.join("insert.sql"))
                .args([
                    "--time",
                    &format!("{seconds:.0}"),
                    "--username",
                    "postgres",
                    "--host",
                ])
                .arg(self.primary.socket_directory())
                .args(["--port", &self.primary.port().to_string(), NAME]),
        )?;
        let line = printed
            .lines()
            .find_map(|line| line.strip_prefix("latency average = "));
        let number = line.and_then(|line| line.split(' ').next());
        let number = number.with_context(|| format!("pgbench said: {printed}"))?;
        Ok(number.parse()?)
    }
}

/// Inserts a row with a text of 200 bytes.
const INSERT: &str = "insert into bare (payload) values (repeat('x', 200));\n";

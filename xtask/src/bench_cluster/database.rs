//! A private PostgreSQL with the tables of a cluster of one shard.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_bench::cpu_of;
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

    /// CPU seconds of the session that appended last to the log; `None` before there is one.
    pub(super) fn append_cpu(&self) -> Result<Option<f64>> {
        let sql = "select pid from pg_stat_activity where usename = 'ganger_node'
            and position('insert into ganger_s_1.log_' in lower(query)) > 0";
        let processes = self.primary.sql(NAME, sql)?;
        let process = processes.lines().next().map(str::parse).transpose()?;
        Ok(process.map(cpu_of).transpose()?)
    }

    /// Bytes of the whole database on the disk.
    pub(super) fn size(&self) -> Result<u64> {
        let sql = format!("select pg_database_size('{NAME}')");
        Ok(self.primary.sql(NAME, &sql)?.parse()?)
    }

    /// Starts a session that holds a snapshot until it is ended.
    pub(super) fn hold_snapshot(&self) -> Result<Child> {
        let statements = "begin isolation level repeatable read; select count(*) from bare;
            select pg_sleep(1000000)";
        Ok(self.primary.start_sql(NAME, statements)?)
    }

    /// Ends the session that holds a snapshot.
    pub(super) fn drop_snapshot(&self, mut session: Child) -> Result<()> {
        let sql = "select pg_terminate_backend(pid) from pg_stat_activity
            where query like '%pg_sleep(1000000)%' and pid <> pg_backend_pid()";
        self.primary.sql(NAME, sql)?;
        session.wait()?;
        Ok(())
    }

    /// A program that inserts single rows by a prepared statement over one connection for a time.
    fn pgbench(&self, seconds: f64) -> Command {
        let mut command = self.primary.program("pgbench");
        command
            .args(["--no-vacuum", "--protocol", "prepared", "--client", "1"])
            .args(["--time", &format!("{seconds:.0}"), "--file"])
            .arg(self.directory.join("insert.sql"))
            .args(["--username", "postgres", "--host"])
            .arg(self.primary.socket_directory())
            .args(["--port", &self.primary.port().to_string()]);
        command
    }

    /// Inserts single rows at a steady rate; returns the median of their times in ms, from when each was sent.
    pub(super) fn paced_insert_time(&self, a_second: u32, seconds: f64) -> Result<f64> {
        // The user of the database can write there.
        let directory = self.primary.socket_directory();
        output(
            self.pgbench(seconds)
                .args(["--rate", &a_second.to_string(), "--log", "--log-prefix"])
                .arg(directory.join(TIMES))
                .arg(NAME),
        )?;
        let mut times = Vec::new();
        for file in fs::read_dir(directory)? {
            let file = file?;
            if !file.file_name().to_string_lossy().starts_with(TIMES) {
                continue;
            }
            for line in fs::read_to_string(file.path())?.lines() {
                // Client, transaction, time, script, two of the moment, and by how much it was late, in us.
                let words: Vec<&str> = line.split(' ').collect();
                let [_, _, time, _, _, _, late] = words[..] else {
                    bail!("pgbench logged {line:?}");
                };
                times.push((time.parse::<f64>()? - late.parse::<f64>()?) / 1e3);
            }
            fs::remove_file(file.path())?;
        }
        ensure!(!times.is_empty(), "pgbench logged nothing");
        Ok(super::median(times))
    }

    /// Inserts single rows by a prepared statement, one by one; returns the average time of one in ms.
    pub(super) fn insert_time(&self, seconds: f64) -> Result<f64> {
        let printed = output(self.pgbench(seconds).arg(NAME))?;
        let line = printed
            .lines()
            .find_map(|line| line.strip_prefix("latency average = "));
        let number = line.and_then(|line| line.split(' ').next());
        let number = number.with_context(|| format!("pgbench said: {printed}"))?;
        Ok(number.parse()?)
    }
}

/// Beginning of the names of files with the times of insertions.
const TIMES: &str = "times";
/// Inserts a row with a text of 200 bytes.
const INSERT: &str = "insert into bare (payload) values (repeat('x', 200));\n";

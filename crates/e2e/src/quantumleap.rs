//! A server with QuantumLeap's port, a pool of workers, and a private PostgreSQL: the whole way of a notification.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ganger_postgres_instance::{Instance, missing};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::command;
use crate::http::Client;
use crate::ports::free_addresses;
use crate::server::{PATIENCE, Setup, tail};
use crate::skip::skipped;

/// All that a notification meets.
pub struct World {
    /// What the server is started with.
    pub setup: Setup,
    /// Where it takes notifications.
    pub port: SocketAddr,
    /// The PostgreSQL server that stores the rows.
    pub postgres: Instance,
    /// Where files of the test may go.
    pub directory: TempDir,
}

impl World {
    /// A database and a server that is not started yet, which queues and has these further variables. `None`, said
    /// aloud, where there is no PostgreSQL.
    pub fn new(test: &str, variables: &[(&str, &str)]) -> Result<Option<Self>> {
        if let Some(reason) = missing() {
            skipped(test, &reason);
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        let postgres = Instance::start()?;
        let mut setup = Setup::in_directory(directory.path())?;
        let addresses = free_addresses(2)?;
        setup.address = addresses[0];
        setup.arguments = vec!["--quantumleap".to_owned(), addresses[1].to_string()];
        let mut world = Self {
            setup,
            port: addresses[1],
            postgres,
            directory,
        };
        world.setup.variables = world.database_variables();
        let offload = ("WQ_OFFLOAD_WORK".to_owned(), "true".to_owned());
        world.setup.variables.push(offload);
        let more = variables.iter();
        let more = more.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        world.setup.variables.extend(more);
        Ok(Some(world))
    }

    /// The variables that say where the database is.
    pub fn database_variables(&self) -> Vec<(String, String)> {
        let database = self.postgres.database();
        let pairs = [
            ("POSTGRES_HOST", database.host),
            ("POSTGRES_PORT", database.port.to_string()),
            ("POSTGRES_DB_NAME", database.name),
            ("POSTGRES_DB_USER", database.user),
            ("POSTGRES_DB_PASS", database.password),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).into()
    }

    /// Starts a pool of workers.
    pub fn pool(&self, arguments: &[&str]) -> Result<Pool> {
        let log = self.directory.path().join("pool.log");
        let file = File::options().create(true).append(true).open(&log)?;
        let child = self
            .pool_command(arguments)
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("the pool cannot be started")?;
        Ok(Pool { child, log })
    }

    /// The command that runs a pool.
    pub fn pool_command(&self, arguments: &[&str]) -> Command {
        let server = self.setup.address.to_string();
        let mut pool = command(&["worker", "--ngsi", "--server", &server], &[]);
        pool.args(arguments).envs(self.database_variables());
        pool
    }

    /// A client of the port on a connection of its own.
    pub fn client(&self) -> Client {
        Client::new(self.port, Duration::from_secs(20))
    }

    /// Asks with curl, as people do; `path` begins with a slash.
    pub fn curl(&self, path: &str, arguments: &[&str]) -> Result<Answer> {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .args(["--write-out", "\n%{http_code}"])
            .args(arguments)
            .arg(format!("http://{}{path}", self.port))
            .stdin(Stdio::null())
            .output()
            .context("curl cannot be started")?;
        ensure!(
            output.status.success(),
            "curl {path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout)?;
        let (body, status) = text.rsplit_once('\n').context("no status")?;
        Ok(Answer {
            status: status.parse()?,
            body: body.to_owned(),
        })
    }

    /// Notifies of a room, with curl.
    pub fn notify(&self, room: &str, headers: &[&str]) -> Result<Answer> {
        let body = notification(room).to_string();
        let mut arguments = vec!["-H", "Content-Type: application/json", "-d", &body];
        for header in headers {
            arguments.extend(["-H", header]);
        }
        self.curl("/v2/notify", &arguments)
    }

    /// The number of tasks, of all tenants; `query` narrows it.
    pub fn count(&self, query: &str) -> Result<u64> {
        let answer = self.curl(&format!("/wq/notifications/count{query}"), &[])?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.body.trim().parse()?)
    }

    /// What a statement finds in the database.
    pub fn sql(&self, statement: &str) -> Result<String> {
        Ok(self.postgres.sql("quantumleap", statement)?)
    }

    /// Rows of rooms without a tenant; none while there is no table.
    pub fn rooms(&self) -> Result<u64> {
        let is_there = self.sql("select to_regclass('public.etroom') is not null")?;
        if is_there != "t" {
            return Ok(0);
        }
        Ok(self.sql("select count(*) from public.etroom")?.parse()?)
    }
}

/// A notification of one entity.
pub fn notification(room: &str) -> Value {
    json!({
        "subscriptionId": "e2e",
        "data": [{
            "id": room,
            "type": "Room",
            "temperature": { "type": "Number", "value": 23.3 },
            "pressure": { "type": "Integer", "value": 720 },
        }],
    })
}

/// What curl was told.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status of the answer.
    pub status: u16,
    /// Body of the answer, as text.
    pub body: String,
}

impl Answer {
    /// The items of a list, whose framing must be the one that clients rely on.
    pub fn items(&self) -> Result<Vec<Value>> {
        ensure!(self.status == 200, "{self:?}");
        let inner = self.body.strip_prefix("[\n").context("no opening line")?;
        let inner = inner.strip_suffix("null\n]").context("no terminator")?;
        let items = inner.lines().map(|line| {
            let item = line.strip_suffix(',').context("no comma")?;
            Ok(serde_json::from_str(item)?)
        });
        items.collect()
    }
}

/// A pool of workers; killed when dropped.
#[derive(Debug)]
pub struct Pool {
    child: Child,
    log: PathBuf,
}

impl Pool {
    /// Process id of the server.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The processes that insert for it now.
    pub fn children(&self) -> Result<Vec<i32>> {
        children(self.id())
    }

    /// What all pools of this test have written so far.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Kills one of its children, if it has one just now.
    pub fn kill_child(&self) -> Result<bool> {
        let Some(child) = self.children()?.first().copied().and_then(Pid::from_raw) else {
            return Ok(false);
        };
        Ok(kill_process(child, Signal::KILL).is_ok())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(
                begun.elapsed() < PATIENCE * 2,
                "the pool has not ended:\n{}",
                tail(&self.log_text())
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Asks it to stop, and expects that it ends well.
    pub fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let status = self.wait()?;
        ensure!(
            status.success(),
            "the pool stopped with {status}:\n{}",
            tail(&self.log_text())
        );
        Ok(())
    }

    /// Kills it with signal 9, and waits until it is gone.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processes that a process has started and that have not ended.
pub fn children(parent: u32) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let id = name.to_str().and_then(|name| name.parse().ok());
        if let Some(id) = id
            && parent_of(id) == Some(parent)
        {
            found.push(id);
        }
    }
    Ok(found)
}

/// The parent of a process that has not ended.
pub fn parent_of(process: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    (!has_ended).then_some(parent)
}

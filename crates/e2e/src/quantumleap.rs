//! A server with QuantumLeap's port, a pool of workers, and a private PostgreSQL.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use ganger_postgres_instance::{Instance, unavailable_reason};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command::command;
use crate::http::Client;
use crate::ports::free_addresses;
use crate::server::{Setup, TIMEOUT, tail};
use crate::skip::note_skip;

/// Everything between a notification and its rows.
pub struct TestBed {
    /// Setup of the server.
    pub setup: Setup,
    /// Address of QuantumLeap's port.
    pub port: SocketAddr,
    /// The PostgreSQL server that stores the rows.
    pub postgres: Instance,
    /// Directory for files of the test.
    pub directory: TempDir,
}

impl TestBed {
    /// Starts a database and prepares a server, which queues notifications and has these additional variables. Without
    /// PostgreSQL it records that the test is skipped and returns `None`.
    pub fn new(test: &str, variables: &[(&str, &str)]) -> Result<Option<Self>> {
        if let Some(reason) = unavailable_reason() {
            note_skip(test, &reason);
            return Ok(None);
        }
        let directory = tempfile::tempdir()?;
        let postgres = Instance::start()?;
        let mut setup = Setup::in_directory(directory.path())?;
        let addresses = free_addresses(2)?;
        setup.address = addresses[0];
        setup.arguments = vec!["--quantumleap".to_owned(), addresses[1].to_string()];
        let mut test_bed = Self {
            setup,
            port: addresses[1],
            postgres,
            directory,
        };
        test_bed.setup.variables = test_bed.database_variables();
        let offload = ("WQ_OFFLOAD_WORK".to_owned(), "true".to_owned());
        test_bed.setup.variables.push(offload);
        let more = variables.iter();
        let more = more.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        test_bed.setup.variables.extend(more);
        Ok(Some(test_bed))
    }

    /// Returns the variables with address and login of the database.
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
            .context("cannot start the pool")?;
        Ok(Pool { child, log })
    }

    /// Returns the command that runs a pool.
    pub fn pool_command(&self, arguments: &[&str]) -> Command {
        let server = self.setup.address.to_string();
        let mut pool = command(&["worker", "--ngsi", "--server", &server], &[]);
        pool.args(arguments).envs(self.database_variables());
        pool
    }

    /// Returns a client of QuantumLeap's port.
    pub fn client(&self) -> Client {
        Client::new(self.port, Duration::from_secs(20))
    }

    /// Sends a request with curl, as users do; `path` begins with a slash.
    pub fn curl(&self, path: &str, arguments: &[&str]) -> Result<CurlResponse> {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .args(["--write-out", "\n%{http_code}"])
            .args(arguments)
            .arg(format!("http://{}{path}", self.port))
            .stdin(Stdio::null())
            .output()
            .context("cannot start curl")?;
        ensure!(
            output.status.success(),
            "curl {path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout)?;
        let (body, status) = text.rsplit_once('\n').context("no status")?;
        Ok(CurlResponse {
            status: status.parse()?,
            body: body.to_owned(),
        })
    }

    /// Sends the notification of a room with curl.
    pub fn notify(&self, room: &str, headers: &[&str]) -> Result<CurlResponse> {
        let body = notification(room).to_string();
        let mut arguments = vec!["-H", "Content-Type: application/json", "-d", &body];
        for header in headers {
            arguments.extend(["-H", header]);
        }
        self.curl("/v2/notify", &arguments)
    }

    /// Returns the number of tasks of all tenants that match `query`.
    pub fn count(&self, query: &str) -> Result<u64> {
        let answer = self.curl(&format!("/wq/notifications/count{query}"), &[])?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.body.trim().parse()?)
    }

    /// Runs a statement in the database and returns its rows.
    pub fn sql(&self, statement: &str) -> Result<String> {
        Ok(self.postgres.sql("quantumleap", statement)?)
    }

    /// Returns the number of rows of rooms without a tenant; 0 while there is no table.
    pub fn rooms(&self) -> Result<u64> {
        let is_there = self.sql("select to_regclass('public.etroom') is not null")?;
        if is_there != "t" {
            return Ok(0);
        }
        Ok(self.sql("select count(*) from public.etroom")?.parse()?)
    }
}

/// Returns a notification of one entity.
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

/// An answer received by curl.
#[derive(Clone, Debug)]
pub struct CurlResponse {
    /// HTTP status of the answer.
    pub status: u16,
    /// Body of the answer, as text.
    pub body: String,
}

impl CurlResponse {
    /// Returns the items of a list, whose framing must be exactly as documented.
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
    /// Returns the process id of the pool.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process ids of the children.
    pub fn children(&self) -> Result<Vec<i32>> {
        children(self.id())
    }

    /// Returns the log of all pools of the test so far.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Kills a child; returns false if there is none.
    pub fn kill_child(&self) -> Result<bool> {
        let Some(child) = self.children()?.first().copied().and_then(Pid::from_raw) else {
            return Ok(false);
        };
        Ok(kill_process(child, Signal::KILL).is_ok())
    }

    /// Waits for the end of the pool.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(
                begun.elapsed() < TIMEOUT * 2,
                "the pool has not ended:\n{}",
                tail(&self.log_text())
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends SIGTERM and expects a successful exit.
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

    /// Kills the pool with SIGKILL and waits for its end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the running child processes of a process.
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

/// Returns the parent of a process; `None` if the process has ended.
pub fn parent_of(process: i32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    let parent = fields.next()?.parse().ok()?;
    (!has_ended).then_some(parent)
}

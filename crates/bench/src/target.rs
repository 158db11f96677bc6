//! The server under load: one of our own in a fresh directory, or one that runs.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ganger_client::{Client, Options, Retry};

use crate::http::Http;
use crate::{Error, Plan, Used, cpu_of};

/// A server that has not answered after so long has not started.
const START_WITHIN: Duration = Duration::from_secs(20);

/// The server under load. Our own ends, and its directory goes, when this is dropped.
pub(crate) struct Target {
    program: PathBuf,
    options: Options,
    dir: PathBuf,
    own: Option<Child>,
    pid: Option<u32>,
}

impl Target {
    /// The server of a plan: the one that runs at its address, or one of our own.
    pub(crate) async fn start(plan: &Plan) -> Result<Self, Error> {
        let dir = plan
            .dir
            .join(format!("ganger-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| Error::file(&dir, error))?;
        let mut target = Self {
            program: plan.program.clone(),
            options: Options::default(),
            dir,
            own: None,
            pid: plan.server_pid,
        };
        if let Some(options) = &plan.attach {
            target.options = options.clone();
            return Ok(target);
        }
        let addr = free_address()?;
        let db = target.dir.join("bench.db");
        let child = spawn_server(&target.program, &addr, &db, &["--log", "warn"])?;
        target.pid = Some(child.id());
        target.own = Some(child);
        target.options = Options::new(addr);
        until_ready(&target.options).await?;
        Ok(target)
    }

    /// A client with a connection of its own.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        Client::new(self.options.clone()).map_err(Into::into)
    }

    /// An HTTP connection.
    pub(crate) async fn http(&self) -> Result<Http, Error> {
        let mut headers = format!("Ganger-Namespace: {}\r\n", self.options.namespace);
        if let Some(token) = &self.options.token {
            headers = format!("{headers}Authorization: Bearer {token}\r\n");
        }
        Http::connect(&self.options.url, &headers).await
    }

    /// The program that is started as a server.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    pub(crate) fn address(&self) -> &str {
        &self.options.url
    }

    /// What it has used so far.
    pub(crate) async fn used(&self) -> Used {
        Used {
            cpu: self.pid.and_then(cpu_of),
            commits: self.commits().await,
        }
    }

    /// From its own metrics. Nothing if they cannot be read: for lack of a right, or behind TLS.
    async fn commits(&self) -> Option<f64> {
        let mut http = self.http().await.ok()?;
        let metrics = http.get("/metrics").await.ok()?;
        // A line a shard.
        let lines = str::from_utf8(metrics).ok()?.lines();
        lines
            .filter(|line| line.starts_with("ganger_commits_total{"))
            .map(|line| line.rsplit_once(' ')?.1.trim().parse::<f64>().ok())
            .sum()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some(child) = &mut self.own {
            // It may have ended by itself; there is nobody left to tell either way.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Starts the program as a server with a store at `db`.
pub(crate) fn spawn_server(
    program: &Path,
    addr: &str,
    db: &Path,
    more: &[&str],
) -> Result<Child, Error> {
    let child = Command::new(program)
        .args(["server", "--addr", addr, "--db"])
        .arg(db)
        .args(more)
        .env_remove("GANGER_CONFIG")
        .env_remove("GANGER_TOKEN")
        .env_remove("GANGER_TOKEN_FILE")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    Ok(child)
}

/// Waits until a server that was started answers.
pub(crate) async fn until_ready(options: &Options) -> Result<Client, Error> {
    let retry = Retry {
        total_max: START_WITHIN,
        ..Retry::default()
    };
    let options = Options {
        retry,
        ..options.clone()
    };
    Client::connect(options).await.map_err(Into::into)
}

pub(crate) fn free_address() -> Result<String, Error> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.to_string())
}

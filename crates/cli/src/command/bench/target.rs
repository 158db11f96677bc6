//! The server under load: one of our own in a fresh directory, or one that runs.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ganger_client::{Client, Options, Retry};

use crate::command::bench::BenchArgs;
use crate::command::bench::http::Http;
use crate::context::Context;
use crate::exit::Failure;

/// A server that has not answered after so long has not started.
const START_WITHIN: Duration = Duration::from_secs(20);

/// The unit of CPU times in `/proc`: `USER_HZ`, 100 a second on Linux.
const TICKS_A_SECOND: f64 = 100.0;

/// What the server has used so far, or for something.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    /// CPU seconds, if its process is known.
    pub(super) cpu: Option<f64>,
    /// Commits, each one flush; not known of a server whose metrics cannot be read.
    pub(super) commits: Option<f64>,
}

impl Used {
    pub(super) fn since(self, before: Self) -> Self {
        let since = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        Self {
            cpu: since(self.cpu, before.cpu),
            commits: since(self.commits, before.commits),
        }
    }

    /// The same for one of so many jobs.
    pub(super) fn per_job(self, jobs: u64) -> Self {
        let jobs = u32::try_from(jobs).ok().filter(|jobs| *jobs > 0);
        let each = |used: Option<f64>| Some(used? / f64::from(jobs?));
        Self {
            cpu: each(self.cpu),
            commits: each(self.commits),
        }
    }
}

/// The server under load. Our own ends, and its directory goes, when this is dropped.
pub(super) struct Target {
    options: Options,
    dir: PathBuf,
    own: Option<Child>,
    pid: Option<u32>,
}

impl Target {
    pub(super) async fn start(context: &Context, args: &BenchArgs) -> Result<Self, Failure> {
        let dir = args
            .dir
            .join(format!("ganger-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| Failure::file(&dir, &error))?;
        let mut target = Self {
            options: context.options()?,
            dir,
            own: None,
            pid: args.server_pid,
        };
        if args.attach {
            context.client().await?;
            return Ok(target);
        }
        let addr = free_address()?;
        let child = spawn_server(&addr, &target.dir.join("bench.db"), &["--log", "warn"])?;
        target.pid = Some(child.id());
        target.own = Some(child);
        target.options = Options::new(addr);
        until_ready(&target.options).await?;
        Ok(target)
    }

    /// A client with a connection of its own.
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Client::new(self.options.clone()).map_err(Into::into)
    }

    /// How to reach it.
    pub(super) fn options(&self) -> &Options {
        &self.options
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    pub(super) fn address(&self) -> &str {
        &self.options.url
    }

    /// What it has used so far.
    pub(super) async fn used(&self) -> Used {
        Used {
            cpu: self.pid.and_then(cpu_of),
            commits: self.commits().await,
        }
    }

    /// From its own metrics. Nothing if they cannot be read: for lack of a right, or behind TLS.
    async fn commits(&self) -> Option<f64> {
        let mut http = Http::connect(&self.options).await.ok()?;
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

/// Starts this program as a server with a store at `db`.
pub(super) fn spawn_server(addr: &str, db: &Path, more: &[&str]) -> Result<Child, Failure> {
    let child = Command::new(std::env::current_exe()?)
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
pub(super) async fn until_ready(options: &Options) -> Result<Client, Failure> {
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

/// CPU seconds that a process has used.
pub(super) fn cpu_of(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; times are the 14th and 15th field.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((f64::from(user) + f64::from(system)) / TICKS_A_SECOND)
}

pub(super) fn free_address() -> Result<String, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.to_string())
}

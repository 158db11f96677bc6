//! Settings of a pool.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ganger_client::{Options, ShardId};
use ganger_ngsi::job::QUEUE;

/// Maximum number of workers in a pool. Each is a process with a database session.
pub const WORKERS_MAX: usize = 1_024;

/// Settings of a pool.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How to reach the server.
    pub server: Options,
    /// The shard to lease tasks from; `None` for the server's own, or the first of several.
    pub shard: Option<ShardId>,
    /// Name of the pool; `None` for the host name and a random suffix.
    pub name: Option<String>,
    /// The queue to lease tasks from.
    pub queue: String,
    /// Number of workers, each a process that inserts.
    pub workers: usize,
    /// Whether the pool ends once no task is ready or running here.
    pub is_burst: bool,
    /// Number of attempts after which the pool ends; `None` for no limit.
    pub tasks_max: Option<u64>,
    /// Directory for samples of durations; `None` for none.
    pub telemetry: Option<PathBuf>,
    /// Address at which the metrics are served; `None` for none.
    pub metrics: Option<SocketAddr>,
    /// The program that inserts.
    pub program: Program,
    /// Longest insert before its process is killed. The process itself gives up after 180 s, so this only affects a process
    /// that hangs.
    pub patience: Duration,
    /// Pause after a first failed start, and increment of the pause after each further one in a row.
    pub restart_pause: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: Options::default(),
            shard: None,
            name: None,
            queue: QUEUE.into(),
            workers: 1,
            is_burst: false,
            tasks_max: None,
            telemetry: None,
            metrics: None,
            program: Program::default(),
            patience: Duration::from_secs(190),
            restart_pause: Duration::from_secs(1),
        }
    }
}

/// How a child process is started: the same binary with a hidden command.
#[derive(Clone, Default)]
pub struct Program {
    /// Path of the binary to start.
    pub path: PathBuf,
    /// Arguments of the program. Every user of the machine can read them, so they must hold no secret.
    pub arguments: Vec<OsString>,
    /// Additional variables of its environment, such as the database's password.
    pub variables: Vec<(String, String)>,
    /// Variables that it does not inherit from this process.
    pub hidden: Vec<String>,
}

/// Hides the values of variables.
impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program")
            .field("path", &self.path)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

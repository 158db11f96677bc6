//! What a pool is told.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ganger_client::{Options, ShardId};
use ganger_ngsi::job::QUEUE;

/// Workers in a pool at most. Each is a process, and a session of the database.
pub const WORKERS_MAX: usize = 1_024;

/// What a pool is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How to reach the server.
    pub server: Options,
    /// The shard that it takes tasks of; `None`: the server's own, or the first of several.
    pub shard: Option<ShardId>,
    /// Its name; `None`: host name plus something random.
    pub name: Option<String>,
    /// From which queue it takes.
    pub queue: String,
    /// Workers: processes that insert at the same time.
    pub workers: usize,
    /// Ends once nothing is ready and nothing runs here.
    pub is_burst: bool,
    /// Ends after so many attempts.
    pub tasks_max: Option<u64>,
    /// Where samples of durations go.
    pub telemetry: Option<PathBuf>,
    /// Where its numbers can be read.
    pub metrics: Option<SocketAddr>,
    /// The program that inserts.
    pub program: Program,
    /// How long an insert may take before its process is killed. The process itself gives up after 180 s, so this is
    /// for one that does not even do that.
    pub patience: Duration,
    /// The pause after a first start that failed; after each further one in a row it is longer by as much.
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

/// How the process that inserts is started: the same binary again, with a command that people do not see.
#[derive(Clone, Default)]
pub struct Program {
    /// Path of the binary to start.
    pub path: PathBuf,
    /// Its arguments. Everyone on the machine may read them: nothing secret goes here.
    pub arguments: Vec<OsString>,
    /// Variables that are set for it besides ours: here the database's password goes.
    pub variables: Vec<(String, String)>,
    /// Variables of ours that it does not get.
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

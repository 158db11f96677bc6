//! What a worker is told.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ganger_client::{Options, ShardId, TakeFrom, TakeMode};

use crate::handler::Handlers;
use crate::metrics::Metrics;
use crate::random;

/// What a worker is told.
#[derive(Clone)]
pub struct Settings {
    /// How to reach the server.
    pub server: Options,
    /// The shard that it takes jobs of; `None`: the server's own, or the first of several.
    pub shard: Option<ShardId>,
    /// Its name; `None`: host name plus something random.
    pub name: Option<String>,
    /// Where the programs are. Default `/etc/ganger/worker.d`.
    pub directory: PathBuf,
    /// From which queues it takes. Default: `default`.
    pub queues: Vec<TakeFrom>,
    /// In which manner it takes from them.
    pub mode: TakeMode,
    /// Programs at a time. Default: one for each core.
    pub concurrency: usize,
    /// Length of the leases; `None`: the queue's.
    pub lease_for: Option<Duration>,
    /// Between asking a program to end and killing it. Default 10 s.
    pub grace: Duration,
    /// Where working directories are made. Default: the system's place for temporary files.
    pub scratch: PathBuf,
    /// Names of variables that programs inherit besides the usual ones.
    pub pass_env: Vec<String>,
    /// Settings by kind; `None`: from `handlers.toml` in `directory`, if it is there.
    pub handlers: Option<Handlers>,
    /// A job without a program here is offered again after this long. Default 30 s.
    pub no_handler_delay: Duration,
    /// Takes the worker's numbers, for those who show them.
    pub metrics: Arc<Metrics>,
    /// The binary that is started as supervisor. It must call [`crate::become_supervisor_if_asked`] first of all.
    /// Default: the running binary.
    pub supervisor: PathBuf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: Options::default(),
            shard: None,
            name: None,
            directory: "/etc/ganger/worker.d".into(),
            queues: vec![TakeFrom::new("default")],
            mode: TakeMode::Ordered,
            concurrency: std::thread::available_parallelism().map_or(1, usize::from),
            lease_for: None,
            grace: Duration::from_secs(10),
            scratch: std::env::temp_dir(),
            pass_env: Vec::new(),
            handlers: None,
            no_handler_delay: Duration::from_secs(30),
            metrics: Arc::default(),
            supervisor: "/proc/self/exe".into(),
        }
    }
}

/// The name of a worker that was given none: host name plus something random, new at each start.
pub fn make_name() -> String {
    // Without randomness the process's number still tells workers of one host apart.
    let tail =
        random::number().map_or_else(|_| u64::from(std::process::id()), |number| number >> 32);
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let host: String = host.chars().take(200).collect();
    format!("{host}-{tail:08x}")
}

//! Settings of a worker.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ganger_client::{Options, ShardId, TakeFrom, TakeMode};

use crate::handler::Handlers;
use crate::metrics::Metrics;
use crate::random;

/// Settings of a worker.
#[derive(Clone)]
pub struct Settings {
    /// How to reach the server.
    pub server: Options,
    /// The shard to lease jobs from; `None` for the server's own, or the first of several.
    pub shard: Option<ShardId>,
    /// Name of the worker; `None` for the host name and a random suffix.
    pub name: Option<String>,
    /// Directory of the programs. Default `/etc/ganger/worker.d`.
    pub directory: PathBuf,
    /// The queues to lease from. Default: `default`.
    pub queues: Vec<TakeFrom>,
    /// How the queues are combined.
    pub mode: TakeMode,
    /// Maximum number of programs at a time. Default: one for each core.
    pub concurrency: usize,
    /// Length of the leases; `None` for the queue's setting.
    pub lease_for: Option<Duration>,
    /// Time between asking a program to end and killing it. Default 10 s.
    pub grace: Duration,
    /// Directory in which working directories are made. Default: the system's directory for temporary files.
    pub scratch: PathBuf,
    /// Names of variables that programs inherit besides the standard ones.
    pub pass_env: Vec<String>,
    /// Settings by kind; `None` to read `handlers.toml` in `directory`, if it exists.
    pub handlers: Option<Handlers>,
    /// Delay until a job without a program is offered again. Default 30 s.
    pub no_handler_delay: Duration,
    /// The worker's metrics, shared with the code that serves them.
    pub metrics: Arc<Metrics>,
    /// The binary to start as supervisor. Its `main` must call [`crate::become_supervisor_if_asked`] first. Default:
    /// the running binary.
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

/// Returns a name for a worker without one: host name and a random suffix, new at each start.
pub fn make_name() -> String {
    // Without random bytes the process id still distinguishes workers of one host.
    let tail =
        random::number().map_or_else(|_| u64::from(std::process::id()), |number| number >> 32);
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let host: String = host.chars().take(200).collect();
    format!("{host}-{tail:08x}")
}

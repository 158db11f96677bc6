//! Settings of handlers: how the program of a kind runs, and within which limits.
//!
//! They are read from `handlers.toml`, by default in the directory of the programs:
//!
//! ```toml
//! [default]
//! memory = "1GiB"
//!
//! [handler.thumbnail]
//! mode = "fed"
//! wall_time = "30s"
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::Error;
use crate::supervise::{Limits, User};
use crate::units::{Bytes, Seconds, UserId};

/// How a kind's program receives its jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The program is started for each job: isolation first.
    #[default]
    Once,
    /// The program is started once and gets a line for each job: speed first.
    Fed,
}

/// How the programs of one kind are run. Since 0.1.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// How the program receives its jobs.
    pub mode: Mode,
    /// Longest run of a job, in addition to the job's own timeout; `None` (default) for no limit.
    pub wall_time: Option<Duration>,
    /// Maximum CPU time of each process, which then gets `SIGXCPU` and is killed 5 s later; `None` for no limit.
    pub cpu_time: Option<Duration>,
    /// Maximum memory of a run in bytes if control groups are available, otherwise maximum address space of each
    /// process; `None` for no limit.
    pub memory: Option<u64>,
    /// Maximum number of processes and threads of a run if control groups are available, otherwise of the user it
    /// runs as, which has no effect on root; `None` for no limit.
    pub processes: Option<u64>,
    /// Maximum number of open files of each process; `None` for the worker's own limit.
    pub open_files: Option<u64>,
    /// Maximum size in bytes of a file that a process writes; beyond it gets `SIGXFSZ`. `None` for no limit.
    pub file_size: Option<u64>,
    /// Maximum bytes in the working directory, which is then a file system in memory; only root may set this. `None`
    /// for no limit.
    pub directory_size: Option<u64>,
    /// Maximum bytes of a result. Default 1 MiB.
    pub result_bytes_max: u64,
    /// Maximum bytes of a run's log. Default 1 MiB.
    pub log_bytes_max: u64,
    /// Time between asking a program to end and killing it; `None` for the worker's setting.
    pub grace: Option<Duration>,
    /// Ids of the user and group that the program runs as; `None` for the worker's. Only root may change them.
    pub user: Option<(u32, u32)>,
    /// Whether the program may write only below its working directory.
    pub is_sandboxed: bool,
    /// Whether the program may send signals to processes outside its run, as far as its user may. Programs that run
    /// as root always may.
    pub may_signal: bool,
    /// Idle time after which a persistent program is ended. Default 60 s.
    pub idle_for: Duration,
}

impl Default for Handler {
    fn default() -> Self {
        Self {
            mode: Mode::Once,
            wall_time: None,
            cpu_time: None,
            memory: None,
            processes: None,
            open_files: None,
            file_size: None,
            directory_size: None,
            result_bytes_max: 1 << 20,
            log_bytes_max: 1 << 20,
            grace: None,
            user: None,
            is_sandboxed: false,
            may_signal: false,
            idle_for: Duration::from_secs(60),
        }
    }
}

impl Handler {
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            // The kernel counts whole seconds, so a limit below one second would be no limit.
            cpu_seconds: self.cpu_time.map(|time| time.as_secs().max(1)),
            memory_bytes: self.memory,
            processes: self.processes,
            open_files: self.open_files,
            file_bytes: self.file_size,
        }
    }

    /// Whether the kernel reports when a run reaches one of its limits.
    pub(crate) fn has_bounds(&self) -> bool {
        self.memory.is_some() || self.processes.is_some()
    }

    /// Whether the program can signal only its own run. Root is exempt: what it runs administers the machine.
    pub(crate) fn is_confined(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        let user = self.user.map_or(own, |(uid, _)| uid);
        !self.may_signal && user != 0
    }

    pub(crate) fn run_as(&self) -> Option<User> {
        self.user.map(|(uid, gid)| User { uid, gid })
    }
}

/// The settings of all kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Handlers {
    /// Settings of kinds without an entry.
    pub default: Handler,
    /// Settings of single kinds, by kind.
    pub by_kind: BTreeMap<String, Handler>,
}

impl Handlers {
    /// Returns the settings for a kind.
    pub fn of(&self, kind: &str) -> &Handler {
        self.by_kind.get(kind).unwrap_or(&self.default)
    }

    /// Whether any kind has bounds on memory or processes.
    pub(crate) fn have_bounds(&self) -> bool {
        self.default.has_bounds() || self.by_kind.values().any(Handler::has_bounds)
    }

    /// Reads settings from a file; `None` if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read, or has an unknown or invalid setting; the message names the line.
    pub fn read(path: &Path) -> Result<Option<Self>, Error> {
        let bad = |reason: String| Error::BadHandlers {
            path: path.into(),
            reason,
        };
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(&text).map(Some).map_err(bad),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(bad(error.to_string())),
        }
    }

    /// Reads settings from text.
    ///
    /// # Errors
    /// A description of the invalid setting with line and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        let written: HandlersFile = toml::from_str(text).map_err(|error| error.to_string())?;
        let default = written.default.over(&Handler::default());
        let by_kind = written.handler.into_iter();
        let by_kind = by_kind
            .map(|(kind, handler)| (kind, handler.over(&default)))
            .collect();
        Ok(Self { default, by_kind })
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HandlersFile {
    default: HandlerEntry,
    handler: BTreeMap<String, HandlerEntry>,
}

/// A table of the file; absent settings are inherited.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HandlerEntry {
    mode: Option<Mode>,
    wall_time: Option<Seconds>,
    cpu_time: Option<Seconds>,
    memory: Option<Bytes>,
    processes: Option<u64>,
    open_files: Option<u64>,
    file_size: Option<Bytes>,
    directory_size: Option<Bytes>,
    result_bytes_max: Option<Bytes>,
    log_bytes_max: Option<Bytes>,
    grace: Option<Seconds>,
    uid: Option<UserId>,
    gid: Option<UserId>,
    sandbox: Option<bool>,
    may_signal: Option<bool>,
    idle_for: Option<Seconds>,
}

impl HandlerEntry {
    fn over(self, base: &Handler) -> Handler {
        let time = |own: Option<Seconds>| own.map(|Seconds(time)| time);
        let bytes = |own: Option<Bytes>| own.map(|Bytes(count)| count);
        let own_user = self.uid.map(|uid| (uid.0, self.gid.unwrap_or(uid).0));
        Handler {
            mode: self.mode.unwrap_or(base.mode),
            wall_time: time(self.wall_time).or(base.wall_time),
            cpu_time: time(self.cpu_time).or(base.cpu_time),
            memory: bytes(self.memory).or(base.memory),
            processes: self.processes.or(base.processes),
            open_files: self.open_files.or(base.open_files),
            file_size: bytes(self.file_size).or(base.file_size),
            directory_size: bytes(self.directory_size).or(base.directory_size),
            result_bytes_max: bytes(self.result_bytes_max).unwrap_or(base.result_bytes_max),
            log_bytes_max: bytes(self.log_bytes_max).unwrap_or(base.log_bytes_max),
            grace: time(self.grace).or(base.grace),
            user: own_user.or(base.user),
            is_sandboxed: self.sandbox.unwrap_or(base.is_sandboxed),
            may_signal: self.may_signal.unwrap_or(base.may_signal),
            idle_for: time(self.idle_for).unwrap_or(base.idle_for),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_inherits_settings_that_it_does_not_set() {
        let text = "[default]\nmemory = \"1GiB\"\nwall_time = \"2m\"\n[handler.resize]\nmode = \"fed\"\nwall_time = 30\n";
        let handlers = Handlers::parse(text).expect("it is right");
        let resize = handlers.of("resize");
        assert_eq!((resize.mode, resize.memory), (Mode::Fed, Some(1 << 30)));
        assert_eq!(resize.wall_time, Some(Duration::from_secs(30)));
        assert_eq!(
            handlers.of("other").wall_time,
            Some(Duration::from_secs(120))
        );
    }

    #[test]
    fn a_setting_that_does_not_exist_is_refused_with_its_line() {
        let error = Handlers::parse("[default]\nmemroy = 1\n").expect_err("a typing mistake");
        assert!(
            error.contains("line 2") && error.contains("memroy"),
            "{error}"
        );
        assert!(Handlers::parse("[handler.x]\nmemory = \"lots\"\n").is_err());
        assert!(Handlers::parse("[handler.x]\ngrace = \"-1s\"\n").is_err());
        for (uid, gid) in [(u32::MAX, 1), (1, u32::MAX)] {
            let text = format!("[handler.x]\nuid = {uid}\ngid = {gid}\n");
            let error = Handlers::parse(&text).expect_err("it would leave the user as it is");
            assert!(error.contains("at most 4294967294"), "{error}");
        }
    }
}

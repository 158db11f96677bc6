//! A private pgbouncer in transaction mode, before a server.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::instance::{Instance, as_user, free_port, keeper, own};

/// Where Debian puts the program.
const PROGRAM: &str = "/usr/sbin/pgbouncer";
/// Time that it may take to start.
const START_MAX: Duration = Duration::from_secs(30);

/// A running pooler, which ends with its owner.
pub struct Pooler {
    port: u16,
    keeper: Child,
    _directory: TempDir,
}

/// Why no pooler can be run here; `None` if one can.
pub fn missing_pooler() -> Option<String> {
    (!Path::new(PROGRAM).exists()).then(|| format!("pgbouncer is not installed as {PROGRAM}"))
}

impl Pooler {
    /// Starts a pooler that gives each transaction of `user` one of `size` connections with the server.
    ///
    /// # Errors
    /// If it does not start; what it said is in the error.
    pub fn start(server: &Instance, user: &str, password: &str, size: u32) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("ganger-pooler").tempdir()?;
        let (port, path) = (free_port()?, directory.path());
        let users = path.join("users");
        fs::write(&users, format!("\"{user}\" \"{password}\"\n"))?;
        let log = path.join("log");
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = scram-sha-256\nauth_file = {}\npool_mode = transaction\n\
             default_pool_size = {size}\nlogfile = {}\nmax_client_conn = 100\n",
            server.port(),
            users.display(),
            log.display(),
        );
        let file = path.join("pgbouncer.ini");
        fs::write(&file, settings)?;
        own(path)?;
        own(&users)?;
        let mut command = as_user("/bin/sh");
        command
            .args(["-c", &keeper("TERM")])
            .arg(path)
            .args([PROGRAM, "-q"])
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut keeper = command.spawn()?;
        let deadline = Instant::now() + START_MAX;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if Instant::now() > deadline || keeper.try_wait()?.is_some() {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(io::Error::other(format!(
                    "pgbouncer does not start: {said}"
                )));
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(Self {
            port,
            keeper,
            _directory: directory,
        })
    }

    /// The port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        // It ends with its input, and what it was is of no use any more.
        let _ = self.keeper.wait();
    }
}

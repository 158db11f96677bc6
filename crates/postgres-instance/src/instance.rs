//! A private PostgreSQL server for tests: in a temporary directory, on a free loopback port, and stopped with its owner,
//! even if that is killed.
//!
//! The server is as durable as in production. All functions block. Statements run through `psql`, over a socket in the
//! directory that needs no password.

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

mod backup;
mod standstill;
#[cfg(test)]
mod tests;

/// Directory in which Debian installs the versions of PostgreSQL, each under its number.
const VERSIONS: &str = "/usr/lib/postgresql";
/// User that runs the server if the tests run as root, because PostgreSQL refuses to run as root.
const USER: &str = "postgres";
/// Name of the role and of the first database.
const ROLE: &str = "quantumleap";
const PASSWORD: &str = "*";
/// Longest time for a server to start or to stop.
const START_MAX: Duration = Duration::from_secs(60);

/// Starts the server, and stops it when the standard input is closed, which happens however the owner ends. Writes the
/// server's process id to the file [`STARTED`]. Removes the directory too, unless it reads the word `keep`.
///
/// The shell starts the server with the signal ignored. Until the server has its own handler a signal is lost, so it is
/// repeated until the server has ended.
const WATCHDOG: &str = r#""$@" & server=$!
echo "$server" > "$0/started"
read -r word
kill -QUIT "$server" 2>/dev/null
(while sleep 0.2 && kill -QUIT "$server"; do :; done) 2>/dev/null &
wait "$server"
[ "$word" = keep ] || rm -rf -- "$0""#;

/// Name of the file with the process id of the server that was launched last.
const STARTED: &str = "started";

/// Address of a database, and a role that may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// Address of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Name of the database.
    pub name: String,
    /// Role that owns the database.
    pub user: String,
    /// Password of the role.
    pub password: String,
}

/// A private server, running or stopped.
pub struct Instance {
    programs: PathBuf,
    directory: TempDir,
    port: u16,
    watchdog: Option<Child>,
}

/// Returns the reason why no server can run on this machine; `None` if one can.
pub fn unavailable_reason() -> Option<String> {
    if programs().is_none() {
        return Some(format!("PostgreSQL is not installed in {VERSIONS}"));
    }
    if is_root() && !Path::new("/usr/bin/setpriv").exists() {
        return Some("setpriv is missing, and PostgreSQL does not run as root".to_owned());
    }
    if is_root() && !has_user() {
        return Some(format!(
            "there is no user {USER}, and PostgreSQL does not run as root"
        ));
    }
    None
}

impl Instance {
    /// Creates and starts a server with the role and the database `quantumleap`, without PostGIS.
    ///
    /// # Errors
    /// If a program is missing (see [`unavailable_reason`]) or fails.
    pub fn start() -> io::Result<Self> {
        Self::start_with("")
    }

    /// [`Instance::start`] with further lines for `postgresql.conf`.
    ///
    /// # Errors
    /// See [`Instance::start`].
    pub fn start_with(settings: &str) -> io::Result<Self> {
        let programs = programs().ok_or_else(|| io::Error::other("PostgreSQL is missing"))?;
        let directory = tempfile::Builder::new().prefix("ganger-pg").tempdir()?;
        if is_root() {
            run(Command::new("chown").arg(USER).arg(directory.path()))?;
        }
        let mut instance = Self {
            programs,
            directory,
            port: free_port()?,
            watchdog: None,
        };
        instance.make_cluster()?;
        instance.add_settings(settings)?;
        instance.start_again()?;
        instance.sql(
            "postgres",
            &format!("create role {ROLE} login password '{PASSWORD}'"),
        )?;
        instance.create_database(ROLE)?;
        Ok(instance)
    }

    /// Returns the database that the server has from the start.
    pub fn database(&self) -> Login {
        self.database_named(ROLE)
    }

    /// Creates another database, owned by the role `quantumleap`.
    ///
    /// # Errors
    /// If the database exists already.
    pub fn create_database(&self, name: &str) -> io::Result<Login> {
        self.copy_database("template1", name)
    }

    /// Creates a database as a copy of another, which must not have sessions.
    ///
    /// # Errors
    /// If the database exists already, or the template does not.
    pub fn copy_database(&self, template: &str, name: &str) -> io::Result<Login> {
        let sql = format!("create database {name} template {template} owner {ROLE}");
        self.sql("postgres", &sql)?;
        Ok(self.database_named(name))
    }

    fn database_named(&self, name: &str) -> Login {
        Login {
            host: Ipv4Addr::LOCALHOST.to_string(),
            port: self.port,
            name: name.to_owned(),
            user: ROLE.to_owned(),
            password: PASSWORD.to_owned(),
        }
    }

    /// Runs statements in a database as superuser. Returns the rows, one per line, with values separated by `|`.
    ///
    /// # Errors
    /// If a statement fails, with the database's message.
    pub fn sql(&self, database: &str, statements: &str) -> io::Result<String> {
        let output = self.start_sql(database, statements)?.wait_with_output()?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(message.into_owned()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Starts a session that runs statements in a database as superuser, and ends by itself.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_sql(&self, database: &str, statements: &str) -> io::Result<Child> {
        let mut psql = self.program("psql");
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"])
            .args(["-U", USER, "-d", database, "-f", "-"])
            .arg("-h")
            .arg(self.directory.path())
            .arg("-p")
            .arg(self.port.to_string())
            .env("PGCLIENTENCODING", "UTF8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut psql = psql.spawn()?;
        if let Some(mut input) = psql.stdin.take() {
            input.write_all(statements.as_bytes())?;
        }
        Ok(psql)
    }

    /// Whether PostGIS is installed.
    ///
    /// # Errors
    /// If the server does not respond.
    pub fn has_postgis(&self) -> io::Result<bool> {
        let sql = "select count(*) from pg_available_extensions where name = 'postgis'";
        Ok(self.sql("postgres", sql)? == "1")
    }

    /// Adds PostGIS to a database.
    ///
    /// # Errors
    /// If PostGIS is not installed.
    pub fn add_postgis(&self, database: &str) -> io::Result<()> {
        self.sql(database, "create extension postgis").map(drop)
    }

    /// Allows or forbids new sessions with a database.
    ///
    /// # Errors
    /// If the database does not exist.
    pub fn allow_connections(&self, database: &str, allowed: bool) -> io::Result<()> {
        let sql = format!("alter database {database} allow_connections {allowed}");
        self.sql("postgres", &sql).map(drop)
    }

    /// Ends all sessions with a database, and waits until they are gone.
    ///
    /// # Errors
    /// If the server does not respond.
    pub fn terminate_sessions(&self, database: &str) -> io::Result<()> {
        let sql = format!(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity \
             where datname = '{database}' and pid <> pg_backend_pid()"
        );
        self.sql("postgres", &sql).map(drop)
    }

    /// Stops the server in order: it ends sessions and writes everything to disk.
    ///
    /// # Errors
    /// If the server does not stop.
    pub fn stop(&mut self) -> io::Result<()> {
        self.signal("INT")?;
        self.wait_for_end()
    }

    /// Kills the server, which then has to recover as after a crash.
    ///
    /// # Errors
    /// If the server is not running.
    pub fn kill(&mut self) -> io::Result<()> {
        self.signal("KILL")?;
        self.wait_for_end()
    }

    /// Starts a server that was stopped or killed, on the same port and with the same data.
    ///
    /// # Errors
    /// If the server does not start; the error contains its log.
    pub fn start_again(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_MAX;
        loop {
            self.launch()?;
            match self.wait_until_ready(deadline) {
                Ok(()) => break,
                // Sessions of a killed server may hold its shared memory for a moment, and the port may be taken.
                Err(_) if Instant::now() < deadline => self.wait_for_end()?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until the server accepts connections; starts it again if it has ended by itself.
    ///
    /// # Errors
    /// If it does not start; the error contains its log.
    pub fn start_if_ended(&mut self) -> io::Result<()> {
        if self.wait_until_ready(Instant::now() + START_MAX).is_ok() {
            return Ok(());
        }
        self.wait_for_end()?;
        self.start_again()
    }

    /// Moves the data of the server to another directory, which may be on another file system.
    ///
    /// # Errors
    /// If the server does not stop or start, or the data cannot be copied.
    pub fn move_data(&mut self, to: &Path) -> io::Result<()> {
        self.stop()?;
        let (data, moved) = (self.data(), to.join("data"));
        run(Command::new("cp").arg("-a").arg(&data).arg(&moved))?;
        fs::remove_dir_all(&data)?;
        std::os::unix::fs::symlink(&moved, &data)?;
        self.start_again()
    }

    /// Enables TLS with a certificate and its key, both in PEM.
    ///
    /// # Errors
    /// If the server does not accept them.
    pub fn encrypt(&self, certificate: &str, key: &str) -> io::Result<()> {
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.data().join(name);
            fs::write(&path, text)?;
            run(Command::new("chmod").arg("600").arg(&path))?;
            if is_root() {
                run(Command::new("chown").arg(USER).arg(&path))?;
            }
        }
        self.sql("postgres", "alter system set ssl = on")?;
        self.sql("postgres", "select pg_reload_conf()").map(drop)
    }

    /// Makes a standby of this server and starts it. `name` is its name in `synchronous_standby_names`.
    ///
    /// # Errors
    /// If the data cannot be copied, or the standby does not start.
    pub fn standby(&self, name: &str) -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("ganger-pg").tempdir()?;
        if is_root() {
            run(Command::new("chown").arg(USER).arg(directory.path()))?;
        }
        let mut standby = Self {
            programs: self.programs.clone(),
            directory,
            port: free_port()?,
            watchdog: None,
        };
        let mut copy = self.program("pg_basebackup");
        copy.args(["-U", USER, "-R", "-X", "stream", "-c", "fast", "-D"])
            .arg(standby.data())
            .arg("-h")
            .arg(self.directory.path())
            .arg("-p")
            .arg(self.port.to_string());
        run(&mut copy)?;
        standby.add_settings(&standby.own_settings())?;
        standby.add_settings(&format!("cluster_name = '{name}'\n"))?;
        standby.start_again()?;
        Ok(standby)
    }

    /// Promotes a standby to primary.
    ///
    /// # Errors
    /// If the server is not a standby.
    pub fn promote(&self) -> io::Result<()> {
        self.sql("postgres", "select pg_promote()").map(drop)
    }

    /// Returns the port on the loopback interface.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the process id of the running server; its sessions are children of that process.
    ///
    /// # Errors
    /// If the server does not run.
    pub fn process(&self) -> io::Result<u32> {
        let text = fs::read_to_string(self.data().join("postmaster.pid"))?;
        let first = text.lines().next().unwrap_or_default();
        first.trim().parse().map_err(io::Error::other)
    }

    /// Returns the directory of the socket over which the superuser `postgres` connects without a password.
    pub fn socket_directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the path of the server's log.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn make_cluster(&self) -> io::Result<()> {
        let mut initdb = self.program("initdb");
        initdb
            .args([
                "-U",
                USER,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-locale",
                "-N",
                "-D",
            ])
            .arg(self.data());
        run(&mut initdb)?;
        let access = "local all,replication all trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
        fs::write(self.data().join("pg_hba.conf"), access)?;
        self.add_settings(&self.own_settings())
    }

    /// Settings of this server alone.
    fn own_settings(&self) -> String {
        format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n\
             shared_buffers = 16MB\nmax_connections = 100\ndeadlock_timeout = 200ms\n",
            self.port,
            self.directory.path().display()
        )
    }

    /// Adds lines to `postgresql.conf`, which the next start or reload reads.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add_settings(&self, settings: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(self.data().join("postgresql.conf"))?;
        file.write_all(settings.as_bytes())
    }

    fn launch(&mut self) -> io::Result<()> {
        match fs::remove_file(self.directory.path().join(STARTED)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())?;
        let mut watchdog = as_user("/bin/sh");
        watchdog
            .args(["-c", WATCHDOG])
            .arg(self.directory.path())
            .arg(self.programs.join("postgres"))
            .arg("-D")
            .arg(self.data())
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.watchdog = Some(watchdog.spawn()?);
        Ok(())
    }

    /// Waits until the server accepts connections.
    fn wait_until_ready(&mut self, deadline: Instant) -> io::Result<()> {
        while Instant::now() < deadline {
            if self.sql("postgres", "select 1").is_ok() {
                return Ok(());
            }
            if self.server().is_none() && self.has_failed_to_start()? {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        Err(io::Error::other(format!(
            "PostgreSQL does not start: {log}"
        )))
    }

    /// Whether the server that was launched last has ended. The watchdog then still waits for its input.
    fn has_failed_to_start(&mut self) -> io::Result<bool> {
        let Some(watchdog) = &mut self.watchdog else {
            return Ok(true);
        };
        if watchdog.try_wait()?.is_some() {
            return Ok(true);
        }
        // The file does not exist before the watchdog has started the server.
        let pid = fs::read_to_string(self.directory.path().join(STARTED)).unwrap_or_default();
        Ok(pid.ends_with('\n') && command(pid.trim()).is_none())
    }

    /// Returns the process id of the server; `None` if it does not run.
    fn server(&self) -> Option<String> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        let pid = file.lines().next()?.trim().to_owned();
        command(&pid).filter(|name| name == "postgres")?;
        Some(pid)
    }

    fn signal(&self, signal: &str) -> io::Result<()> {
        let pid = self
            .server()
            .ok_or_else(|| io::Error::other("PostgreSQL is not running"))?;
        run(Command::new("kill").arg(format!("-{signal}")).arg(pid))
    }

    /// Waits until the server and its watchdog have ended.
    fn wait_for_end(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + START_MAX;
        while self.server().is_some() {
            if Instant::now() > deadline {
                return Err(io::Error::other("PostgreSQL does not stop"));
            }
            thread::sleep(Duration::from_millis(5));
        }
        let Some(mut watchdog) = self.watchdog.take() else {
            return Ok(());
        };
        if let Some(mut input) = watchdog.stdin.take() {
            // A watchdog that has ended removes nothing either.
            let _ = input.write_all(b"keep\n");
        }
        watchdog.wait().map(drop)
    }

    /// Returns a command that runs a program of the server's version, such as `pgbench`, as the server's user.
    pub fn program(&self, name: &str) -> Command {
        let mut program = as_user(self.programs.join(name));
        program.current_dir("/").stdin(Stdio::null());
        program
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // The watchdog stops the server and then ends.
        if let Some(mut watchdog) = self.watchdog.take() {
            drop(watchdog.stdin.take());
            let _ = watchdog.wait();
        }
    }
}

/// Creates a command that runs as the user who may run PostgreSQL.
pub(crate) fn as_user(program: impl AsRef<std::ffi::OsStr>) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args([
            &format!("--reuid={USER}"),
            &format!("--regid={USER}"),
            "--clear-groups",
            "--",
        ])
        .arg(program);
    command
}

/// Gives a file or directory to the user who runs the programs.
pub(crate) fn own(path: &Path) -> io::Result<()> {
    if is_root() {
        run(Command::new("chown").arg(USER).arg(path))?;
    }
    Ok(())
}

/// Returns the script that runs a program and ends it with its own input, by this signal.
pub(crate) fn keeper(signal: &str) -> String {
    WATCHDOG.replace("-QUIT", &format!("-{signal}"))
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {message}")))
}

/// Returns the name of a process; `None` if it has ended.
fn command(pid: &str) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let is_zombie = rest.trim_start().starts_with('Z');
    (!is_zombie).then(|| name.to_owned())
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|metadata| {
        use std::os::unix::fs::MetadataExt as _;
        metadata.uid() == 0
    })
}

fn has_user() -> bool {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    users
        .lines()
        .any(|line| line.starts_with(&format!("{USER}:")))
}

/// Returns the directory with the programs of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).ok()?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    versions
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("bin/initdb").exists() && number(path).is_some())
        .max_by_key(number)
        .map(|path| path.join("bin"))
}

/// Returns a port that is free now.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

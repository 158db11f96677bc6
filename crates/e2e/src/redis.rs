//! A server with a Redis port, published clients as processes, a real Redis, and a simple client for single commands.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::clients::script;
use crate::ports::free_addresses;
use crate::server::{Setup, TIMEOUT};
use crate::skip::note_skip;

/// Longest wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A server with a Redis port, in a temporary directory.
#[derive(Debug)]
pub struct TestBed {
    /// Setup of the server.
    pub setup: Setup,
    /// Address of the Redis port.
    pub resp: SocketAddr,
    /// Directory of the server's files.
    pub directory: TempDir,
}

impl TestBed {
    /// Prepares a server with additional arguments, without starting it.
    pub fn new(arguments: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut setup = Setup::in_directory(directory.path())?;
        let addresses = free_addresses(2)?;
        setup.address = addresses[0];
        setup.arguments = vec!["--resp".to_owned(), addresses[1].to_string()];
        let more = arguments.iter().map(|argument| (*argument).to_owned());
        setup.arguments.extend(more);
        Ok(Self {
            setup,
            resp: addresses[1],
            directory,
        })
    }

    /// Starts a client: `command` itself if `name` is empty, or `command` with the script `name`. The first argument is the
    /// port.
    pub fn start(&self, mut command: Command, name: &str, arguments: &[&str]) -> Result<Child> {
        if !name.is_empty() {
            command.arg(script(name));
        }
        command
            .arg(self.resp.port().to_string())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
            .spawn()
            .with_context(|| format!("cannot start {command:?}"))
    }

    /// Runs a client, which must succeed; returns its standard output.
    pub fn run(&self, command: Command, name: &str, arguments: &[&str]) -> Result<String> {
        let output = self.start(command, name, arguments)?.wait_with_output()?;
        ensure!(
            output.status.success(),
            "{name} {arguments:?} ended with {}:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts the server, runs a client, and checks server and store afterwards.
    pub fn run_with_server(&self, command: Command, name: &str, arguments: &[&str]) -> Result<()> {
        let mut server = self.setup.start()?;
        self.run(command, name, arguments)?;
        server.stop()?;
        self.setup.expect_no_panic()?;
        self.setup.check()
    }

    /// Returns a client for single commands.
    pub fn line_client(&self) -> Result<LineClient> {
        LineClient::new(self.resp)
    }
}

/// A real Redis without persistence; killed when dropped.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    /// Address on which the server listens.
    pub address: SocketAddr,
}

impl Redis {
    /// Starts a Redis that listens on this address.
    pub fn start(address: SocketAddr) -> Result<Self> {
        Self::start_with(address, &[])
    }

    /// Starts a Redis with additional arguments.
    pub fn start_with(address: SocketAddr, arguments: &[&str]) -> Result<Self> {
        let port = address.port().to_string();
        let child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port])
            .args(["--save", "", "--appendonly", "no"])
            .args(["--enable-debug-command", "yes"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server")?;
        let redis = Self { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(begun.elapsed() < TIMEOUT, "Redis does not listen");
            std::thread::yield_now();
        }
        Ok(redis)
    }

    /// Returns a digest of all data.
    pub fn digest(&self) -> Result<String> {
        LineClient::new(self.address)?.call("DEBUG DIGEST")
    }

    /// Runs a script against this Redis, which must succeed; returns its standard output.
    pub fn run(&self, mut command: Command, name: &str, arguments: &[&str]) -> Result<String> {
        let port = self.address.port().to_string();
        let output = command
            .arg(script(name))
            .arg(port)
            .args(arguments)
            .stdin(Stdio::null())
            .output()?;
        ensure!(
            output.status.success(),
            "{name} {arguments:?} ended with {}:\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It has no data that could be lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the program, or records that the test is skipped because of the error.
pub fn or_skip<T>(test: &str, program: Result<T>) -> Option<T> {
    program
        .inspect_err(|error| note_skip(test, &format!("{error:#}")))
        .ok()
}

/// Collects what a worker prints after the word `worked`, line by line, until it ends.
pub fn collect_worked(child: &mut Child) -> Result<JoinHandle<Vec<String>>> {
    let out = child
        .stdout
        .take()
        .context("standard output is not piped")?;
    Ok(std::thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines
            .filter_map(|line| line.strip_prefix("worked ").map(str::to_owned))
            .collect()
    }))
}

/// A client that sends commands as lines and reads replies line by line.
#[derive(Debug)]
pub struct LineClient(BufReader<TcpStream>);

impl LineClient {
    /// Connects to the server at this address.
    pub fn new(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command; returns the first line of its reply.
    pub fn call(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        self.read_line()
    }

    /// Sends a command without reading its reply.
    pub fn send(&mut self, line: &str) -> Result<()> {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())?;
        Ok(())
    }

    /// Reads the next line.
    pub fn read_line(&mut self) -> Result<String> {
        let mut reply = String::new();
        ensure!(
            self.0.read_line(&mut reply)? > 0,
            "the connection was closed"
        );
        Ok(reply.trim_end().to_owned())
    }

    /// Reads the next `count` lines and joins them with spaces.
    pub fn read_lines(&mut self, count: usize) -> Result<String> {
        let lines = (0..count).map(|_| self.read_line());
        Ok(lines.collect::<Result<Vec<_>>>()?.join(" "))
    }

    /// Sends a command whose reply is an integer.
    pub fn integer(&mut self, line: &str) -> Result<i64> {
        let reply = self.call(line)?;
        let number = reply.strip_prefix(':').context(reply.clone())?;
        Ok(number.parse()?)
    }
}

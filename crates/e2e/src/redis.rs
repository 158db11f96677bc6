//! A server with a Redis port, and what its tests need: published clients as processes, and a client that sends lines.

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

/// How long a reply may take before a test gives up.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// A server with a Redis port, in a directory that goes with it.
#[derive(Debug)]
pub struct TestBed {
    /// What the server is started with.
    pub setup: Setup,
    /// Where its Redis port listens.
    pub resp: SocketAddr,
    /// Where its files are.
    pub directory: TempDir,
}

impl TestBed {
    /// A server with further arguments.
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

    /// Starts a client: a program, or one that runs a script of these tests. It is told the port first.
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

    /// Runs a client to its end, which must be a good one; what it said.
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

    /// Runs a client against a server of its own.
    pub fn run_with_server(&self, command: Command, name: &str, arguments: &[&str]) -> Result<()> {
        let mut server = self.setup.start()?;
        self.run(command, name, arguments)?;
        server.stop()?;
        self.setup.expect_no_panic()?;
        self.setup.check()
    }

    /// A client that sends lines.
    pub fn line_client(&self) -> Result<LineClient> {
        LineClient::new(self.resp)
    }
}

/// A Redis without files; ended when dropped.
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

    /// Starts one there with further arguments.
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
            .context("redis-server is not there")?;
        let redis = Self { child, address };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(begun.elapsed() < TIMEOUT, "Redis does not listen");
            std::thread::yield_now();
        }
        Ok(redis)
    }

    /// A digest of all that it keeps.
    pub fn digest(&self) -> Result<String> {
        LineClient::new(self.address)?.call("DEBUG DIGEST")
    }

    /// Runs a script of these tests against it to its end, which must be a good one; what it said.
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
        // It keeps nothing that could be lost.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says what cannot be installed or started here.
pub fn or_skip<T>(test: &str, program: Result<T>) -> Option<T> {
    program
        .inspect_err(|error| note_skip(test, &format!("{error:#}")))
        .ok()
}

/// What a worker says behind the word `worked`, line by line, until it ends.
pub fn collect_worked(child: &mut Child) -> Result<JoinHandle<Vec<String>>> {
    let out = child.stdout.take().context("it was piped")?;
    Ok(std::thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines
            .filter_map(|line| line.strip_prefix("worked ").map(str::to_owned))
            .collect()
    }))
}

/// A client that sends a command in a line and reads its reply.
#[derive(Debug)]
pub struct LineClient(BufReader<TcpStream>);

impl LineClient {
    /// Connects to the server at this address.
    pub fn new(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a command; the first line of its reply.
    pub fn call(&mut self, line: &str) -> Result<String> {
        self.send(line)?;
        self.read_line()
    }

    /// Sends one command as a line.
    pub fn send(&mut self, line: &str) -> Result<()> {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())?;
        Ok(())
    }

    /// Reads the next line of the answer.
    pub fn read_line(&mut self) -> Result<String> {
        let mut reply = String::new();
        ensure!(
            self.0.read_line(&mut reply)? > 0,
            "the connection was closed"
        );
        Ok(reply.trim_end().to_owned())
    }

    /// The next so many lines, with spaces between them.
    pub fn read_lines(&mut self, count: usize) -> Result<String> {
        let lines = (0..count).map(|_| self.read_line());
        Ok(lines.collect::<Result<Vec<_>>>()?.join(" "))
    }

    /// The number that a command gives.
    pub fn integer(&mut self, line: &str) -> Result<i64> {
        let reply = self.call(line)?;
        let number = reply.strip_prefix(':').context(reply.clone())?;
        Ok(number.parse()?)
    }
}

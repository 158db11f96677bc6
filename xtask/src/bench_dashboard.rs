//! Measures the dashboard of a server with many jobs: how long each page takes, how large it is, and what ten open pages
//! cost the queue.
//!
//! The variable `GANGER_BIN` names another program than `target/release/ganger`.

mod pages;
mod seed;
mod viewers;

use std::env;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::bench_peers::scratch::{Process, Scratch, free_address};
use crate::process::{OPTIMISED, root, start_optimised};

pub(crate) const USAGE: &str = "\
usage: cargo xtask bench-dashboard [--live N] [--finished N] [--queues N] [--graph N] [--no-load]

  --live N      jobs that wait, 1000000 by default
  --finished N  jobs that have ended, 1000000 by default
  --queues N    queues that they are spread over, 1000 by default
  --graph N     jobs of the largest graph, 1000000 by default; 0 leaves it out
  --no-load     only the pages, not the load beside ten open ones";

/// Sizes of what the server is filled with, and whether the load is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) live: usize,
    pub(crate) finished: usize,
    pub(crate) queues: usize,
    pub(crate) graph: usize,
    has_load: bool,
}

impl Plan {
    fn read(arguments: &[&str]) -> Result<Self> {
        let mut plan = Self {
            live: 1_000_000,
            finished: 1_000_000,
            queues: 1_000,
            graph: 1_000_000,
            has_load: true,
        };
        let mut rest = arguments.iter();
        while let Some(option) = rest.next() {
            let place = match *option {
                "--live" => &mut plan.live,
                "--finished" => &mut plan.finished,
                "--queues" => &mut plan.queues,
                "--graph" => &mut plan.graph,
                "--no-load" => {
                    plan.has_load = false;
                    continue;
                }
                _ => bail!("{option} is not an option\n\n{USAGE}"),
            };
            let value = rest
                .next()
                .with_context(|| format!("{option} needs a number"))?;
            *place = value
                .parse()
                .with_context(|| format!("{option}: {value}"))?;
        }
        ensure!(plan.queues > 0, "--queues must be 1 or more");
        Ok(plan)
    }
}

/// Starts a server, fills it, measures it, and prints tables in Markdown.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [OPTIMISED, rest @ ..] => measure(Plan::read(rest)?),
        ["--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        rest if env::var_os("GANGER_BIN").is_some() => measure(Plan::read(rest)?),
        rest => {
            Plan::read(rest)?;
            start_optimised("bench-dashboard", rest)
        }
    }
}

/// The program that is measured.
pub(crate) fn program() -> PathBuf {
    let named = env::var_os("GANGER_BIN").map(PathBuf::from);
    named.unwrap_or_else(|| root().join("target/release/ganger"))
}

fn measure(plan: Plan) -> Result<()> {
    let scratch = Scratch::new()?;
    let directory = scratch.directory("server")?;
    let address = free_address()?;
    let mut command = Command::new(program());
    command
        .args(["server", "--addr", &address.to_string(), "--db"])
        .arg(directory.join("jobs.db"))
        // A graph of a million jobs is larger than what a server takes in one request unless it is told to.
        .args(["--set", "limits.graph_bytes=512MiB"])
        .args(["--set", "limits.bytes_in_flight=4GiB"]);
    let process = Process::start(&mut command, &directory, address)?;
    let server = Server { address };
    server.until_ready()?;
    let graphs = seed::fill(&server, plan)?;
    println!(
        "{} live and {} finished jobs in {} queues, in {:.1} s\n",
        plan.live,
        plan.finished,
        plan.queues,
        graphs.took.as_secs_f64()
    );
    pages::measure(&server, &graphs)?;
    if plan.has_load {
        viewers::measure(&server, process.id())?;
    }
    Ok(())
}

/// A server, reached by one connection for each request.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
}

/// An answer without its head.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    pub(crate) took: Duration,
}

impl Server {
    fn until_ready(&self) -> Result<()> {
        for _ in 0..3_000 {
            if self.get("/readyz", "identity")?.status == 200 {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("the server at {} does not become ready", self.address)
    }

    /// Requests a page in an encoding.
    pub(crate) fn get(&self, path: &str, encoding: &str) -> Result<Answer> {
        let head = format!(
            "GET {path} HTTP/1.1\r\nhost: {}\r\naccept: text/html\r\naccept-encoding: {encoding}\r\n",
            self.address
        );
        self.send(&head, &[])
    }

    /// Sends a body to an address of the API, and returns the answer if it is good.
    pub(crate) fn post(&self, path: &str, media_type: &str, body: &[u8]) -> Result<Vec<u8>> {
        let head = format!(
            "POST /api/v1{path} HTTP/1.1\r\nhost: {}\r\ncontent-type: {media_type}\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        let answer = self.send(&head, body)?;
        let text = String::from_utf8_lossy(&answer.body);
        ensure!(
            (200..300).contains(&answer.status),
            "{path}: {} {}",
            answer.status,
            text.chars().take(500).collect::<String>()
        );
        Ok(answer.body)
    }

    fn send(&self, head: &str, body: &[u8]) -> Result<Answer> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(300)))?;
        stream.write_all(format!("{head}connection: close\r\n\r\n").as_bytes())?;
        let mut reading = stream.try_clone()?;
        // Long bodies are answered while they are sent.
        let (written, mut answer) = thread::scope(|scope| {
            let writer = scope.spawn(move || stream.write_all(body));
            let mut answer = Vec::new();
            let read = reading.read_to_end(&mut answer).map(|_| answer);
            (writer.join(), read)
        });
        let answer = std::mem::take(
            answer
                .as_mut()
                .map_err(|error| anyhow::anyhow!("{error}"))?,
        );
        if let Ok(written) = written {
            written?;
        }
        let took = began.elapsed();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.context("the answer has no head")?;
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        let body = &answer[end + 4..];
        let body = if head.contains("transfer-encoding: chunked") {
            unchunked(body)?
        } else {
            body.to_vec()
        };
        Ok(Answer {
            status: status.context("the answer has no status")?,
            body,
            took,
        })
    }
}

/// Puts the chunks of a body together.
fn unchunked(mut rest: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::with_capacity(rest.len());
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n");
        let end = end.context("a chunk has no length")?;
        let length = std::str::from_utf8(&rest[..end])?;
        let length = usize::from_str_radix(length.trim(), 16)?;
        if length == 0 {
            return Ok(body);
        }
        let from = end + 2;
        body.extend_from_slice(rest.get(from..from + length).context("a chunk is cut")?);
        rest = rest.get(from + length + 2..).context("a chunk is cut")?;
    }
}

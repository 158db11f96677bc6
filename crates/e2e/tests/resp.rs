//! The Redis port of the real server, used by the published libraries of redis-work-queue as they are.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use ganger_e2e::clients::{node, python, rust, script};
use ganger_e2e::ports::free_addresses;
use ganger_e2e::server::Setup;
use ganger_e2e::skip::skipped;

/// Items of the run that goes through kills.
const ITEMS: usize = 2_000;
/// Kills in the middle of it.
const KILLS: usize = 3;
/// How long a run may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(240);

/// A server with a Redis port, in a folder that goes with it.
struct World {
    setup: Setup,
    resp: SocketAddr,
    _folder: tempfile::TempDir,
}

fn world() -> Result<World> {
    let folder = tempfile::tempdir()?;
    let mut setup = Setup::in_folder(folder.path())?;
    let addresses = free_addresses(2)?;
    setup.address = addresses[0];
    setup.arguments = vec!["--resp".to_owned(), addresses[1].to_string()];
    Ok(World {
        setup,
        resp: addresses[1],
        _folder: folder,
    })
}

impl World {
    /// Starts a client: a program, or one that runs a script.
    fn start(&self, mut command: Command, name: &str, arguments: &[&str]) -> Result<Child> {
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

    fn lives(&self, command: Command, name: &str) -> Result<()> {
        let mut server = self.setup.start()?;
        let status = self.start(command, name, &[])?.wait()?;
        ensure!(status.success(), "{name} ended with {status}");
        server.stop()?;
        self.setup.expect_no_panic()?;
        self.setup.check()
    }
}

/// Says what cannot be installed here.
fn or_skip(test: &str, command: Result<Command>) -> Option<Command> {
    command
        .inspect_err(|error| skipped(test, &format!("{error:#}")))
        .ok()
}

/// A client that sends a command in a line and reads its reply.
struct Line(BufReader<TcpStream>);

impl Line {
    fn new(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        self.0
            .get_mut()
            .write_all(format!("{line}\r\n").as_bytes())?;
        let mut reply = String::new();
        ensure!(
            self.0.read_line(&mut reply)? > 0,
            "the connection was closed"
        );
        Ok(reply.trim_end().to_owned())
    }
}

#[test]
fn python_lives_on_the_port() -> Result<()> {
    let Some(python) = or_skip("python_lives_on_the_port", python()) else {
        return Ok(());
    };
    world()?.lives(python, "lives.py")
}

#[test]
fn node_lives_on_the_port() -> Result<()> {
    let Some(node) = or_skip("node_lives_on_the_port", node()) else {
        return Ok(());
    };
    world()?.lives(node, "lives.cjs")
}

#[test]
fn rust_lives_on_the_port() -> Result<()> {
    let Some(rust) = or_skip("rust_lives_on_the_port", rust()) else {
        return Ok(());
    };
    world()?.lives(rust, "")
}

/// What the workers have said, as it comes.
fn listen(child: &mut Child) -> Result<std::thread::JoinHandle<Vec<String>>> {
    let out = child.stdout.take().context("it was piped")?;
    Ok(std::thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines
            .filter_map(|line| line.strip_prefix("worked ").map(str::to_owned))
            .collect()
    }))
}

#[test]
fn workers_in_python_rust_and_node_share_a_queue_through_kills() -> Result<()> {
    const NAME: &str = "workers_in_python_rust_and_node_share_a_queue_through_kills";
    let (Some(python), Some(rust), Some(node)) = (
        or_skip(NAME, python()),
        or_skip(NAME, rust()),
        or_skip(NAME, node()),
    ) else {
        return Ok(());
    };
    let world = world()?;
    let mut server = world.setup.start()?;
    let mut line = Line::new(world.resp)?;
    for number in 0..ITEMS {
        ensure!(line.ask(&format!("SETNX mixed:item:{number} data"))? == ":1");
        ensure!(
            line.ask(&format!("LPUSH mixed:queue {number}"))?
                .starts_with(':')
        );
    }
    let mut workers = vec![
        world.start(python, "worker.py", &["mixed", "clean"])?,
        world.start(rust, "", &["mixed"])?,
        world.start(node, "worker.cjs", &["mixed"])?,
    ];
    let heard = workers.iter_mut().map(listen).collect::<Result<Vec<_>>>()?;
    for kill in 1..=KILLS {
        // In the middle: when so many have been taken.
        let left = ITEMS - ITEMS * kill / (KILLS + 1);
        wait_until_left(&mut line, left)?;
        server.kill()?;
        server = world.setup.start()?;
        line = Line::new(world.resp)?;
    }
    for mut worker in workers {
        let status = worker.wait()?;
        ensure!(status.success(), "a worker ended with {status}");
    }
    let mut worked: BTreeMap<String, usize> = BTreeMap::new();
    for ids in heard {
        for id in ids.join().expect("a reader does not panic") {
            *worked.entry(id).or_default() += 1;
        }
    }
    let twice: Vec<_> = worked.iter().filter(|(_, count)| **count > 1).collect();
    // The two families of the library do not see each other's leases and judge completion by different keys, so two
    // may finish one item at the same moment, as on Redis. Anything more is a fault.
    ensure!(
        twice.len() <= ITEMS / 100,
        "completed more than once: {twice:?}"
    );
    // A reply that a kill has swallowed leaves an item done that nobody has said; all others were said.
    let unsaid = ITEMS - worked.len();
    ensure!(unsaid <= 3 * KILLS, "{unsaid} items were never completed");
    for key in ["mixed:queue", "mixed:processing"] {
        ensure!(
            line.ask(&format!("LLEN {key}"))? == ":0",
            "{key} is not empty"
        );
    }
    server.stop()?;
    world.setup.expect_no_panic()?;
    world.setup.check()
}

fn wait_until_left(line: &mut Line, left: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let length = line.ask("LLEN mixed:queue")?;
        let length: usize = length.trim_start_matches(':').parse()?;
        if length <= left {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            bail!("{length} items are left after {PATIENCE:?}");
        }
    }
}

fn metrics(address: SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[test]
fn everything_acknowledged_is_there_after_a_kill() -> Result<()> {
    let world = world()?;
    let mut server = world.setup.start()?;
    let mut line = Line::new(world.resp)?;
    let before = [
        "SET text \"a b\"",
        "SET lease x EX 1000",
        "RPUSH list a b a c",
        "RPOPLPUSH list other",
        "LREM list 1 a",
        "SELECT 5",
        "LPUSH elsewhere x",
    ];
    for command in before {
        let reply = line.ask(command)?;
        ensure!(!reply.starts_with('-'), "{command}: {reply}");
        if reply.starts_with('$') {
            line.ask("")?;
        }
    }
    server.kill()?;
    let mut server = world.setup.start()?;
    let mut line = Line::new(world.resp)?;
    for (command, expected) in [
        ("STRLEN text", ":3"),
        ("LLEN list", ":2"),
        ("LPOS list b", ":0"),
        ("LPOS list a", ":1"),
        ("LLEN other", ":1"),
        ("SELECT 5", "+OK"),
        ("LLEN elsewhere", ":1"),
        ("SELECT 0", "+OK"),
        (
            "FLUSHALL",
            "-ERR FLUSHALL is switched off: start the server with --resp-allow-flush to allow it",
        ),
    ] {
        let reply = line.ask(command)?;
        ensure!(reply == expected, "{command}: {reply}");
    }
    let left = line.ask("TTL lease")?;
    let left: u64 = left.trim_start_matches(':').parse()?;
    ensure!((1..=1_000).contains(&left), "{left}");
    let metrics = metrics(world.setup.address)?;
    ensure!(metrics.contains("ganger_resp_connections 1\n"), "{metrics}");
    server.stop()?;
    world.setup.check()
}

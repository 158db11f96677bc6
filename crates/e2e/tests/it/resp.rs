//! The Redis port of the real server, used by the published libraries of redis-work-queue as they are.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use ganger_e2e::clients::{node, python, rust};
use ganger_e2e::redis::{Line, World, listen, or_skip};

/// Items of the run that goes through kills.
const ITEMS: usize = 2_000;
/// Kills in the middle of it.
const KILLS: usize = 3;
/// How long a run may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(240);

#[test]
fn python_lives_on_the_port() -> Result<()> {
    let Some(python) = or_skip("python_lives_on_the_port", python()) else {
        return Ok(());
    };
    World::new(&[])?.lives(python, "lives.py", &[])
}

#[test]
fn node_lives_on_the_port() -> Result<()> {
    let Some(node) = or_skip("node_lives_on_the_port", node()) else {
        return Ok(());
    };
    World::new(&[])?.lives(node, "lives.cjs", &[])
}

#[test]
fn rust_lives_on_the_port() -> Result<()> {
    let Some(rust) = or_skip("rust_lives_on_the_port", rust()) else {
        return Ok(());
    };
    World::new(&[])?.lives(rust, "", &[])
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
    let world = World::new(&[])?;
    let mut server = world.setup.start()?;
    let mut line = world.line()?;
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
        line = world.line()?;
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
        let length = usize::try_from(line.number("LLEN mixed:queue")?)?;
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
fn messages_go_from_one_connection_to_another() -> Result<()> {
    let world = World::new(&[])?;
    let mut server = world.setup.start()?;
    let (mut listener, mut publisher) = (world.line()?, world.line()?);
    listener.send("SUBSCRIBE news")?;
    ensure!(listener.hear_lines(6)? == "*3 $9 subscribe $4 news :1");
    listener.send("PSUBSCRIBE n?ws")?;
    ensure!(listener.hear_lines(6)? == "*3 $10 psubscribe $4 n?ws :2");
    ensure!(publisher.ask("SELECT 3")? == "+OK");
    ensure!(publisher.ask("PUBLISH news hello")? == ":2");
    ensure!(listener.hear_lines(7)? == "*3 $7 message $4 news $5 hello");
    ensure!(listener.hear_lines(9)? == "*4 $8 pmessage $4 n?ws $4 news $5 hello");
    listener.send("UNSUBSCRIBE news")?;
    ensure!(listener.hear_lines(6)? == "*3 $11 unsubscribe $4 news :1");
    ensure!(publisher.ask("PUBLISH news again")? == ":1");
    drop(listener);
    server.stop()?;
    world.setup.expect_no_panic()
}

#[test]
fn everything_acknowledged_is_there_after_a_kill() -> Result<()> {
    let world = World::new(&[])?;
    let mut server = world.setup.start()?;
    let mut line = world.line()?;
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
    let mut line = world.line()?;
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
    let left = line.number("TTL lease")?;
    ensure!((1..=1_000).contains(&left), "{left}");
    let metrics = metrics(world.setup.address)?;
    ensure!(metrics.contains("ganger_resp_connections 1\n"), "{metrics}");
    server.stop()?;
    world.setup.check()
}

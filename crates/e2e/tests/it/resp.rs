//! The Redis port of the real server, with the unmodified published libraries of redis-work-queue.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use ganger_e2e::clients::{node, python, rust};
use ganger_e2e::redis::{LineClient, TestBed, collect_worked, or_skip};

/// Number of items in the run with kills.
const ITEMS: usize = 2_000;
/// Number of kills in that run.
const KILLS: usize = 3;
/// Time after which the published clients' tests are ended.
const TIMEOUT: Duration = Duration::from_secs(240);

#[test]
fn the_python_library_works_on_the_port() -> Result<()> {
    let Some(python) = or_skip("the_python_library_works_on_the_port", python()) else {
        return Ok(());
    };
    TestBed::new(&[])?.run_with_server(python, "all_operations.py", &[])
}

#[test]
fn the_node_library_works_on_the_port() -> Result<()> {
    let Some(node) = or_skip("the_node_library_works_on_the_port", node()) else {
        return Ok(());
    };
    TestBed::new(&[])?.run_with_server(node, "all_operations.cjs", &[])
}

#[test]
fn the_rust_library_works_on_the_port() -> Result<()> {
    let Some(rust) = or_skip("the_rust_library_works_on_the_port", rust()) else {
        return Ok(());
    };
    TestBed::new(&[])?.run_with_server(rust, "", &[])
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
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    let mut line = test_bed.line_client()?;
    for number in 0..ITEMS {
        ensure!(line.call(&format!("SETNX mixed:item:{number} data"))? == ":1");
        ensure!(
            line.call(&format!("LPUSH mixed:queue {number}"))?
                .starts_with(':')
        );
    }
    let mut workers = vec![
        test_bed.start(python, "worker.py", &["mixed", "clean"])?,
        test_bed.start(rust, "", &["mixed"])?,
        test_bed.start(node, "worker.cjs", &["mixed"])?,
    ];
    let readers = workers
        .iter_mut()
        .map(collect_worked)
        .collect::<Result<Vec<_>>>()?;
    for kill in 1..=KILLS {
        // Kill when this share of the items has been taken.
        let left = ITEMS - ITEMS * kill / (KILLS + 1);
        wait_until_left(&mut line, left)?;
        server.kill()?;
        server = test_bed.setup.start()?;
        line = test_bed.line_client()?;
    }
    for mut worker in workers {
        let status = worker.wait()?;
        ensure!(status.success(), "a worker ended with {status}");
    }
    let mut worked: BTreeMap<String, usize> = BTreeMap::new();
    for ids in readers {
        for id in ids.join().expect("a reader does not panic") {
            *worked.entry(id).or_default() += 1;
        }
    }
    let twice: Vec<_> = worked.iter().filter(|(_, count)| **count > 1).collect();
    // The library has two families, which use different keys for leases and completion. Two workers may therefore complete
    // one item at the same time, as on Redis. More duplicates are an error.
    ensure!(
        twice.len() <= ITEMS / 100,
        "completed more than once: {twice:?}"
    );
    // An item whose reply was lost in a kill is completed but not printed; all others are printed.
    let unreported = ITEMS - worked.len();
    ensure!(
        unreported <= 3 * KILLS,
        "{unreported} items were never completed"
    );
    for key in ["mixed:queue", "mixed:processing"] {
        ensure!(
            line.call(&format!("LLEN {key}"))? == ":0",
            "{key} is not empty"
        );
    }
    server.stop()?;
    test_bed.setup.expect_no_panic()?;
    test_bed.setup.check()
}

fn wait_until_left(line: &mut LineClient, left: usize) -> Result<()> {
    let begun = Instant::now();
    loop {
        let length = usize::try_from(line.integer("LLEN mixed:queue")?)?;
        if length <= left {
            return Ok(());
        }
        if begun.elapsed() > TIMEOUT {
            bail!("{length} items are left after {TIMEOUT:?}");
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
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    let (mut listener, mut publisher) = (test_bed.line_client()?, test_bed.line_client()?);
    listener.send("SUBSCRIBE news")?;
    ensure!(listener.read_lines(6)? == "*3 $9 subscribe $4 news :1");
    listener.send("PSUBSCRIBE n?ws")?;
    ensure!(listener.read_lines(6)? == "*3 $10 psubscribe $4 n?ws :2");
    ensure!(publisher.call("SELECT 3")? == "+OK");
    ensure!(publisher.call("PUBLISH news hello")? == ":2");
    ensure!(listener.read_lines(7)? == "*3 $7 message $4 news $5 hello");
    ensure!(listener.read_lines(9)? == "*4 $8 pmessage $4 n?ws $4 news $5 hello");
    listener.send("UNSUBSCRIBE news")?;
    ensure!(listener.read_lines(6)? == "*3 $11 unsubscribe $4 news :1");
    ensure!(publisher.call("PUBLISH news again")? == ":1");
    drop(listener);
    server.stop()?;
    test_bed.setup.expect_no_panic()
}

#[test]
fn everything_acknowledged_survives_a_kill() -> Result<()> {
    let test_bed = TestBed::new(&[])?;
    let mut server = test_bed.setup.start()?;
    let mut line = test_bed.line_client()?;
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
        let reply = line.call(command)?;
        ensure!(!reply.starts_with('-'), "{command}: {reply}");
        if reply.starts_with('$') {
            line.call("")?;
        }
    }
    server.kill()?;
    let mut server = test_bed.setup.start()?;
    let mut line = test_bed.line_client()?;
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
        let reply = line.call(command)?;
        ensure!(reply == expected, "{command}: {reply}");
    }
    let left = line.integer("TTL lease")?;
    ensure!((1..=1_000).contains(&left), "{left}");
    let metrics = metrics(test_bed.setup.address)?;
    ensure!(metrics.contains("ganger_resp_connections 1\n"), "{metrics}");
    server.stop()?;
    test_bed.setup.check()
}

//! The Redis port and the QuantumLeap port of nodes: every node serves them, whichever node serves the shard.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::clients::python;
use ganger_e2e::cluster::TestCluster;
use ganger_e2e::command::wait_for;
use ganger_e2e::http::Client;
use ganger_e2e::ports::free_addresses;
use ganger_e2e::quantumleap::notification;
use ganger_e2e::redis::{LineClient, TestBed, or_skip};
use ganger_e2e::server::TIMEOUT;
use serde_json::Value;

/// Ownership lease of the nodes: the shortest one.
const LEASE: &str = "2s";
/// Longest wait for a response of the QuantumLeap port.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);

/// A node with both ports.
struct Node {
    bed: TestBed,
    quantumleap: SocketAddr,
}

impl Node {
    fn new(cluster: &TestCluster, name: &str, more: &[(&str, &str)]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut setup = cluster.member(directory.path(), name, LEASE)?;
        let addresses = free_addresses(2)?;
        let (resp, quantumleap) = (addresses[0], addresses[1]);
        for (flag, address) in [("--resp", resp), ("--quantumleap", quantumleap)] {
            setup
                .arguments
                .extend([flag.to_owned(), address.to_string()]);
        }
        let offload = ("WQ_OFFLOAD_WORK", "true");
        let variables = [offload].into_iter().chain(more.iter().copied());
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        setup.variables.extend(variables);
        let bed = TestBed {
            setup,
            resp,
            directory,
        };
        Ok(Self { bed, quantumleap })
    }

    /// Sends a notification to the QuantumLeap port; returns the status of the response.
    fn notify(&self, room: &str) -> Result<u16> {
        let mut client = Client::new(self.quantumleap, RESPONSE_TIMEOUT);
        let response = client.request("POST", "/v2/notify", &notification(room));
        let response = response.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        Ok(response.status)
    }

    /// Returns the number of tasks that the QuantumLeap port shows.
    fn tasks(&self) -> Result<Value> {
        let mut client = Client::new(self.quantumleap, RESPONSE_TIMEOUT);
        let response = client.request("GET", "/wq/notifications/count", &Value::Null);
        let response = response.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        ensure!(response.status == 200, "{}", response.to_text());
        Ok(response.json())
    }
}

/// Connects to the Redis port and sends commands until they succeed, as clients do after their connection was closed.
fn call_again(address: SocketAddr, lines: &[&str]) -> Result<String> {
    let mut failure = String::new();
    let called = wait_for("a call that succeeds", || {
        let called = || -> Result<String> {
            let mut client = LineClient::new(address)?;
            let mut last = String::new();
            for line in lines {
                last = client.call(line)?;
                ensure!(!last.starts_with('-'), "{last}");
            }
            Ok(last)
        };
        let called = called();
        if let Err(error) = &called {
            failure = error.to_string();
        }
        Ok(called.ok())
    });
    called.with_context(|| failure)
}

#[test]
fn the_ports_of_every_node_serve_a_shard_that_moves() -> Result<()> {
    const NAME: &str = "the_ports_of_every_node_serve_a_shard_that_moves";
    let Some(cluster) = TestCluster::new(NAME, 1)? else {
        return Ok(());
    };
    let owner = Node::new(&cluster, "a", &[])?;
    let mut first = owner.bed.setup.start()?;
    let other = Node::new(&cluster, "b", &[])?;
    let mut second = other.bed.setup.start()?;

    // A published client, which wants an empty database.
    if let Some(python) = or_skip(NAME, python()) {
        other.bed.run(python, "all_operations.py", &[])?;
    }

    // The same list through both nodes; a wait at one ends with an element that came through the other.
    let mut here = owner.bed.line_client()?;
    let mut there = other.bed.line_client()?;
    ensure!(there.call("RPUSH list a")? == ":1");
    ensure!(here.call("RPUSH list b")? == ":2");
    there.send("BLPOP other 0")?;
    ensure!(here.call("RPUSH other c")? == ":1");
    ensure!(there.read_lines(5)? == "*2 $5 other $1 c");
    ensure!(owner.notify("here")? == 200);
    ensure!(other.notify("there")? == 200);
    ensure!(owner.tasks()? == 2 && other.tasks()? == 2);

    // The owner dies: connections through the other node are closed, and new ones are served.
    first.kill()?;
    ensure!(there.call("LLEN list").is_err(), "the connection is closed");
    ensure!(call_again(other.bed.resp, &["LLEN list"])? == ":2");
    ensure!(other.tasks()? == 2);

    // It comes back and does not own the shard any more.
    let mut first = owner.bed.setup.start()?;
    let mut here = owner.bed.line_client()?;
    ensure!(here.call("RPUSH list c")? == ":3");
    ensure!(owner.notify("again")? == 200);
    ensure!(other.tasks()? == 3);

    // The new owner stops in order.
    second.stop()?;
    ensure!(here.call("LLEN list").is_err(), "the connection is closed");
    ensure!(call_again(owner.bed.resp, &["LLEN list"])? == ":3");
    ensure!(owner.tasks()? == 3);
    first.stop()?;
    owner.bed.setup.expect_no_panic()?;
    other.bed.setup.expect_no_panic()
}

#[test]
fn clients_authenticate_at_the_node_that_they_connect_to() -> Result<()> {
    const NAME: &str = "clients_authenticate_at_the_node_that_they_connect_to";
    const TOKEN: &str = "a-token-of-this-test-0123456789";
    let Some(cluster) = TestCluster::new(NAME, 1)? else {
        return Ok(());
    };
    let token = [("GANGER_TOKEN", TOKEN)];
    let owner = Node::new(&cluster, "a", &token)?;
    let mut first = owner.bed.setup.spawn()?;
    first.wait_until_ready(TIMEOUT)?;
    let other = Node::new(&cluster, "b", &token)?;
    let mut second = other.bed.setup.spawn()?;
    second.wait_until_ready(TIMEOUT)?;

    let auth = format!("AUTH {TOKEN}");
    let mut there = other.bed.line_client()?;
    let refused = there.call("RPUSH list a")?;
    ensure!(refused.starts_with("-NOAUTH"), "{refused}");
    let refused = there.call("AUTH wrong")?;
    ensure!(refused.starts_with("-WRONGPASS"), "{refused}");
    ensure!(there.call(&auth)? == "+OK");
    ensure!(there.call("RPUSH list a")? == ":1");
    ensure!(there.call("CLIENT SETNAME mine")? == "+OK");
    // A token may be sent again, to the node that serves the shard.
    ensure!(there.call(&auth)? == "+OK");
    ensure!(other.notify("nobody")? == 401);
    let listed = call_again(owner.bed.resp, &[&auth, "CLIENT LIST"])?;
    let bytes: usize = listed.trim_start_matches('$').parse().context(listed)?;
    ensure!(bytes > 100, "both connections are listed at the owner");
    second.stop()?;
    first.stop()
}

//! The example of a cluster, as users run it: a graph succeeds although its node and the primary database are killed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use ganger_e2e::binary::ganger;
use ganger_e2e::ports::free_addresses;
use ganger_e2e::skip::note_skip;
use ganger_postgres_instance::unavailable_reason;

/// Number of ports in a row that the script uses for each kind of server.
const PORTS_IN_A_ROW: u16 = 3;

/// Returns a port that is free, and so are the ones behind it.
fn free_ports() -> Result<u16> {
    let addresses = free_addresses(40)?;
    let ports: Vec<u16> = addresses.iter().map(std::net::SocketAddr::port).collect();
    let is_free = |port: &u16| ports.contains(port);
    let mut firsts = ports.iter();
    let first = firsts.find(|first| (1..PORTS_IN_A_ROW).all(|next| is_free(&(**first + next))));
    first.copied().context("no three free ports in a row")
}

#[test]
fn the_example_of_a_cluster_survives_a_node_and_its_database() -> Result<()> {
    if let Some(reason) = unavailable_reason() {
        note_skip("the_example_of_a_cluster_survives", &reason);
        return Ok(());
    }
    let (databases, nodes) = (free_ports()?, free_ports()?);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cluster/run");
    let output = Command::new(script)
        .arg(ganger())
        .env("DATABASE_PORT", databases.to_string())
        .env("NODE_PORT", nodes.to_string())
        .stdin(Stdio::null())
        .output()
        .context("the script starts")?;
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(output.status.success(), "{text}\n{errors}");
    for part in [
        "is killed",
        "the nodes use the standby",
        "the graph has succeeded",
        "with attempt",
        " lines\n",
    ] {
        ensure!(
            text.contains(part),
            "{part:?} is missing:\n{text}\n{errors}"
        );
    }
    Ok(())
}

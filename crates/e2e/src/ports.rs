//! Addresses for servers of tests that run beside each other.

use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{self, UnixListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// Where to look, below the range from which the system takes ports for outgoing connections: a server that starts
/// again must find its port still free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// What this process has reserved, until it ends. A port alone cannot show it: while its server is being restarted,
/// nobody listens there.
static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// An address of the loopback that no other test uses as long as this process runs.
pub fn free_address() -> Result<SocketAddr> {
    free_addresses(1).map(|addresses| addresses[0])
}

/// Likewise, so many different ones.
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    // Processes begin at different places, only to find something sooner.
    let span = u32::from(PORTS.end - PORTS.start);
    let skipped = usize::try_from(std::process::id().wrapping_mul(101) % span)?;
    for port in PORTS.cycle().skip(skipped).take(PORTS.len()) {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let Ok(reservation) = reserve(port) else {
            continue;
        };
        if TcpListener::bind(address).is_err() {
            continue;
        }
        reserved.push(reservation);
        found.push(address);
        if found.len() == count {
            return Ok(found);
        }
    }
    bail!("not {count} free ports on the loopback within {PORTS:?}")
}

/// Takes the name that stands for a port; the system frees it with the process, however that ends.
fn reserve(port: u16) -> std::io::Result<UnixListener> {
    let name = net::SocketAddr::from_abstract_name(format!("ganger-test-port-{port}"))?;
    UnixListener::bind_addr(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_though_nobody_listens() {
        let mut all: Vec<_> = (0..50)
            .flat_map(|_| free_addresses(2).expect("free ports"))
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 100);
        assert!(reserve(all[0].port()).is_err(), "it is reserved");
    }
}

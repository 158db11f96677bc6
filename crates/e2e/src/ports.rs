//! Addresses for the servers of concurrent tests.

use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{self, UnixListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// Range of ports, below the range that the system uses for outgoing connections, so that a restarted server finds its
/// port still free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Reservations of this process, held until it ends. Listening on a port does not reserve it while the server
/// restarts.
static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());

/// Returns a loopback address that no other test uses while this process runs.
pub fn free_address() -> Result<SocketAddr> {
    free_addresses(1).map(|addresses| addresses[0])
}

/// Returns `count` different addresses like [`free_address`].
pub fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    let mut found = Vec::new();
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    // Processes start at different ports to find free ones sooner.
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
    bail!("fewer than {count} free loopback ports in {PORTS:?}")
}

/// Reserves a port by binding an abstract socket name. The system frees it when the process ends.
fn reserve(port: u16) -> std::io::Result<UnixListener> {
    let name = net::SocketAddr::from_abstract_name(format!("ganger-test-port-{port}"))?;
    UnixListener::bind_addr(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_returned_twice_although_nobody_listens() {
        let mut all: Vec<_> = (0..50)
            .flat_map(|_| free_addresses(2).expect("free ports"))
            .collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 100);
        assert!(reserve(all[0].port()).is_err(), "it is reserved");
    }
}

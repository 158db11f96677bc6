//! The ports: reads addresses, refuses unprotected ones that others could reach, and listens on the rest.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use tokio::net::{TcpListener, TcpSocket};

use crate::config::Config;
use crate::error::StartError;
#[cfg(any(feature = "redis", feature = "quantumleap"))]
use crate::security::Require;
use crate::security::{Protocol, Security};

/// A port with its listening socket.
pub(crate) struct BoundPort {
    pub(crate) listener: TcpListener,
    pub(crate) addr: SocketAddr,
}

/// Listens for HTTP and gRPC at the configured address.
pub(crate) fn main_port(config: &Config, security: &Security) -> Result<BoundPort, StartError> {
    let is_checked = security.is_checked();
    let bound = port(config, security, &config.addr, is_checked)?;
    let (http, grpc) = (
        security.require(Protocol::Http),
        security.require(Protocol::Grpc),
    );
    tracing::info!(tls = security.is_encrypted(), %http, %grpc, "what clients must show");
    Ok(bound)
}

/// Listens at an address; refuses if others could reach it and a protection is missing.
fn port(
    config: &Config,
    security: &Security,
    addr: &str,
    is_checked: bool,
) -> Result<BoundPort, StartError> {
    let exposure = Exposure {
        is_insecure: config.insecure,
        is_encrypted: security.is_encrypted(),
    };
    let addr = address(addr)?;
    exposure.check(addr, is_checked)?;
    listen_at(addr)
}

/// Listens for the clients of an optional part; `None` if the settings name no address for it.
#[cfg(any(feature = "redis", feature = "quantumleap"))]
pub(crate) fn optional_port(
    config: &Config,
    security: &Security,
    addr: Option<&str>,
    protocol: Protocol,
    clients: &str,
) -> Result<Option<BoundPort>, StartError> {
    let Some(addr) = addr else {
        return Ok(None);
    };
    let require = security.require(protocol);
    let bound = port(config, security, addr, require != Require::Nothing)?;
    tracing::info!(addr = %bound.addr, %require, "listening for {clients}");
    Ok(Some(bound))
}

/// Reads `HOST:PORT`; without a host the address is loopback.
fn address(text: &str) -> Result<SocketAddr, StartError> {
    let refused = |reason: &str| StartError::Address {
        addr: text.to_owned(),
        reason: reason.to_owned(),
    };
    if let Some(port) = text.strip_prefix(':') {
        let port = port
            .parse()
            .map_err(|_| refused("the port must be a number from 0 to 65535"))?;
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    if !matches!(port, Some(Ok(_))) {
        return Err(refused("write HOST:PORT, such as 127.0.0.1:3733, or :3733"));
    }
    let unknown = |reason: String| StartError::UnknownHost {
        addr: text.to_owned(),
        reason,
    };
    let mut found = text
        .to_socket_addrs()
        .map_err(|error| unknown(error.to_string()))?;
    found
        .next()
        .ok_or_else(|| unknown("the name resolves to no address".to_owned()))
}

/// Number of connections that the kernel queues until they are accepted, limited by `net.core.somaxconn`. Beyond it
/// clients retry after 1, 3 and 7 seconds.
const BACKLOG: u32 = 4_096;

fn listener(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // After a restart the server need not wait for connections of its predecessor.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

fn listen_at(addr: SocketAddr) -> Result<BoundPort, StartError> {
    let listener = listener(addr).map_err(|error| StartError::Listen {
        addr,
        reason: error.to_string(),
    })?;
    let addr = listener.local_addr().map_err(|error| StartError::System {
        doing: "read the address of the listener",
        reason: error.to_string(),
    })?;
    Ok(BoundPort { listener, addr })
}

/// Protection of a port that others may reach.
#[derive(Clone, Copy)]
struct Exposure {
    /// Whether the operator has allowed it without protection.
    is_insecure: bool,
    is_encrypted: bool,
}

impl Exposure {
    /// Refuses an address that others could reach unless connections are encrypted and callers checked, or the
    /// operator allowed it.
    fn check(self, addr: SocketAddr, is_checked: bool) -> Result<(), StartError> {
        if addr.ip().is_loopback() {
            return Ok(());
        }
        let missing = match (self.is_encrypted, is_checked) {
            (true, true) => return Ok(()),
            (true, false) => "callers would not be authenticated",
            (false, true) => "nothing would be encrypted, tokens included",
            (false, false) => "nothing would be encrypted and callers would not be authenticated",
        };
        if !self.is_insecure {
            return Err(StartError::Open { addr, missing });
        }
        tracing::warn!(%addr, "INSECURE: listening beyond this machine, and {missing}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_host_is_loopback() {
        assert_eq!(
            address(":3733").ok(),
            Some(SocketAddr::from(([127, 0, 0, 1], 3733)))
        );
        assert_eq!(
            address("0.0.0.0:1").ok(),
            Some(SocketAddr::from(([0, 0, 0, 0], 1)))
        );
        for wrong in ["", "localhost", ":x", ":70000", "1.2.3.4"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_public_address_needs_encryption_and_authentication_or_insecure() {
        let open = SocketAddr::from(([0, 0, 0, 0], 3733));
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        let check = |addr, is_insecure, is_encrypted, is_checked| {
            let exposure = Exposure {
                is_insecure,
                is_encrypted,
            };
            exposure.check(addr, is_checked)
        };
        assert!(check(here, false, false, false).is_ok());
        assert!(check(open, false, true, true).is_ok());
        for (is_encrypted, is_checked) in [(false, true), (true, false), (false, false)] {
            let refused = check(open, false, is_encrypted, is_checked);
            let refused = refused.expect_err("something is missing");
            assert!(refused.to_string().contains("--insecure"), "{refused}");
            assert_eq!(refused.exit_code(), 2);
            assert!(check(open, true, is_encrypted, is_checked).is_ok());
        }
    }
}

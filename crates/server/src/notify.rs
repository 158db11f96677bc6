//! Notifies a service manager of the server's state by the `sd_notify` protocol of systemd: a datagram to the socket
//! that the variable `NOTIFY_SOCKET` names. Without the variable nothing is sent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Variable that names the service manager's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";
/// State: the store is loaded and requests are served.
pub(crate) const READY: &str = "READY=1";
/// State: the server stops.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Sends the state to the service manager, if there is one. Failures are only logged.
pub(crate) fn notify(state: &str) {
    let Some(socket) = std::env::var_os(VARIABLE).filter(|socket| !socket.is_empty()) else {
        return;
    };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, state, "the service manager cannot be notified");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        // An abstract socket name, not a file.
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(listener: &UnixDatagram) -> String {
        let mut words = [0; 64];
        let count = listener.recv(&mut words).expect("a notification");
        String::from_utf8_lossy(&words[..count]).into_owned()
    }

    #[test]
    fn a_socket_is_a_file_or_a_name_that_the_kernel_keeps() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("notify");
        let file = UnixDatagram::bind(&path).expect("a socket");
        send(path.as_os_str(), READY).expect("sent");
        assert_eq!(receive(&file), "READY=1");

        let name = path.as_os_str().as_bytes();
        let address = SocketAddr::from_abstract_name(name).expect("a short name");
        let kept = UnixDatagram::bind_addr(&address).expect("a socket");
        let named = [b"@", name].concat();
        send(OsStr::from_bytes(&named), STOPPING).expect("sent");
        assert_eq!(receive(&kept), "STOPPING=1");
        assert!(send(OsStr::new("/nowhere/socket"), READY).is_err());
    }
}

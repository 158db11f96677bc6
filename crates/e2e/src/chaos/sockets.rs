//! Which process a local connection belongs to.

use std::path::Path;
use std::{fs, io};

/// Returns the process, of these, that has a TCP connection over IPv4 from this local port.
///
/// # Errors
/// If the system's table of connections cannot be read.
pub(super) fn owner_of_port(
    port: u16,
    processes: impl Iterator<Item = u32>,
) -> io::Result<Option<u32>> {
    let table = fs::read_to_string("/proc/net/tcp")?;
    let inodes = table.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (_, local) = columns.get(1)?.rsplit_once(':')?;
        let inode = columns.get(9)?;
        (u16::from_str_radix(local, 16) == Ok(port)).then(|| format!("socket:[{inode}]"))
    });
    let sockets: Vec<String> = inodes.collect();
    let mut processes = processes;
    Ok(processes.find(|process| has_any(*process, &sockets)))
}

/// Whether a process has one of these sockets open. One that has ended has none.
fn has_any(process: u32, sockets: &[String]) -> bool {
    let Ok(entries) = fs::read_dir(format!("/proc/{process}/fd")) else {
        return false;
    };
    let mut open = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    open.any(|target| sockets.iter().any(|socket| Path::new(socket) == target))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_is_that_of_its_process() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
        let address = listener.local_addr().expect("it listens");
        let client = TcpStream::connect(address).expect("it listens");
        let port = client.local_addr().expect("it is connected").port();
        let own = std::process::id();
        let found = owner_of_port(port, [1, own].into_iter()).expect("it can be read");
        assert_eq!(found, Some(own));
        drop(client);
        let found = owner_of_port(port, [own].into_iter()).expect("it can be read");
        assert_eq!(found, None);
    }
}

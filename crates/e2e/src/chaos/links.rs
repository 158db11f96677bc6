//! Links between nodes and databases, each of which can be cut in one direction or both, or slowed.
//!
//! A link that is cut keeps its connections and what was sent: it arrives when the link is whole again, also from a
//! sender that has given up, as on a network that delivers late.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::Result;

use super::sockets::owner_of_port;

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// A node, by its number.
    Node(usize),
    /// A server of the database, by its number.
    Database(usize),
}

/// Pieces of a direction that are under way at most, each of at most [`PIECE`] bytes.
const PIECES: usize = 256;
/// Bytes that are read at a time.
const PIECE: usize = 16 * 1024;

/// What happens to what one end sends to another.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    is_cut: bool,
    delay: Duration,
}

#[derive(Debug, Default)]
struct State {
    /// Directions that are not as usual, by sender and receiver.
    directions: BTreeMap<(End, End), Direction>,
    /// Where each end listens.
    servers: BTreeMap<End, SocketAddr>,
    /// Process of each node, by which its connections are known.
    processes: BTreeMap<u32, usize>,
}

/// All links. Their threads run until the process ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Links(Arc<(Mutex<State>, Condvar)>);

impl Links {
    /// Opens the link from a node to a server of the database; returns its address.
    pub(super) fn to_database(&self, node: usize, database: usize) -> Result<SocketAddr> {
        self.open(Some(End::Node(node)), End::Database(database))
    }

    /// Opens the link from all other nodes to a node; returns its address.
    pub(super) fn to_node(&self, node: usize) -> Result<SocketAddr> {
        self.open(None, End::Node(node))
    }

    /// Says where an end listens. Connections that exist stay with the former address.
    pub(super) fn lead(&self, end: End, server: SocketAddr) {
        self.lock().servers.insert(end, server);
    }

    /// Says which process a node is, so that its connections are known as its own.
    pub(super) fn is_process(&self, node: usize, process: u32) {
        let mut state = self.lock();
        state.processes.retain(|_, other| *other != node);
        state.processes.insert(process, node);
    }

    /// Cuts what one end sends to another.
    pub(super) fn cut(&self, from: End, to: End) {
        self.lock().directions.entry((from, to)).or_default().is_cut = true;
    }

    /// Lets what one end sends to another arrive this much later.
    pub(super) fn slow(&self, from: End, to: End, delay: Duration) {
        self.lock().directions.entry((from, to)).or_default().delay = delay;
    }

    /// Makes these directions whole and fast again, each from a sender to a receiver.
    pub(super) fn mend(&self, directions: &[(End, End)]) {
        let mut state = self.lock();
        for direction in directions {
            state.directions.remove(direction);
        }
        drop(state);
        self.0.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, from: Option<End>, to: End) -> Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let links = self.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(io::Result::ok) {
                let links = links.clone();
                // A connection that cannot be made ends at its client too.
                thread::spawn(move || links.carry(&client, from, to));
            }
        });
        Ok(address)
    }

    /// Connects a client with the end that it wants, and carries both directions until one of them ends.
    fn carry(&self, client: &TcpStream, from: Option<End>, to: End) -> io::Result<()> {
        let from = match from {
            Some(from) => from,
            None => self.sender(client)?,
        };
        self.wait_while_cut(from, to);
        let address = self.lock().servers.get(&to).copied();
        let server = TcpStream::connect(address.ok_or(io::ErrorKind::NotConnected)?)?;
        for stream in [client, &server] {
            stream.set_nodelay(true)?;
        }
        let (back_from, back_to) = (server.try_clone()?, client.try_clone()?);
        let links = self.clone();
        thread::spawn(move || links.carry_direction(&back_from, back_to, (to, from)));
        self.carry_direction(client, server, (from, to));
        Ok(())
    }

    /// The node whose connection this is.
    fn sender(&self, client: &TcpStream) -> io::Result<End> {
        let processes = self.lock().processes.clone();
        let found = owner_of_port(client.peer_addr()?.port(), processes.keys().copied())?;
        let node = found.and_then(|process| processes.get(&process).copied());
        node.map(End::Node).ok_or(io::ErrorKind::NotFound.into())
    }

    /// Carries what one end sends, each piece when its time has come.
    fn carry_direction(&self, from: &TcpStream, mut to: TcpStream, direction: (End, End)) {
        let (pieces, arriving) = sync_channel(PIECES);
        let Ok(source) = from.try_clone() else {
            return;
        };
        thread::spawn(move || read_pieces(source, &pieces));
        let carried = self.write_pieces(&arriving, &mut to, direction);
        // The other side hears of the end, in order or not.
        let how = if carried.is_ok() {
            Shutdown::Write
        } else {
            Shutdown::Both
        };
        let _ = to.shutdown(how);
        if carried.is_err() {
            let _ = from.shutdown(Shutdown::Both);
        }
    }

    fn write_pieces(
        &self,
        arriving: &Receiver<(Instant, Vec<u8>)>,
        to: &mut TcpStream,
        direction: (End, End),
    ) -> io::Result<()> {
        while let Ok((sent_at, bytes)) = arriving.recv() {
            let delay = self
                .lock()
                .directions
                .get(&direction)
                .map_or(Duration::ZERO, |it| it.delay);
            thread::sleep((sent_at + delay).saturating_duration_since(Instant::now()));
            self.wait_while_cut(direction.0, direction.1);
            to.write_all(&bytes)?;
        }
        self.wait_while_cut(direction.0, direction.1);
        Ok(())
    }

    fn wait_while_cut(&self, from: End, to: End) {
        let is_cut = |state: &mut State| {
            state
                .directions
                .get(&(from, to))
                .is_some_and(|it| it.is_cut)
        };
        drop(self.0.1.wait_while(self.lock(), is_cut));
    }
}

/// Reads until the end, with the time at which each piece was sent.
fn read_pieces(mut from: TcpStream, pieces: &SyncSender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; PIECE];
    while let Ok(read) = from.read(&mut buffer) {
        if read == 0
            || pieces
                .send((Instant::now(), buffer[..read].to_vec()))
                .is_err()
        {
            break;
        }
    }
}

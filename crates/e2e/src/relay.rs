//! A TCP relay between a client and a server, which can hold replies back or cut the connection after a number of bytes.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Result, ensure};

use crate::server::TIMEOUT;

/// The action when the limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtLimit {
    /// Holds replies back until [`Relay::release`].
    Hold,
    /// Cuts the connection on both sides.
    Cut,
}

#[derive(Debug, Default)]
struct State {
    /// Bytes of replies so far.
    passed: u64,
    limit: Option<(u64, AtLimit)>,
    is_held: bool,
}

/// A relay. Its threads run until the process ends.
#[derive(Debug)]
pub struct Relay {
    /// Loopback address on which the relay listens.
    pub address: SocketAddr,
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Relay {
    /// Starts a relay to a server, without a limit.
    pub fn start(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let relay = Self {
            address: listener.local_addr()?,
            shared: Arc::default(),
        };
        let shared = Arc::clone(&relay.shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(std::io::Result::ok) {
                let shared = Arc::clone(&shared);
                // If the connection to the server fails, the client loses its connection too.
                thread::spawn(move || connect(&client, server, &shared));
            }
        });
        Ok(relay)
    }

    /// Returns the number of bytes of replies since the last limit was set.
    pub fn passed(&self) -> u64 {
        lock(&self.shared.0).passed
    }

    /// Counts bytes of replies from now on, and acts after this many. Replies that were held back go on, or their
    /// connections are cut if that is what happens now.
    pub fn limit(&self, bytes: u64, then: AtLimit) {
        *lock(&self.shared.0) = State {
            limit: Some((bytes, then)),
            ..State::default()
        };
        self.shared.1.notify_all();
    }

    /// Waits until the relay holds replies back.
    pub fn wait_until_held(&self) -> Result<()> {
        let (state, changed) = &*self.shared;
        let waited = changed.wait_timeout_while(lock(state), TIMEOUT, |it| !it.is_held);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ensure!(state.is_held, "only {} bytes have passed", state.passed);
        Ok(())
    }

    /// Removes the limit and forwards what was held back.
    pub fn release(&self) {
        *lock(&self.shared.0) = State::default();
        self.shared.1.notify_all();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn connect(
    client: &TcpStream,
    server: SocketAddr,
    shared: &(Mutex<State>, Condvar),
) -> std::io::Result<()> {
    let server = TcpStream::connect(server)?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let copied = std::io::copy(&mut from_client, &mut to_server);
        let closed = to_server.shutdown(Shutdown::Write);
        copied.and(closed)
    });
    let (mut server, mut client) = (server, client);
    let mut buffer = [0; 4_096];
    loop {
        let count = server.read(&mut buffer)?;
        if count == 0 || !may_pass(count, shared) {
            server.shutdown(Shutdown::Both)?;
            return client.shutdown(Shutdown::Both);
        }
        client.write_all(&buffer[..count])?;
    }
}

/// Counts bytes and waits while replies are held back. Returns false if the connection must be cut.
fn may_pass(count: usize, (state, changed): &(Mutex<State>, Condvar)) -> bool {
    let mut state = lock(state);
    state.passed += u64::try_from(count).unwrap_or(u64::MAX);
    match state.limit {
        Some((limit, AtLimit::Cut)) if state.passed > limit => false,
        Some((limit, AtLimit::Hold)) if state.passed > limit => {
            state.is_held = true;
            changed.notify_all();
            let waited = changed.wait_while(state, |it| it.is_held);
            let state = waited.unwrap_or_else(PoisonError::into_inner);
            !matches!(state.limit, Some((_, AtLimit::Cut)))
        }
        _ => true,
    }
}

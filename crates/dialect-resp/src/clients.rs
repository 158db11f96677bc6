//! The open connections, for `CLIENT LIST` and `CLIENT KILL`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

/// The registry of all open connections.
#[derive(Default)]
pub(crate) struct Clients {
    next: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// The public state of a connection.
pub(crate) struct Client {
    pub(crate) id: u64,
    from: SocketAddr,
    at: SocketAddr,
    since: Instant,
    /// Token that ends the connection.
    pub(crate) cut: CancellationToken,
    state: Mutex<ClientState>,
}

/// The part of the state that changes.
#[derive(Clone, Debug)]
pub(crate) struct ClientState {
    pub(crate) name: Bytes,
    pub(crate) library: Bytes,
    pub(crate) library_version: Bytes,
    pub(crate) database: usize,
    pub(crate) channels: usize,
    pub(crate) patterns: usize,
    /// Number of queued commands in a transaction; `None` outside of one.
    pub(crate) queued: Option<usize>,
    pub(crate) command: &'static str,
    pub(crate) is_blocked: bool,
    pub(crate) is_three: bool,
    pub(crate) user: String,
    last: Instant,
}

impl Clients {
    /// Registers a new connection. Its number is never used again.
    pub(crate) fn enter(
        &self,
        from: SocketAddr,
        at: SocketAddr,
        stopping: &CancellationToken,
    ) -> Arc<Client> {
        let now = Instant::now();
        let client = Arc::new(Client {
            id: self.next.fetch_add(1, Ordering::Relaxed) + 1,
            from,
            at,
            since: now,
            cut: stopping.child_token(),
            state: Mutex::new(ClientState {
                name: Bytes::new(),
                library: Bytes::new(),
                library_version: Bytes::new(),
                database: 0,
                channels: 0,
                patterns: 0,
                queued: None,
                command: "NULL",
                is_blocked: false,
                is_three: false,
                user: String::new(),
                last: now,
            }),
        });
        self.open().insert(client.id, Arc::clone(&client));
        client
    }

    /// Removes a connection that has ended.
    pub(crate) fn leave(&self, id: u64) {
        self.open().remove(&id);
    }

    /// One line for each connection, or for each with one of these numbers.
    pub(crate) fn list(&self, ids: Option<&[u64]>) -> String {
        let open: Vec<_> = self.open().values().cloned().collect();
        let wanted = |client: &&Arc<Client>| ids.is_none_or(|ids| ids.contains(&client.id));
        open.iter()
            .filter(wanted)
            .map(|client| client.line())
            .collect()
    }

    /// Ends a connection. Returns false if there is none with this number.
    pub(crate) fn end(&self, id: u64) -> bool {
        let found = self.open().get(&id).cloned();
        found.inspect(|client| client.cut.cancel()).is_some()
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Client {
    /// Locks the part of the state that changes.
    pub(crate) fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of the client.
    pub(crate) fn from(&self) -> SocketAddr {
        self.from
    }

    /// Records the last command.
    pub(crate) fn note(&self, command: &'static str) {
        let mut state = self.state();
        state.command = command;
        state.last = Instant::now();
    }

    /// The line of `CLIENT LIST`, in the format of Redis. Values that ganger does not measure are 0.
    pub(crate) fn line(&self) -> String {
        let state = self.state().clone();
        let Self { id, from, at, .. } = self;
        let age = self.since.elapsed().as_secs();
        let idle = state.last.elapsed().as_secs();
        let flags = match (
            state.channels + state.patterns > 0,
            state.queued.is_some(),
            state.is_blocked,
        ) {
            (_, _, true) => "b",
            (_, true, _) => "x",
            (true, ..) => "P",
            _ => "N",
        };
        let multi = state
            .queued
            .map_or("-1".to_owned(), |count| count.to_string());
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        format!(
            "id={id} addr={from} laddr={at} fd=0 name={name} age={age} idle={idle} flags={flags} db={database} sub={channels} psub={patterns} ssub=0 multi={multi} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 tot-mem=0 events=r cmd={command} user={user} redir=-1 resp={resp} lib-name={library} lib-ver={version}\n",
            name = text(&state.name),
            database = state.database,
            channels = state.channels,
            patterns = state.patterns,
            command = state.command,
            user = state.user,
            resp = if state.is_three { 3 } else { 2 },
            library = text(&state.library),
            version = text(&state.library_version),
        )
    }
}

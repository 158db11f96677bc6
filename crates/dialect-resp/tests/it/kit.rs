//! The port of a shard with a memory store, and a client that reads raw replies.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ganger_access::{Audit, Budget, Identity};
use ganger_dialect_resp::{Counters, Login, LoginError, Port, Settings};
use ganger_metrics::Exposition;
use ganger_shard::{Handle, Hooks, Shard, SystemClock};
use ganger_store::{CommitError, Loaded, MemoryStore, Opened, Store, StoreError};
use ganger_types::Commit;
use ganger_types::keys::KeyUpkeep;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Maximum time to wait for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory budget of all connections in bytes.
const BUDGET_BYTES: usize = 512 << 20;

/// Identities by token; without tokens the port requires no authentication.
#[derive(Clone, Default)]
pub(crate) struct Tokens(
    Arc<Mutex<Vec<(String, Identity)>>>,
    Arc<tokio::sync::Notify>,
);

impl Tokens {
    pub(crate) fn put(&self, token: &str, identity: Identity) {
        self.0
            .lock()
            .expect("no panic")
            .push((token.to_owned(), identity));
    }

    pub(crate) fn forget_all(&self) {
        self.0
            .lock()
            .expect("no panic")
            .iter_mut()
            .for_each(|(token, _)| token.push('x'));
        self.1.notify_waiters();
    }

    /// Removes a token and announces the change.
    pub(crate) fn forget(&self, token: &str) {
        self.0
            .lock()
            .expect("no panic")
            .iter_mut()
            .filter(|(known, _)| known == token)
            .for_each(|(token, _)| token.push('x'));
        self.1.notify_waiters();
    }

    /// Removes a token without announcing it, like an expiry.
    pub(crate) fn forget_silently(&self, token: &str) {
        let mut all = self.0.lock().expect("no panic");
        let one = all.iter_mut().find(|(known, _)| known == token);
        *one.expect("it is known") = (token.to_uppercase(), Identity::Anonymous);
    }

    fn find(&self, token: &[u8]) -> Option<Identity> {
        let all = self.0.lock().expect("no panic");
        all.iter()
            .find(|(known, _)| known.as_bytes() == token)
            .map(|(_, identity)| identity.clone())
    }
}

impl Login for Tokens {
    fn is_open(&self) -> bool {
        self.0.lock().expect("no panic").is_empty()
    }

    fn stranger(&self) -> Identity {
        if self.is_open() {
            Identity::unchecked()
        } else {
            Identity::Anonymous
        }
    }

    fn login<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Identity, LoginError>> {
        async move { self.find(token).ok_or(LoginError::Wrong) }.boxed()
    }

    fn changes(&self) -> u64 {
        let all = self.0.lock().expect("no panic");
        u64::try_from(all.iter().map(|(token, _)| token.len()).sum::<usize>()).expect("few")
    }

    fn changed(&self, seen: u64) -> BoxFuture<'_, ()> {
        async move {
            loop {
                let changed = self.1.notified();
                if self.changes() != seen {
                    return;
                }
                changed.await;
            }
        }
        .boxed()
    }

    fn is_unchanged(&self, token: Option<&[u8]>, identity: &Identity) -> bool {
        token.map_or(self.stranger(), |token| {
            self.find(token).unwrap_or(Identity::Anonymous)
        }) == *identity
    }
}

/// A store whose loading waits for a signal.
struct Slow {
    inner: MemoryStore,
    go: Receiver<()>,
}

impl Store for Slow {
    type Reader = <MemoryStore as Store>::Reader;

    fn open(&mut self) -> Result<Opened, StoreError> {
        self.inner.open()
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        // The end of the test is a signal too.
        let _ = self.go.recv();
        self.inner.load(each)
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        self.inner.commit(commit)
    }

    fn reader(&self) -> Result<Self::Reader, StoreError> {
        self.inner.reader()
    }
}

/// The port and the shard of a server.
pub(crate) struct World {
    /// Runtime of port and shard.
    runtime: Runtime,
    shard: Handle,
    port: Port,
    pub(crate) address: SocketAddr,
    pub(crate) tokens: Tokens,
    counters: Arc<Counters>,
    pub(crate) stopping: CancellationToken,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A world with other upkeep settings.
    pub(crate) fn tended(key_upkeep: KeyUpkeep) -> Self {
        let shard = ganger_shard::Settings {
            key_upkeep,
            ..ganger_shard::Settings::default()
        };
        Self::of(shard, |_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::of(ganger_shard::Settings::default(), change)
    }

    /// A world whose store is loaded after a signal on `go`.
    pub(crate) fn loading(go: Receiver<()>) -> Self {
        let store = Slow {
            inner: MemoryStore::new(),
            go,
        };
        let settings = ganger_shard::Settings::default();
        let shard = Shard::start(store, settings, Arc::new(SystemClock), Hooks::default());
        let shard = shard.expect("a store in memory opens");
        Self::over(shard, Runtime::new().expect("threads"), |_| {})
    }

    fn of(shard: ganger_shard::Settings, change: impl FnOnce(&mut Settings)) -> Self {
        let runtime = Runtime::new().expect("threads");
        let shard = Shard::start(
            MemoryStore::new(),
            shard,
            Arc::new(SystemClock),
            Hooks::default(),
        );
        let shard = shard.expect("a store in memory opens");
        runtime.block_on(shard.ready());
        Self::over(shard, runtime, change)
    }

    fn over(shard: Handle, runtime: Runtime, change: impl FnOnce(&mut Settings)) -> Self {
        let stopping = CancellationToken::new();
        let mut settings = Settings {
            databases: Settings::usual_databases(),
            may_flush: true,
            write_timeout: PATIENCE,
            login_timeout: PATIENCE,
            tcp_port: 0,
            audit: Audit::to_log(),
            budget: Budget::new(BUDGET_BYTES),
            stopping: stopping.clone(),
        };
        change(&mut settings);
        let port = Port::new(shard.clone(), settings);
        let served = port.clone();
        let counters = Arc::clone(port.counters());
        let tokens = Tokens::default();
        let known = tokens.clone();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let address = listener.local_addr().expect("it listens");
        runtime.spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (port, login) = (served.clone(), Arc::new(known.clone()));
                tokio::spawn(async move { port.serve(stream, login, from, address).await });
            }
        });
        Self {
            runtime,
            shard,
            port,
            address,
            tokens,
            counters,
            stopping,
        }
    }

    /// The address of a second port without a shard, which relays its connections to this one while `is_there`. The
    /// returned token ends the port over the shard, as a move of the shard does.
    pub(crate) fn relay(&self, is_there: bool) -> (SocketAddr, CancellationToken) {
        let moved = CancellationToken::new();
        let owner = self.port.over(self.shard.clone(), moved.clone());
        let id = self.shard.id();
        let vacant = Handle::vacant(id, "elsewhere", Arc::new(SystemClock));
        let entry = self.port.over(vacant, self.stopping.clone());
        let listener = self
            .runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let tokens = self.tokens.clone();
        self.runtime.spawn(async move {
            while let Ok((stream, from)) = listener.accept().await {
                let (entry, owner, login) =
                    (entry.clone(), owner.clone(), Arc::new(tokens.clone()));
                let dial = move |session| async move {
                    if !is_there {
                        return Err("no node owns the shard".to_owned());
                    }
                    let (here, there) = tokio::io::duplex(4 << 10);
                    let known: Arc<dyn Login> = Arc::new(Tokens::default());
                    tokio::spawn(async move {
                        let served = owner.serve_relayed(there, known, from, address, session);
                        served.await;
                    });
                    Ok(here)
                };
                tokio::spawn(async move { entry.relay(stream, login, from, address, dial).await });
            }
        });
        (address, moved)
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    /// Returns the metrics of the port as text, after checking it.
    pub(crate) fn metrics(&self) -> String {
        let mut out = Exposition::default();
        self.counters.metrics(&mut out);
        let text = out.text();
        assert_eq!(ganger_metrics::check(&text), Ok(()));
        text
    }

    /// Number of commits of the shard so far.
    #[cfg(feature = "qless")]
    pub(crate) fn commits(&self) -> u64 {
        let shown = self.shard.metrics().counters;
        let found = shown.iter().find(|(name, _)| *name == "commits_total");
        found.expect("it is counted").1
    }

    /// The shard's reply to a direct command.
    #[cfg(not(feature = "qless"))]
    pub(crate) fn call(&self, command: ganger_types::Command) -> ganger_types::Reply {
        let reply = self.runtime.block_on(self.shard.call(command));
        reply.expect("it is accepted")
    }
}

/// A client that sends bytes and reads raw replies.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("sent");
    }

    /// Sends as many bytes as the server accepts before it closes the connection.
    pub(crate) fn send_what_is_taken(&mut self, bytes: &[u8]) {
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// The bytes of the next reply.
    pub(crate) fn reply(&mut self) -> Vec<u8> {
        let mut reply = Vec::new();
        self.read_into(&mut reply);
        reply
    }

    fn read_into(&mut self, reply: &mut Vec<u8>) {
        let begun = reply.len();
        self.stream.read_until(b'\n', reply).expect("a reply");
        assert!(reply.len() > begun, "the connection was closed");
        let line = String::from_utf8_lossy(&reply[begun + 1..])
            .trim_end()
            .to_owned();
        let count = || line.parse::<i64>().unwrap_or(0);
        match reply[begun] {
            b'$' | b'=' => {
                if let Ok(length) = usize::try_from(count()) {
                    let mut bulk = vec![0; length + 2];
                    self.stream.read_exact(&mut bulk).expect("a bulk");
                    reply.extend(bulk);
                }
            }
            b'*' | b'>' => (0..count()).for_each(|_| self.read_into(reply)),
            b'%' => (0..count() * 2).for_each(|_| self.read_into(reply)),
            _ => {}
        }
    }

    /// Sends a command and returns its reply with line ends as spaces.
    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        self.send(&encode(words));
        self.shown()
    }

    /// The next reply with line ends as spaces.
    pub(crate) fn shown(&mut self) -> String {
        let reply = self.reply();
        String::from_utf8_lossy(&reply)
            .trim_end()
            .replace("\r\n", " ")
    }

    /// Reads until the server closes the connection. Returns false if it does not.
    pub(crate) fn is_closed_at_last(&mut self) -> bool {
        let mut rest = [0; 4_096];
        loop {
            match self.stream.read(&mut rest) {
                Ok(1..) => {}
                end => return is_end(&end),
            }
        }
    }

    /// Whether the server has closed the connection; false after a timeout.
    pub(crate) fn is_closed(&mut self) -> bool {
        is_end(&self.stream.read(&mut [0]))
    }
}

/// Whether a read has reached the end of the connection, not its timeout.
fn is_end(read: &std::io::Result<usize>) -> bool {
    use std::io::ErrorKind::{TimedOut, WouldBlock};
    match read {
        Ok(bytes) => *bytes == 0,
        Err(error) => !matches!(error.kind(), TimedOut | WouldBlock),
    }
}

/// Polls until `is_so`, for what another task of the server does soon.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it does not come to be so");
        std::thread::yield_now();
    }
}

/// A command as clients send it.
pub(crate) fn encode<W: AsRef<[u8]>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n", word.as_ref().len()).bytes());
        bytes.extend(word.as_ref());
        bytes.extend(b"\r\n");
    }
    bytes
}

//! Bytes of a Redis connection, sent through the real port to a real shard with a store in memory.
//!
//! The first byte chooses the sender: without authentication, unauthenticated, or authenticated. Each connection must end,
//! and an unauthenticated sender must get only refusals.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ganger_access::{Audit, Budget, Identity, Proof};
use ganger_dialect_resp::{Login, LoginError, Port, Settings};
use ganger_shard::{Handle, Hooks, Shard, SystemClock};
use ganger_store::MemoryStore;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// Number of connections after which the server is replaced, so that memory stays bounded.
const CONNECTIONS_MAX: u32 = 2_000;
/// Size of the pipe between client and server in bytes.
const PIPE_BYTES: usize = 64 << 10;
/// The token that the target accepts.
const TOKEN: &[u8] = b"token";

thread_local! {
    static SERVER: RefCell<Option<TestServer>> = const { RefCell::new(None) };
}

/// The sender of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Anyone,
    Unknown,
    Known,
}

/// A server without a network.
struct TestServer {
    runtime: Runtime,
    shard: Handle,
    port: Port,
    connections: u32,
}

/// Sends the bytes after the first one over a connection.
///
/// # Panics
/// If the connection does not end, or an unauthenticated sender gets anything but refusals.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let sender = match choice % 3 {
        0 => Sender::Anyone,
        1 => Sender::Unknown,
        _ => Sender::Known,
    };
    SERVER.with_borrow_mut(|server| {
        let current = server.get_or_insert_with(TestServer::new);
        current.send(sender, bytes);
        if current.connections == CONNECTIONS_MAX
            && let Some(old) = server.take()
        {
            old.runtime.block_on(old.shard.stop());
        }
    });
}

/// Returns commands of each family, from each sender.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts: [&[u8]; 9] = [
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n",
        b"HELLO 3 AUTH default token SETNAME x\r\nCLIENT LIST\r\nCLIENT KILL ID 1\r\nINFO\r\n",
        b"AUTH token\r\nAUTH a b\r\nSELECT 3\r\nSET a 1 EX 10 NX GET\r\nTTL a\r\nRESET\r\nQUIT\r\n",
        b"MULTI\r\nLPUSH q a b\r\nSELECT 1\r\nBLPOP q 0\r\nPUBLISH c m\r\nINFO\r\nEXEC\r\n",
        b"WATCH a b\r\nMULTI\r\nINCR a\r\nEXEC\r\nDISCARD\r\nUNWATCH\r\n",
        b"LPUSH q a b c\r\nLRANGE q 0 -1\r\nLREM q -1 a\r\nLPOS q b RANK -1 COUNT 0 MAXLEN 2\r\nLMOVE q p LEFT RIGHT\r\n",
        b"BRPOPLPUSH q p 0.001\r\nBLPOP a b 0.001\r\nBLMOVE a b LEFT LEFT nan\r\n",
        b"SUBSCRIBE a b\r\nPSUBSCRIBE [a-\r\nPUBLISH a x\r\nPING\r\nGET a\r\nUNSUBSCRIBE\r\nPUBSUB NUMSUB a\r\n",
        b"KEYS [^a\\\r\nSCAN 0 MATCH * COUNT 3 TYPE list\r\nEVALSHA x 1 a\r\nSCRIPT EXISTS x\r\nFLUSHALL\r\nCOMMAND DOCS\r\n",
    ];
    let with_each = texts
        .iter()
        .flat_map(|text| [0, 1, 2].map(|choice| [&[choice], *text].concat()));
    with_each.collect()
}

impl TestServer {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime");
        let shard = Shard::start(
            MemoryStore::new(),
            ganger_shard::Settings::default(),
            Arc::new(SystemClock),
            Hooks::default(),
        );
        let shard = shard.expect("a store in memory opens");
        let settings = Settings {
            databases: Settings::usual_databases(),
            may_flush: true,
            write_timeout: Duration::from_secs(10),
            login_timeout: Duration::from_secs(10),
            tcp_port: 6379,
            audit: Audit::to_log(),
            budget: Budget::new(64 << 20),
            stopping: CancellationToken::new(),
        };
        let port = Port::new(shard.clone(), settings);
        Self {
            runtime,
            shard,
            port,
            connections: 0,
        }
    }

    fn send(&mut self, sender: Sender, bytes: &[u8]) {
        self.connections += 1;
        // The client closes the connection after the bytes, so that blocking commands do not wait forever.
        let (client_stream, server_stream) = tokio::io::duplex(PIPE_BYTES);
        let address = ([127, 0, 0, 1], 1).into();
        let task = self
            .port
            .serve(server_stream, std::sync::Arc::new(sender), address, address);
        let client = async {
            let (mut read, mut write) = tokio::io::split(client_stream);
            let written = async {
                // The server may have closed the connection.
                let _ = write.write_all(bytes).await;
                let _ = write.shutdown().await;
            };
            let mut replies = Vec::new();
            let read = async {
                let _ = read.read_to_end(&mut replies).await;
            };
            tokio::join!(written, read);
            replies
        };
        let both = async { tokio::join!(task, client).1 };
        let replies = self.runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(30), both)
                .await
                .expect("the connection ends")
        });
        if sender == Sender::Unknown && !contains(bytes, TOKEN) {
            let is_refusal = |line: &[u8]| {
                line.is_empty() || line[0] == b'-' || line == b"+OK" || line == b"+RESET"
            };
            let lines = replies.split(|byte| *byte == b'\n');
            let refused = lines
                .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
                .all(is_refusal);
            assert!(
                refused,
                "an unauthenticated sender was answered {}",
                replies.escape_ascii()
            );
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

impl Login for Sender {
    fn is_open(&self) -> bool {
        *self == Self::Anyone
    }

    fn stranger(&self) -> Identity {
        match self {
            Self::Anyone => Identity::unchecked(),
            Self::Unknown => Identity::Anonymous,
            Self::Known => {
                let grants = "worker@default".parse().expect("readable");
                Identity::principal("known", grants, Proof::Certificate)
            }
        }
    }

    fn login<'a>(&'a self, token: &'a [u8]) -> BoxFuture<'a, Result<Identity, LoginError>> {
        let identity = (token == TOKEN).then(Identity::shared_token);
        async move { identity.ok_or(LoginError::Wrong) }.boxed()
    }

    fn changes(&self) -> u64 {
        0
    }

    fn changed(&self, _: u64) -> BoxFuture<'_, ()> {
        futures::future::pending().boxed()
    }

    fn is_unchanged(&self, _: Option<&[u8]>, _: &Identity) -> bool {
        true
    }
}

//! Bytes of a Redis connection, through the real port into a real shard on a store in memory.
//!
//! The first byte chooses who sends them: somebody who is asked for nothing, somebody unknown, or one who is known by
//! a token. No bytes may break the server: each connection ends, the port goes on, and what somebody unknown has sent
//! has changed no key.

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

/// Connections after which the world begins again, so that memory stays bounded.
const CONNECTIONS_MAX: u32 = 2_000;
/// Between client and server at once.
const PIPE_BYTES: usize = 64 << 10;
/// The token that is known.
const TOKEN: &[u8] = b"token";

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Who sends the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Anyone,
    Unknown,
    Known,
}

/// A server without a network.
struct World {
    runtime: Runtime,
    shard: Handle,
    port: Port,
    connections: u32,
}

/// Sends the bytes behind the first over one connection.
///
/// # Panics
/// If the connection does not end, or somebody unknown has written a key.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    let sender = match choice % 3 {
        0 => Sender::Anyone,
        1 => Sender::Unknown,
        _ => Sender::Known,
    };
    WORLD.with_borrow_mut(|world| {
        let current = world.get_or_insert_with(World::new);
        current.send(sender, bytes);
        if current.connections == CONNECTIONS_MAX
            && let Some(old) = world.take()
        {
            old.runtime.block_on(old.shard.stop());
        }
    });
}

/// Commands to begin with: each family, split and whole.
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

impl World {
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
        // The port must not be told of what would wait forever: the client's end comes right behind.
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        let address = ([127, 0, 0, 1], 1).into();
        let task = self.port.serve(server, Box::new(sender), address, address);
        let spoken = async {
            let (mut read, mut write) = tokio::io::split(client);
            let written = async {
                // The server may have closed it in the middle.
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
        let both = async { tokio::join!(task, spoken).1 };
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
                "somebody unknown was answered {}",
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

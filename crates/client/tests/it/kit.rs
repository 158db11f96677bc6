//! Shared helpers: a whole server in this process that can be killed and restarted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ganger_client::{
    Client, Delivery, LeaseRequest, Options, Retry, TakeFrom, TakeMode, WorkEvent, WorkOptions,
    WorkStream,
};
use ganger_shard::{Handle, Hooks, Settings, Shard, SystemClock};
use ganger_store::MemoryStore;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Returns a port that no other test gets, even while its server is down. The system does not use these ports for
/// outgoing connections either.
fn next_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(50);
    let index = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000;
    20_000 + u16::try_from(index).expect("below ten thousand")
}

/// A server over a memory store, with its own runtime, so that it can be killed with all its connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) handle: Handle,
    pub(crate) draining: watch::Sender<bool>,
    runtime: Option<Runtime>,
    store: MemoryStore,
}

impl Server {
    pub(crate) fn start() -> Self {
        let free = std::iter::repeat_with(next_port)
            .take(10_000)
            .find_map(|port| {
                std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).ok()
            });
        Self::start_on(MemoryStore::new(), free.expect("a port is free"))
    }

    fn start_on(store: MemoryStore, listener: std::net::TcpListener) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let handle = Shard::start(
            store.clone(),
            Settings::default(),
            Arc::new(SystemClock),
            Hooks::default(),
        )
        .expect("the shard starts");
        let (draining, draining_receiver) = watch::channel(false);
        let options = ganger_dialect_grpc::Options {
            draining: draining_receiver,
            unidentified: ganger_access::Identity::unchecked(),
            ..ganger_dialect_grpc::Options::default()
        };
        listener.set_nonblocking(true).expect("sockets may be so");
        let address = listener.local_addr().expect("it is bound");
        let served = handle.clone();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            let router = ganger_dialect_grpc::router(served, options);
            axum::serve(listener, router)
                .await
                .expect("it serves until it is dropped");
        });
        Self {
            address,
            handle,
            draining,
            runtime: Some(runtime),
            store,
        }
    }

    /// Kills the server: all connections break without a message.
    pub(crate) async fn kill(mut self) -> StoppedServer {
        let runtime = self.runtime.take().expect("it runs");
        // The port is free again only when all tasks have ended.
        tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(30)))
            .await
            .expect("no panic");
        self.handle.stop().await;
        StoppedServer {
            address: self.address,
            store: self.store.clone(),
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.options())
            .await
            .expect("the server answers")
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            retry: Retry {
                pause_max: Duration::from_millis(100),
                total_max: Duration::from_secs(60),
                ..Retry::default()
            },
            ..Options::new(self.address.to_string())
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A killed server: its address and its store.
pub(crate) struct StoppedServer {
    address: SocketAddr,
    store: MemoryStore,
}

impl StoppedServer {
    /// Starts the server again with the same store and port.
    pub(crate) fn restart(self) -> Server {
        let listener = std::net::TcpListener::bind(self.address).expect("the port is free");
        Server::start_on(self.store, listener)
    }
}

pub(crate) fn take(worker: &str, jobs_max: u32) -> LeaseRequest {
    LeaseRequest {
        queues: vec![TakeFrom::new("default")],
        mode: TakeMode::Ordered,
        worker: worker.into(),
        jobs_max,
        lease_for: None,
        wait_for: Duration::from_secs(60),
    }
}

pub(crate) fn work(worker: &str, credits: u32) -> WorkOptions {
    WorkOptions {
        worker: worker.into(),
        queues: vec![TakeFrom::new("default")],
        mode: TakeMode::Ordered,
        lease_for: None,
        credits,
    }
}

/// Waits for the next event that is not about the connection.
pub(crate) async fn next(stream: &mut WorkStream) -> WorkEvent {
    loop {
        match stream.next().await.expect("the stream is open") {
            WorkEvent::Connected { .. } | WorkEvent::Disconnected { .. } => {}
            event => return event,
        }
    }
}

/// Waits for exactly `count` deliveries, however they are split into events.
pub(crate) async fn deliveries(stream: &mut WorkStream, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        match next(stream).await {
            WorkEvent::Jobs(jobs) => all.extend(jobs),
            other => panic!("expected jobs, got {other:?}"),
        }
    }
    assert_eq!(all.len(), count, "no more jobs arrived than wanted");
    all
}

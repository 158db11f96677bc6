//! What the tests share: a whole server in this process, that can go away and come back.

#![allow(dead_code, reason = "every test file uses a part of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ganger_client::{
    Client, Delivery, Options, Retry, Take, TakeFrom, TakeMode, WorkEvent, WorkOptions, WorkStream,
};
use ganger_shard::{Handle, Hooks, Settings, Shard, SystemClock};
use ganger_store::MemoryStore;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// A server over a memory store, with a runtime of its own, so that it can vanish with all its connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) handle: Handle,
    pub(crate) draining: watch::Sender<bool>,
    runtime: Option<Runtime>,
    store: MemoryStore,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_at(
            MemoryStore::new(),
            "127.0.0.1:0".parse().expect("an address"),
        )
    }

    fn start_at(store: MemoryStore, address: SocketAddr) -> Self {
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
        let (draining, told) = watch::channel(false);
        let options = ganger_dialect_grpc::Options {
            draining: told,
            ..ganger_dialect_grpc::Options::default()
        };
        let listener = std::net::TcpListener::bind(address).expect("the port is free");
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

    /// Vanishes: all connections break, nothing is said.
    pub(crate) async fn vanish(mut self) -> Gone {
        self.runtime.take().expect("it runs").shutdown_background();
        self.handle.stop().await;
        Gone {
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

/// What is left of a server that has vanished.
pub(crate) struct Gone {
    address: SocketAddr,
    store: MemoryStore,
}

impl Gone {
    /// Comes back with the same store at the same port.
    pub(crate) fn come_back(self) -> Server {
        Server::start_at(self.store, self.address)
    }
}

pub(crate) fn take(worker: &str, jobs_max: u32) -> Take {
    Take {
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

/// The next event that is not about the connection.
pub(crate) async fn next(stream: &mut WorkStream) -> WorkEvent {
    loop {
        match stream.next().await.expect("the stream is open") {
            WorkEvent::Connected { .. } | WorkEvent::Disconnected { .. } => {}
            event => return event,
        }
    }
}

/// So many deliveries, however they are cut.
pub(crate) async fn deliveries(stream: &mut WorkStream, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    while all.len() < count {
        match next(stream).await {
            WorkEvent::Jobs(jobs) => all.extend(jobs),
            other => panic!("expected jobs, got {other:?}"),
        }
    }
    assert_eq!(all.len(), count, "no more came than wanted");
    all
}

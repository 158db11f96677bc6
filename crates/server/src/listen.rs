//! The listener: accepts connections within limits and ends them gracefully.
//!
//! A separate thread accepts connections and answers health checks, so neither waits for work on the I/O threads.

mod addresses;
mod health;
mod open;
#[cfg(feature = "redis")]
mod resp;
mod timeout_stream;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use axum::body::Body;
use ganger_access::{Outcome, Record};
use http::{HeaderValue, Request, Version, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::Limits;
use crate::fair::{Lane, Scheduler};
use crate::port_handler::{ConnectionInfo, PeerAddress, PortHandler};
use addresses::Addresses;
use open::open;
use timeout_stream::TimeoutStream;

#[cfg(feature = "redis")]
pub(crate) use resp::{ConnectionIdentity, serve_resp};

/// Interval between pings on an idle HTTP/2 connection.
const PING_EVERY: Duration = Duration::from_secs(20);
/// Time that the client has to answer a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum number of streams that a client may reset before they are accepted; more is an attack.
const RESETS_PENDING_MAX: usize = 50;
/// Pause after the operating system refused a connection, such as for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Flow control window in bytes: room for a batch of jobs. Received bytes that are not read yet are in memory but in
/// no budget, so a connection has only one such window.
const WINDOW: u32 = 1 << 20;

/// Metrics of the listener.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Number of connections open now.
    pub(crate) open: AtomicU64,
    /// Number of connections accepted since the start.
    pub(crate) accepted: AtomicU64,
    /// Number of connections closed at once because their address had too many.
    pub(crate) refused: AtomicU64,
    /// Number of failed TLS handshakes.
    pub(crate) handshakes_failed: AtomicU64,
}

/// A port with its limits and its handler.
pub(crate) struct HttpPort {
    pub(crate) socket: TcpListener,
    pub(crate) handler: PortHandler,
    pub(crate) limits: Limits,
    pub(crate) scheduler: Scheduler,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stopping: CancellationToken,
    pub(crate) stop_requested: Arc<AtomicBool>,
    pub(crate) stop_timeout: Duration,
}

/// Accepts connections on a separate thread until `stopping`, then lets requests in flight end, for at most the stop
/// timeout. The caller's runtime serves the connections.
///
/// # Errors
/// If no thread can be started, or the listener cannot be registered.
pub(crate) fn serve(port: HttpPort) -> io::Result<JoinHandle<()>> {
    let io_threads = runtime::Handle::current();
    // Each runtime has its own event loop: the listener moves from one to the other.
    let listener = port.socket.into_std()?;
    let own = runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let entered = own.enter();
    let listener = TcpListener::from_std(listener)?;
    drop(entered);
    let host = ListenerContext {
        io_threads,
        scheduler: port.scheduler,
        handler: port.handler,
        limits: port.limits,
        counters: port.counters,
        stopping: port.stopping,
        stop_requested: port.stop_requested,
    };
    let (done, is_done) = oneshot::channel();
    thread::Builder::new()
        .name("ganger-accept".to_owned())
        .spawn(move || {
            own.block_on(host.accept_all(listener, port.stop_timeout));
            let _ = done.send(());
        })?;
    Ok(tokio::spawn(async move {
        let _ = is_done.await;
    }))
}

/// Counts a connection as open until it is dropped.
struct OpenConnection(Arc<Counters>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Shared state of the connections of a port.
#[derive(Clone)]
struct ListenerContext {
    /// The runtime that serves connections.
    io_threads: runtime::Handle,
    scheduler: Scheduler,
    handler: PortHandler,
    limits: Limits,
    counters: Arc<Counters>,
    stopping: CancellationToken,
    /// Whether the server was asked to stop: then each HTTP/1 connection ends with its next response.
    stop_requested: Arc<AtomicBool>,
}

/// An accepted connection, counted in the limits until it is dropped.
struct AcceptedConnection {
    stream: TcpStream,
    from: PeerAddress,
    watcher: Watcher,
    place: ConnectionSlots,
}

/// The entries of a connection in the limits.
struct ConnectionSlots {
    _open: OpenConnection,
    _of_address: addresses::CountedAddress,
    _of_all: OwnedSemaphorePermit,
}

impl ListenerContext {
    async fn accept_all(self, listener: TcpListener, stop_timeout: Duration) {
        let graceful = GracefulShutdown::new();
        let places = Arc::new(Semaphore::new(
            self.limits.connections.min(Semaphore::MAX_PERMITS),
        ));
        let addresses = Addresses::new(self.limits.connections_per_address);
        loop {
            // Without a free entry no connection is accepted: new ones wait in the kernel's queue.
            let accepted = tokio::select! {
                () = self.stopping.cancelled() => break,
                accepted = accept(&listener, &places) => accepted,
            };
            let Some((stream, from, place)) = accepted else {
                continue;
            };
            let Some(counted) = addresses.count(from.ip()) else {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            self.counters.accepted.fetch_add(1, Ordering::Relaxed);
            self.counters.open.fetch_add(1, Ordering::Relaxed);
            let accepted = AcceptedConnection {
                stream,
                from: PeerAddress(from),
                watcher: graceful.watcher(),
                place: ConnectionSlots {
                    _open: OpenConnection(Arc::clone(&self.counters)),
                    _of_address: counted,
                    _of_all: place,
                },
            };
            self.begin(accepted);
        }
        drop(listener);
        if tokio::time::timeout(stop_timeout, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::warn!(after = ?stop_timeout, "requests were still in flight; their connections are cut");
        }
    }

    /// Serves a connection on the I/O threads; a bare health check on this thread.
    fn begin(&self, accepted: AcceptedConnection) {
        let host = self.clone();
        if self.handler.security.tls().is_some() || self.handler.backend.health_paths().is_empty() {
            host.hand_over(accepted);
            return;
        }
        // A separate task: a panic ends only this connection.
        tokio::spawn(async move {
            let first =
                health::first_request(&accepted.stream, host.handler.backend.health_paths());
            let first = tokio::select! {
                () = host.stopping.cancelled() => return,
                first = tokio::time::timeout(host.limits.header_timeout, first) => first,
            };
            match first {
                Ok(true) => host.answer_health(accepted).await,
                Ok(false) => host.hand_over(accepted),
                Err(_) => tracing::debug!(from = %accepted.from.0, "no request came"),
            }
        });
    }

    /// Answers one request, and ends the connection.
    async fn answer_health(self, accepted: AcceptedConnection) {
        let schedule = self.scheduler.lane();
        let mut builder = builder(&self.limits, schedule.clone());
        builder.http1().keep_alive(false);
        self.serve_connection(
            accepted.stream,
            accepted.from,
            schedule,
            builder,
            accepted.watcher,
        )
        .await;
        drop(accepted.place);
    }

    /// Serves a connection on the I/O threads until it ends.
    fn hand_over(self, accepted: AcceptedConnection) {
        let AcceptedConnection {
            stream,
            from,
            watcher,
            place,
        } = accepted;
        let Ok(stream) = stream.into_std() else {
            return;
        };
        let schedule = self.scheduler.lane();
        let io_threads = self.io_threads.clone();
        // A separate task: a panic ends only this connection.
        io_threads.spawn(schedule.clone().scheduled(async move {
            if let Ok(stream) = TcpStream::from_std(stream) {
                let builder = builder(&self.limits, schedule.clone());
                self.serve_connection(stream, from, schedule, builder, watcher)
                    .await;
            }
            drop(place);
        }));
    }

    /// Serves one connection until it ends.
    async fn serve_connection(
        self,
        stream: TcpStream,
        from: PeerAddress,
        schedule: Lane,
        builder: Builder<Lane>,
        watcher: Watcher,
    ) {
        let security = &self.handler.security;
        let opened = tokio::select! {
            () = self.stopping.cancelled() => return,
            opened = open(stream, security.tls(), self.limits.handshake_timeout) => opened,
        };
        let (stream, certificate) = match opened {
            Ok(opened) => opened,
            Err(words) => {
                self.note_failed_handshake(from, words);
                return;
            }
        };
        let (handler, stop_requested) = (self.handler, self.stop_requested);
        let line = ConnectionInfo::new(from, certificate);
        let service = service_fn(move |request: Request<Incoming>| {
            let (handler, line) = (handler.clone(), line.clone());
            let stop_requested = Arc::clone(&stop_requested);
            let request = request.map(Body::new);
            let is_http1 = request.version() < Version::HTTP_2;
            async move {
                // Boxed when it starts: until then a request holds only its head.
                let mut response = Box::pin(handler.answer(request, line)).await;
                if is_http1 && stop_requested.load(Ordering::Relaxed) {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                Ok::<_, Infallible>(response)
            }
        });
        let stream = TimeoutStream::new(
            stream,
            self.limits.header_timeout,
            self.limits.write_timeout,
            schedule,
        );
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection.into_owned()).await {
            tracing::debug!(from = %from.0, error = %error, "connection ended");
        }
    }

    /// Records refused certificates in the audit log; other failures are network noise.
    fn note_failed_handshake(&self, from: PeerAddress, words: String) {
        self.counters
            .handshakes_failed
            .fetch_add(1, Ordering::Relaxed);
        tracing::debug!(from = %from.0, words, "a TLS handshake failed");
        if words.contains("certificate") {
            self.handler.security.audit.write(&Record {
                from: Some(from.0),
                detail: Some(words),
                ..Record::new("somebody unknown", "login", Outcome::Denied)
            });
        }
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => {
            // Small responses must be sent at once.
            let _ = stream.set_nodelay(true);
            Some((stream, peer, place))
        }
        Err(error) => {
            tracing::warn!(%error, "a connection could not be accepted");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

fn builder(limits: &Limits, schedule: Lane) -> Builder<Lane> {
    let mut builder = Builder::new(schedule);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_headers(limits.headers)
        .max_buf_size(limits.header_bytes)
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .max_concurrent_streams(limits.streams_per_connection)
        .max_pending_accept_reset_streams(RESETS_PENDING_MAX)
        .max_local_error_reset_streams(RESETS_PENDING_MAX)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    builder
}

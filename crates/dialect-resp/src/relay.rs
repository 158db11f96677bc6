//! Connections whose shard another node serves: the client authenticates here, and its commands run there.
//!
//! The node that the client is connected to passes bytes in both directions, and watches whether the client's
//! credentials stay valid. The other node runs the commands. When the shard moves, that node closes the connection
//! between two commands, and the client connects again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf, split,
};
use tokio::time::{sleep, timeout};

use crate::connection::Connection;
use crate::counters::Gauge;
use crate::limits::{IDLE_LOOK_EVERY, READ_BYTES};
use crate::login::Login;
use crate::port::Port;
use crate::relayed_session::RelayedSession;
use crate::session::Session;

impl Port {
    /// Serves a connection whose shard is on another node, until it ends: authenticates the client, calls `dial` for a
    /// stream to that node, and passes bytes. An error of `dial` is told to the client, which then tries again.
    pub async fn relay<S, T, F>(
        &self,
        stream: S,
        login: Arc<dyn Login>,
        from: SocketAddr,
        at: SocketAddr,
        dial: impl FnOnce(RelayedSession) -> F,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send,
        T: AsyncRead + AsyncWrite + Send,
        F: Future<Output = Result<T, String>>,
    {
        let shared = &self.shared;
        let _open = Gauge::of(&shared.counters.open);
        let client = shared.clients.enter(from, at, &shared.settings.stopping);
        let session = Session::new(Arc::clone(shared), client, login);
        let authenticated = Connection::new(stream, session).authenticate().await;
        let Some((mut stream, input, session)) = authenticated else {
            return;
        };
        let within = shared.settings.write_timeout;
        match dial(session.to_relay()).await {
            Ok(there) => {
                tokio::select! {
                    ended = pass_on(&mut stream, there, input, within) => {
                        tracing::debug!(%from, ?ended, "a Redis connection to another node ended");
                    }
                    () = until_unwanted(&session) => {}
                }
            }
            Err(reason) => {
                let refusal = format!("-LOADING {reason}\r\n");
                // A client that has disconnected gets no answer.
                let _ = timeout(within, stream.write_all(refusal.as_bytes())).await;
            }
        }
        let _ = timeout(Duration::from_secs(1), stream.shutdown()).await;
    }

    /// Serves a connection that another node passes on, until it ends. `from` is the client's address, `at` that of
    /// the port.
    pub async fn serve_relayed<S>(
        &self,
        stream: S,
        login: Arc<dyn Login>,
        from: SocketAddr,
        at: SocketAddr,
        relayed: RelayedSession,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let shared = &self.shared;
        let _open = Gauge::of(&shared.counters.open);
        let client = shared.clients.enter(from, at, &shared.settings.stopping);
        let mut session = Session::new(Arc::clone(shared), client, login);
        session.continue_relayed(relayed);
        let ended = Connection::new(stream, session).run().await;
        tracing::debug!(%from, ended = ended.as_str(), "a Redis connection of another node ended");
    }
}

/// Waits until the server stops, the connection is ended by another one, or the client's credentials end.
async fn until_unwanted(session: &Session) {
    let login = &session.login;
    let identity = session.to_relay().identity;
    let mut seen = session.changes_seen();
    loop {
        tokio::select! {
            () = session.client.cut.cancelled() => return,
            () = login.changed(seen), if !login.is_open() => {}
            // Tokens and certificates expire without a change.
            () = sleep(IDLE_LOOK_EVERY), if !login.is_open() => {}
        }
        seen = login.changes();
        if !login.is_unchanged(session.token(), &identity) {
            return;
        }
    }
}

/// Passes bytes in both directions, until the other node ends the stream. `input` is what the client has sent already.
async fn pass_on(
    here: &mut (impl AsyncRead + AsyncWrite + Unpin),
    there: impl AsyncRead + AsyncWrite,
    input: BytesMut,
    write_timeout: Duration,
) -> io::Result<()> {
    let (from_client, to_client) = split(here);
    let (from_node, to_node) = split(there);
    tokio::select! {
        // The replies to the last commands may still come.
        Ok(never) = send_commands(from_client, to_node, input) => match never {},
        ended = send_replies(from_node, to_client, write_timeout) => ended,
    }
}

/// Passes the client's bytes on; then waits forever.
async fn send_commands(
    mut from: ReadHalf<impl AsyncRead>,
    to: WriteHalf<impl AsyncWrite>,
    input: BytesMut,
) -> io::Result<std::convert::Infallible> {
    tokio::pin!(to);
    to.write_all(&input).await?;
    to.flush().await?;
    drop(input);
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await?;
    std::future::pending().await
}

/// Passes the replies on. A client that does not read for `write_timeout` ends the connection.
async fn send_replies(
    from: ReadHalf<impl AsyncRead>,
    mut to: WriteHalf<impl AsyncWrite + Unpin>,
    write_timeout: Duration,
) -> io::Result<()> {
    tokio::pin!(from);
    let mut bytes = BytesMut::with_capacity(READ_BYTES);
    while from.read_buf(&mut bytes).await? > 0 {
        timeout(write_timeout, async {
            to.write_all_buf(&mut bytes).await?;
            to.flush().await
        })
        .await??;
        bytes.reserve(READ_BYTES);
    }
    Ok(())
}

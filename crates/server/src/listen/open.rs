//! Prepares an accepted connection for requests: plain, or with a TLS handshake.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ganger_tls::{Certificate, Server, ServerStream, explain_client};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use crate::security::ClientCertificate;

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 0x16;
/// Message for a Redis client that uses a plain connection.
#[cfg(feature = "redis")]
const TLS_ONLY_OF_REDIS: &[u8] =
    b"-ERR this port speaks TLS: use an address that begins with rediss://, or --tls\r\n";
/// Message for any other client that uses a plain connection.
const TLS_ONLY: &str = "this port speaks TLS: use an address that begins with https://";
/// Maximum bytes read from a refused client, so that it gets to read the reason.
const DRAIN_BYTES_MAX: u64 = 64 << 10;
/// Longest time for a refused client to read the reason.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// A connection ready for requests.
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<ServerStream<TcpStream>>),
}

/// The protocol of a connection, in which a plain client is refused.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlainProtocol {
    /// HTTP of either version.
    Http,
    #[cfg(feature = "redis")]
    Redis,
}

/// Performs the TLS handshake, within its time limit.
///
/// # Errors
/// If the handshake fails; the message is for the log.
pub(super) async fn open(
    stream: TcpStream,
    tls: Option<Arc<Server>>,
    within: Duration,
) -> Result<(Transport, Option<Arc<ClientCertificate>>), String> {
    open_to(stream, tls, within, PlainProtocol::Http).await
}

/// Performs the TLS handshake on the Redis port.
///
/// # Errors
/// See [`open`].
#[cfg(feature = "redis")]
pub(super) async fn open_to_redis(
    stream: TcpStream,
    tls: Option<Arc<Server>>,
    within: Duration,
) -> Result<(Transport, Option<Arc<ClientCertificate>>), String> {
    open_to(stream, tls, within, PlainProtocol::Redis).await
}

async fn open_to(
    stream: TcpStream,
    tls: Option<Arc<Server>>,
    within: Duration,
    spoken: PlainProtocol,
) -> Result<(Transport, Option<Arc<ClientCertificate>>), String> {
    let Some(tls) = tls else {
        return Ok((Transport::Plain(stream), None));
    };
    let in_time = tokio::time::timeout(within, handshake(stream, &tls, spoken)).await;
    let stream = match in_time.map_err(|_| format!("no TLS handshake within {within:?}"))? {
        Ok(stream) => stream,
        Err((error, stream)) => {
            close(stream).await;
            return Err(explain_client(&error).unwrap_or_else(|| error.to_string()));
        }
    };
    let certificate = Certificate::of(stream.get_ref().1);
    let proven = certificate.map(|certificate| Arc::new(ClientCertificate::new(certificate, tls)));
    Ok((Transport::Tls(Box::new(stream)), proven))
}

/// Performs the handshake. The error includes the connection: the client has been sent the reason, and must still
/// read it.
async fn handshake(
    mut stream: TcpStream,
    tls: &Server,
    spoken: PlainProtocol,
) -> Result<ServerStream<TcpStream>, (io::Error, TcpStream)> {
    let mut first = [0];
    if let Err(error) = stream.peek(&mut first).await {
        return Err((error, stream));
    }
    if first[0] == HANDSHAKE {
        return tls.acceptor().accept(stream).into_fallible().await;
    }
    let error = match refuse_plain(&mut stream, spoken).await {
        Ok(()) => io::Error::other("it did not begin with a TLS handshake"),
        Err(error) => error,
    };
    Err((error, stream))
}

/// Closes a connection after the last bytes to the client. Closing with unread bytes would make the kernel reset the
/// connection, and the client would not see the reason.
async fn close(mut stream: TcpStream) {
    let left = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(DRAIN_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // A client that does not read loses only the reason.
    let _ = tokio::time::timeout(DRAIN_TIME_MAX, left).await;
}

/// Refuses a plain client in its own protocol.
async fn refuse_plain(stream: &mut TcpStream, spoken: PlainProtocol) -> io::Result<()> {
    let answer = match spoken {
        #[cfg(feature = "redis")]
        PlainProtocol::Redis => TLS_ONLY_OF_REDIS.to_vec(),
        PlainProtocol::Http => {
            let mut first = [0; 3];
            stream.read_exact(&mut first).await?;
            if &first == b"PRI" {
                go_away()
            } else {
                bad_request()
            }
        }
    };
    stream.write_all(&answer).await
}

/// Returns an HTTP/1.1 answer that refuses a plain connection.
fn bad_request() -> Vec<u8> {
    let length = TLS_ONLY.len() + 1;
    format!("HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{TLS_ONLY}\n").into_bytes()
}

/// HTTP/2: empty settings, then GOAWAY with `INADEQUATE_SECURITY` (RFC 9113, sections 6.8 and 7).
fn go_away() -> Vec<u8> {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: u8 = 7;
    const INADEQUATE_SECURITY: [u8; 4] = [0, 0, 0, 0xc];
    let length = u8::try_from(8 + TLS_ONLY.len()).expect("the words are few");
    let mut frames = SETTINGS.to_vec();
    frames.extend([0, 0, length, GOAWAY, 0, 0, 0, 0, 0]);
    frames.extend([0; 4]);
    frames.extend(INADEQUATE_SECURITY);
    frames.extend(TLS_ONLY.as_bytes());
    frames
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_plain_client_is_refused_in_its_own_protocol() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        for (spoken, sent, told) in [
            (
                PlainProtocol::Http,
                &b"GET / HTTP/1.1\r\n\r\n"[..],
                &b"HTTP/1.1 400 Bad Request\r\n"[..],
            ),
            #[cfg(feature = "redis")]
            (
                PlainProtocol::Redis,
                b"*1\r\n$4\r\nPING\r\n",
                b"-ERR this port speaks TLS",
            ),
            #[cfg(feature = "redis")]
            (PlainProtocol::Redis, b"P", b"-ERR this port speaks TLS"),
            (
                PlainProtocol::Http,
                b"PRI * HTTP/2.0\r\n\r\n",
                &[0, 0, 0, 4, 0],
            ),
        ] {
            let mut client = TcpStream::connect(at).await.expect("it listens");
            let (mut served, _) = listener.accept().await.expect("a connection");
            client.write_all(sent).await.expect("sent");
            client.shutdown().await.expect("the write side closes");
            refuse_plain(&mut served, spoken).await.expect("refused");
            close(served).await;
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.expect("read");
            assert!(answer.starts_with(told), "{answer:?}");
        }
    }
}

//! A client connection, encrypted or not.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::explain::explain;

/// Bytes with which a TLS-only server ends a plain HTTP/2 connection: `INADEQUATE_SECURITY`, and a text.
const TLS_ONLY: &[u8] = b"\x00\x00\x00\x0cthis port speaks TLS";

/// First bytes of a TLS alert, with which many servers respond to anything but a handshake.
const ALERT: &[u8] = b"\x15\x03";

/// Number of bytes before the type of an HTTP/2 frame; the first frame's type is `SETTINGS`.
const FRAME_LENGTH_BYTES: usize = 3;
const SETTINGS: u8 = 4;

/// An objection of the other side of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It refused this side's certificate, or something else in TLS; with a message.
    Refused(String),
    /// It expects TLS, and the connection is plain.
    SpeaksTls,
    /// Its first bytes are not those of an HTTP/2 server.
    NotHttp2,
}

/// The last fault, for callers that only see a closed connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastFault(Arc<Mutex<Option<Fault>>>);

impl LastFault {
    pub(crate) fn set(&self, fault: Option<Fault>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    pub(crate) fn get(&self) -> Option<Fault> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A connection, encrypted or not. An objection of the other side becomes an error with a message.
#[derive(Debug)]
pub struct Stream {
    pub(crate) inner: Inner,
    pub(crate) faults: LastFault,
    /// Whether nothing was read yet.
    pub(crate) is_fresh: bool,
}

/// Finds a fault in bytes that a plain connection has read; `is_first`: whether they are its first.
fn fault_in(read: &[u8], is_first: bool) -> Option<Fault> {
    let says_tls = || {
        let mut places = read.windows(TLS_ONLY.len()).take(64);
        places.any(|place| place == TLS_ONLY)
    };
    if says_tls() || (is_first && read.starts_with(ALERT)) {
        return Some(Fault::SpeaksTls);
    }
    let is_other = read
        .get(FRAME_LENGTH_BYTES)
        .is_some_and(|kind| *kind != SETTINGS);
    (is_first && is_other).then_some(Fault::NotHttp2)
}

/// Reads what a server sent before it closed a failed connection. It asks the operating system directly, since the
/// runtime may not have noticed the data yet.
fn unread_bytes(stream: &TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    let read = stream
        .as_fd()
        .try_clone_to_owned()
        .and_then(|same| std::net::TcpStream::from(same).read(&mut bytes));
    bytes.truncate(read.unwrap_or(0));
    bytes
}

#[derive(Debug)]
pub(crate) enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Records a fault of a TLS connection. With TLS 1.3 a refusal of the client's certificate comes after the
    /// handshake, as an alert in place of the first reply; the layers above see only a closed connection.
    fn record_fault<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        polled.map_err(|error| match explain(&error) {
            Some(words) => {
                self.faults.set(Some(Fault::Refused(words.clone())));
                io::Error::new(error.kind(), words)
            }
            None => error,
        })
    }

    /// Records a fault of a plain write. A server of another protocol may respond to the first bytes and close before
    /// the rest is written: then the write fails, and its unread response shows the cause.
    fn record_plain_fault(&mut self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (true, Inner::Plain(stream), Poll::Ready(Err(_))) =
            (self.is_fresh, &self.inner, &polled)
            && let Some(fault) = fault_in(&unread_bytes(stream), true)
        {
            self.faults.set(Some(fault));
        }
        polled
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.inner {
            Inner::Plain(stream) => {
                let before = buffer.filled().len();
                let polled = Pin::new(stream).poll_read(cx, buffer);
                let read = buffer.filled().get(before..).unwrap_or_default();
                if let Some(fault) = fault_in(read, this.is_fresh) {
                    this.faults.set(Some(fault));
                }
                this.is_fresh &= read.is_empty();
                polled
            }
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_read(cx, buffer);
                this.record_fault(polled)
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match &mut this.inner {
            Inner::Plain(stream) => {
                let polled = Pin::new(stream).poll_write(cx, bytes);
                this.record_plain_fault(polled)
            }
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_write(cx, bytes);
                this.record_fault(polled)
            }
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match &mut this.inner {
            Inner::Plain(stream) => {
                let polled = Pin::new(stream).poll_write_vectored(cx, slices);
                this.record_plain_fault(polled)
            }
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_write_vectored(cx, slices);
                this.record_fault(polled)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.inner {
            Inner::Plain(stream) => stream.is_write_vectored(),
            Inner::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_flush(cx);
                this.record_fault(polled)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_shutdown(cx);
                this.record_fault(polled)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_recognised_by_the_first_bytes() {
        let settings = b"\0\0\0\x04\0\0\0\0\0";
        for (read, fault) in [
            (&settings[..], None),
            (b"HTTP/1.1 400 Bad Request\r\n", Some(Fault::NotHttp2)),
            (b"-ERR unknown command\r\n", Some(Fault::NotHttp2)),
            (b"\x15\x03\x03\0\x02\x02\x16", Some(Fault::SpeaksTls)),
            (b"", None),
        ] {
            assert_eq!(fault_in(read, true), fault, "{read:?}");
        }
        let mut away = settings.to_vec();
        away.extend(b"\0\0\x20\x07\0\0\0\0\0\0\0\0\0");
        away.extend(TLS_ONLY);
        assert_eq!(fault_in(&away, true), Some(Fault::SpeaksTls));
        assert_eq!(
            fault_in(b"HTTP/1.1 200", false),
            None,
            "in the midst of a body"
        );
    }

    #[tokio::test]
    async fn a_fault_is_recognised_even_if_the_server_closes_before_the_write_ends() {
        use tokio::io::AsyncWriteExt;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("bound");
        let plain = TcpStream::connect(address).await.expect("connected");
        let (mut served, _) = listener.accept().await.expect("accepted");
        served
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .expect("written");
        drop(served);
        let faults = LastFault::default();
        let mut stream = Stream {
            inner: Inner::Plain(plain),
            faults: faults.clone(),
            is_fresh: true,
        };
        // The first write is answered with a reset, and one of the next fails by it.
        while stream.write(b"PRI * HTTP/2.0").await.is_ok() {}
        assert_eq!(faults.get(), Some(Fault::NotHttp2));
    }
}

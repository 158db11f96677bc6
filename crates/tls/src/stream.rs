//! A connection of the client's side, encrypted or not.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::explain::explain;

/// How a server that speaks TLS only ends a plain HTTP/2 connection: `INADEQUATE_SECURITY`, and words.
const TLS_ONLY: &[u8] = b"\x00\x00\x00\x0cthis port speaks TLS";

/// The last thing that went wrong, for those who only hear that a connection has closed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<Mutex<Option<String>>>);

impl Faults {
    pub(crate) fn set(&self, words: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    pub(crate) fn get(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A connection, encrypted or not. What the other side objects to comes as an error with words.
#[derive(Debug)]
pub struct Stream {
    pub(crate) inner: Inner,
    pub(crate) faults: Faults,
}

#[derive(Debug)]
pub(crate) enum Inner {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// With TLS 1.3 a server's refusal of our certificate comes after the handshake, as an alert in place
    /// of the first answer; the layers above keep only that the connection has closed.
    fn tell<T>(&self, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        polled.map_err(|error| match explain(&error) {
            Some(words) => {
                self.faults.set(Some(words.clone()));
                io::Error::new(error.kind(), words)
            }
            None => error,
        })
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
                let polled = Pin::new(stream).poll_read(cx, buffer);
                if buffer
                    .filled()
                    .windows(TLS_ONLY.len())
                    .take(64)
                    .any(|it| it == TLS_ONLY)
                {
                    let words =
                        "the server speaks TLS there: use an address that begins with https://";
                    this.faults.set(Some(words.to_owned()));
                }
                polled
            }
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_read(cx, buffer);
                this.tell(polled)
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
            Inner::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_write(cx, bytes);
                this.tell(polled)
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
            Inner::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_write_vectored(cx, slices);
                this.tell(polled)
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
                this.tell(polled)
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match &mut this.inner {
            Inner::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Inner::Tls(stream) => {
                let polled = Pin::new(stream).poll_shutdown(cx);
                this.tell(polled)
            }
        }
    }
}

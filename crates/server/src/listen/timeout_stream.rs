//! A connection with timeouts: for its first bytes, and for the progress of writes.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::fair::{Lane, ReadAllowance, SMALL_READ_BYTES, has_read_enough};

/// Number of bytes that identify the protocol: the preface of HTTP/2 has this length, and no request is shorter.
const PREFACE_BYTES: usize = 24;

/// A stream that fails when the other side is silent for too long.
///
/// The HTTP library limits the time of request heads, but neither that of the bytes that identify the protocol nor
/// that of a client that reads nothing.
pub(crate) struct TimeoutStream<T> {
    stream: T,
    /// Bytes read so far, counted up to [`PREFACE_BYTES`].
    read: usize,
    /// Timeout of those bytes.
    preface: Pin<Box<Sleep>>,
    write_timeout: Duration,
    /// Timeout that runs while a write makes no progress.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Decides how much may be read.
    lane: Lane,
}

impl<T> TimeoutStream<T> {
    pub(crate) fn new(
        stream: T,
        preface_timeout: Duration,
        write_timeout: Duration,
        lane: Lane,
    ) -> Self {
        let preface = Box::pin(sleep(preface_timeout));
        Self {
            stream,
            read: 0,
            preface,
            write_timeout,
            stalled: None,
            lane,
        }
    }

    /// Records whether a write made progress, and fails one that has not for too long.
    fn check_progress<R>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let timeout = self.write_timeout;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the other side reads nothing",
        )))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TimeoutStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if has_read_enough() {
            // Other connections run first.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let reading = ready!(self.lane.poll_reading(cx));
        let polled = match reading {
            ReadAllowance::All => Pin::new(&mut self.stream).poll_read(cx, buffer),
            ReadAllowance::Little => {
                let mut little = [0; SMALL_READ_BYTES];
                let room = buffer.remaining().min(SMALL_READ_BYTES);
                let mut little = ReadBuf::new(&mut little[..room]);
                let polled = Pin::new(&mut self.stream).poll_read(cx, &mut little);
                buffer.put_slice(little.filled());
                polled
            }
        };
        if self.read >= PREFACE_BYTES {
            return polled;
        }
        self.read += buffer.filled().len() - before;
        if polled.is_pending() && self.preface.as_mut().poll(cx).is_ready() {
            let error = io::Error::new(io::ErrorKind::TimedOut, "no request came");
            return Poll::Ready(Err(error));
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check_progress(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.check_progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check_progress(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check_progress(cx, shut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::Scheduler;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_client_that_sends_no_request_is_cut() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        theirs.write_all(b"PRI * HTTP").await.expect("room");
        let mut with_timeouts = TimeoutStream::new(ours, SHORT, LONG, Scheduler::new(1).lane());
        let mut buffer = [0; 64];
        assert_eq!(with_timeouts.read(&mut buffer).await.expect("bytes"), 10);
        let error = with_timeouts.read(&mut buffer).await.expect_err("silent");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_cut() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut with_timeouts = TimeoutStream::new(ours, LONG, SHORT, Scheduler::new(1).lane());
        let error = with_timeouts
            .write_all(b"more than fits")
            .await
            .expect_err("stalled");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut buffer = [0; 4];
        theirs.read_exact(&mut buffer).await.expect("what fitted");
    }
}

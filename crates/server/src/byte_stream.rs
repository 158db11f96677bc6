//! A stream of bytes in both directions over the two bodies of an HTTP exchange.

use std::io;

use axum::body::Body;
use futures::TryStreamExt as _;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, duplex, join};
use tokio_util::io::{ReaderStream, StreamReader};

/// Bytes that wait at most between a writer and its body.
const BUFFER_BYTES: usize = 16 << 10;

/// The end of a body into which its bytes are written.
pub(crate) struct BodyWriter(DuplexStream);

/// Returns a body, and the writer of its bytes. The body ends when the writer is dropped.
pub(crate) fn writable_body() -> (BodyWriter, Body) {
    let (ours, theirs) = duplex(BUFFER_BYTES);
    (
        BodyWriter(ours),
        Body::from_stream(ReaderStream::new(theirs)),
    )
}

impl BodyWriter {
    /// Returns a stream that reads `incoming` and writes the body of this writer.
    pub(crate) fn with(self, incoming: Body) -> impl AsyncRead + AsyncWrite + Send + Unpin {
        let bytes = incoming.into_data_stream().map_err(io::Error::other);
        join(StreamReader::new(bytes), self.0)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn two_bodies_are_a_stream_that_ends_with_its_writers() {
        let (first, body) = writable_body();
        let (second, answer) = writable_body();
        let (mut here, mut there) = (first.with(answer), second.with(body));
        let large = vec![7; 5 * BUFFER_BYTES];
        let sent = tokio::spawn(async move {
            here.write_all(&large).await.expect("it is read");
            here.shutdown().await.expect("it is read");
            let mut answer = Vec::new();
            here.read_to_end(&mut answer).await.expect("it is written");
            answer
        });
        let mut read = Vec::new();
        there.read_to_end(&mut read).await.expect("it is written");
        assert_eq!(read.len(), 5 * BUFFER_BYTES);
        there.write_all(b"thanks").await.expect("it is read");
        drop(there);
        assert_eq!(sent.await.expect("no panic"), b"thanks");
    }
}

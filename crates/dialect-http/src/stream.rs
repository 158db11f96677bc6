//! Streamed answers with a limited buffer.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use ganger_access::StreamPermit;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Maximum number of pieces that wait for the reader.
const PIECES_MAX: usize = 4;
/// Time without reading after which the answer is cut.
const READER_SILENT_MAX: Duration = Duration::from_secs(60);

/// The writing end of a streamed answer.
pub(crate) struct Pieces {
    sender: Sender<Bytes>,
    _permit: StreamPermit,
}

/// The reader has disconnected, or was too slow for too long.
#[derive(Debug)]
pub(crate) struct ReaderGone;

/// Creates a body and its writing end.
pub(crate) fn open(context: &RequestContext) -> Result<(Pieces, Body), Problem> {
    let place = context.api.settings().streams.take(context.owner.clone());
    let place = place.map_err(|full| {
        Problem::new("overloaded", full.to_string()).retry_after(Duration::from_secs(5))
    })?;
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let body = Body::from_stream(ReceiverStream::new(receiver).map(Ok::<_, Infallible>));
    Ok((
        Pieces {
            sender,
            _permit: place,
        },
        body,
    ))
}

impl Pieces {
    /// Writes a piece, and waits for the reader up to a limit.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), ReaderGone> {
        let piece = piece.into();
        if piece.is_empty() {
            return Ok(());
        }
        self.sender
            .send_timeout(piece, READER_SILENT_MAX)
            .await
            .map_err(|_| ReaderGone)
    }

    /// Completes when the reader has disconnected.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

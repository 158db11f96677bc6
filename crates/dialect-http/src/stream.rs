//! Answers that are written while they come into being, with a bounded buffer.

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

/// Pieces that wait for a reader.
const PIECES_MAX: usize = 4;
/// How long a reader may take no piece before it is cut.
const READER_SILENT_MAX: Duration = Duration::from_secs(60);

/// The writing end of an answer.
pub(crate) struct Pieces {
    sender: Sender<Bytes>,
    _permit: StreamPermit,
}

/// The reader is gone, or was too slow for too long.
#[derive(Debug)]
pub(crate) struct Gone;

/// A body, and the end at which it is written.
pub(crate) fn open(ask: &RequestContext) -> Result<(Pieces, Body), Problem> {
    let place = ask.api.settings().streams.take(ask.owner.clone());
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
    /// Writes a piece; waits for the reader, but not forever.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        let piece = piece.into();
        if piece.is_empty() {
            return Ok(());
        }
        self.sender
            .send_timeout(piece, READER_SILENT_MAX)
            .await
            .map_err(|_| Gone)
    }

    /// Completes when the reader has gone.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

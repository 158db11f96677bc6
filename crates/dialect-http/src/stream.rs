//! Streamed answers with a limited buffer.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use ganger_access::{CONTINUE, StreamPermit};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::sync::mpsc::{self, Sender};
use tokio_stream::wrappers::ReceiverStream;

use crate::problem::Problem;
use crate::request_context::RequestContext;

/// Maximum number of pieces that wait for the reader.
const PIECES_MAX: usize = 4;
/// Time without reading after which the answer is cut.
const READER_SILENT_MAX: Duration = Duration::from_secs(60);

type Piece = Result<Frame<Bytes>, AnswerCut>;

/// The writing end of a streamed answer.
pub(crate) struct Pieces {
    sender: Sender<Piece>,
    _permit: StreamPermit,
}

/// The reader has disconnected, or was too slow for too long.
#[derive(Debug)]
pub(crate) struct ReaderGone;

/// The answer ends before its end, so that its connection or stream is broken off: its status was sent already.
#[derive(Debug, thiserror::Error)]
#[error("the answer is incomplete: the server stops, or cannot read on")]
struct AnswerCut;

/// Creates a body and its writing end.
pub(crate) fn open(context: &RequestContext) -> Result<(Pieces, Body), Problem> {
    let place = context.api.settings().streams.take(context.owner.clone());
    let place = place.map_err(|full| {
        Problem::new("overloaded", full.to_string()).retry_after(Duration::from_secs(5))
    })?;
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let body = Body::new(StreamBody::new(ReceiverStream::new(receiver)));
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
        self.write(Ok(Frame::data(piece))).await
    }

    /// Ends the answer in the middle, in a way that its reader does not take for the end.
    pub(crate) async fn cut(self) {
        // The reader may be gone.
        self.write(Err(AnswerCut)).await.ok();
    }

    /// Ends the answer: it goes on at another node from this place.
    pub(crate) async fn continue_at(self, place: &str) {
        let place = HeaderValue::from_str(place).expect("our places are digits and dots");
        let trailers = HeaderMap::from_iter([(HeaderName::from_static(CONTINUE), place)]);
        self.write(Ok(Frame::trailers(trailers))).await.ok();
    }

    async fn write(&self, piece: Piece) -> Result<(), ReaderGone> {
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

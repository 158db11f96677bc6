//! A request's body: counted in the budget before its bytes are kept, and ended when its sender is silent or slow for
//! too long, or loses its right.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use ganger_access::{BodyCut, Hold};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

use super::framing::Framing;
use crate::security::WatchedRight;

/// Longest silence of a sender in the middle of a body or message.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// Minimum rate of a body or message, enforced from [`SILENT_MAX`] after its start.
const BYTES_PER_SECOND_MIN: u64 = 1 << 10;
/// Bytes last received of a stream that count as held while its lines or messages are processed.
const WINDOW_BYTES: usize = 2 << 20;

/// How a body is processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// One document or file: all of it is held until the request ends.
    Document,
    /// Lines, processed as they arrive.
    Lines,
    /// One or a few gRPC messages, all held until the request ends.
    Messages {
        /// Maximum bytes of a message.
        bytes_max: usize,
    },
    /// gRPC messages, processed as they arrive. The sender may be silent between them.
    MessageStream {
        /// Maximum bytes of a message.
        bytes_max: usize,
    },
}

/// Body of a request.
pub(crate) struct RequestBody {
    body: Body,
    kind: BodyKind,
    hold: Arc<Hold>,
    watched: Option<WatchedRight>,
    framing: Option<Framing>,
    pace: BodyRate,
    /// Bytes of the hold that are for this body.
    held: usize,
    /// For a stream: bytes since the last line end.
    line_bytes: usize,
    /// Frame after the last complete message.
    after: Option<Frame<Bytes>>,
    has_ended: bool,
}

/// Measures the rate of a body.
#[derive(Default)]
struct BodyRate {
    /// Start of the body, or of a stream's current message; `None` before it.
    begun: Option<Instant>,
    bytes: u64,
    last: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    /// Wraps a body whose bytes count in `hold`. With `watched` it ends when the sender loses its right.
    pub(crate) fn new(
        body: Body,
        kind: BodyKind,
        hold: Arc<Hold>,
        watched: Option<WatchedRight>,
    ) -> Self {
        let framing = match kind {
            BodyKind::Document | BodyKind::Lines => None,
            BodyKind::Messages { bytes_max } | BodyKind::MessageStream { bytes_max } => {
                Some(Framing::new(bytes_max))
            }
        };
        Self {
            body,
            kind,
            hold,
            watched,
            framing,
            pace: BodyRate::default(),
            held: 0,
            line_bytes: 0,
            after: None,
            has_ended: false,
        }
    }

    fn is_stream(&self) -> bool {
        matches!(self.kind, BodyKind::Lines | BodyKind::MessageStream { .. })
    }

    /// Whether the sender may be silent without limit now.
    fn may_be_silent(&self) -> bool {
        matches!(self.kind, BodyKind::MessageStream { .. })
            && !self.framing.as_ref().is_some_and(Framing::is_within)
    }

    /// Adds a chunk; returns the bytes that can be passed on.
    fn take(&mut self, piece: Bytes) -> Result<Bytes, BodyCut> {
        self.hold.grow(piece.len())?;
        self.held += piece.len();
        self.pace.record(piece.len(), Instant::now());
        if self.kind == BodyKind::Lines {
            let end = piece.iter().rposition(|byte| *byte == b'\n');
            self.line_bytes = match end {
                Some(at) => piece.len() - at - 1,
                None => self.line_bytes + piece.len(),
            };
            return Ok(piece);
        }
        let Some(framing) = &mut self.framing else {
            return Ok(piece);
        };
        let whole = framing.add(piece);
        if self.is_stream() && !whole.is_empty() {
            self.pace = BodyRate::default();
        }
        Ok(whole)
    }

    /// Returns bytes to the hold that the stream no longer keeps.
    fn release_unneeded(&mut self) {
        if !self.is_stream() {
            return;
        }
        let waiting = self.framing.as_ref().map_or(0, Framing::waiting);
        let kept = (self.line_bytes + waiting).max(WINDOW_BYTES);
        let unneeded = self.held.saturating_sub(kept);
        if unneeded > 0 {
            self.hold.shrink(unneeded);
            self.held -= unneeded;
        }
    }

    fn cut(&mut self, cut: BodyCut) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.has_ended = true;
        // Nothing more is read, so the collected bytes are dropped.
        self.body = Body::empty();
        if let Some(framing) = &mut self.framing {
            framing.end();
            return Poll::Ready(Some(Err(axum::Error::new(status(cut)))));
        }
        Poll::Ready(Some(Err(axum::Error::new(cut))))
    }
}

/// Returns the gRPC status for the reason.
fn status(cut: BodyCut) -> Status {
    let message = cut.to_string();
    let mut status = match cut {
        BodyCut::Full(_) => Status::unavailable(message),
        BodyCut::Silent(_) | BodyCut::Slow(_) => Status::cancelled(message),
        BodyCut::Revoked => Status::unauthenticated(message),
    };
    let is_retryable = if matches!(cut, BodyCut::Full(_)) {
        "true"
    } else {
        "false"
    };
    let metadata = status.metadata_mut();
    if let Ok(code) = cut.code().parse() {
        metadata.insert("ganger-code", code);
    }
    if let Ok(is_retryable) = is_retryable.parse() {
        metadata.insert("ganger-retryable", is_retryable);
    }
    status
}

impl BodyRate {
    fn record(&mut self, bytes: usize, now: Instant) {
        self.begun.get_or_insert(now);
        self.last = Some(now);
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        self.sleep = None;
    }

    /// Ready with the reason once the sender has been silent or slow for too long.
    fn poll(&mut self, cx: &mut Context<'_>, is_rated: bool) -> Poll<BodyCut> {
        loop {
            let at = match self.check_deadline(Instant::now(), is_rated) {
                Ok(at) => at,
                Err(cut) => return Poll::Ready(cut),
            };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
    }

    /// Returns the sender's next deadline; the reason if it has passed.
    fn check_deadline(&mut self, now: Instant, is_rated: bool) -> Result<Instant, BodyCut> {
        let begun = *self.begun.get_or_insert(now);
        let silent_at = *self.last.get_or_insert(now) + SILENT_MAX;
        let paid_for = Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN);
        let slow_at = begun + SILENT_MAX + paid_for;
        if now >= silent_at {
            return Err(BodyCut::Silent(SILENT_MAX));
        }
        if !is_rated {
            return Ok(silent_at);
        }
        if now >= slow_at {
            return Err(BodyCut::Slow(BYTES_PER_SECOND_MIN));
        }
        Ok(silent_at.min(slow_at))
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = &mut *self;
        if let Some(after) = this.after.take() {
            return Poll::Ready(Some(Ok(after)));
        }
        if this.has_ended {
            return Poll::Ready(None);
        }
        this.release_unneeded();
        loop {
            if let Some(watched) = &mut this.watched
                && watched.has_ended()
            {
                return this.cut(BodyCut::Revoked);
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => match this.take(piece) {
                        Ok(whole) if whole.is_empty() => {}
                        Ok(whole) => return Poll::Ready(Some(Ok(Frame::data(whole)))),
                        Err(cut) => return this.cut(cut),
                    },
                    Err(trailers) => {
                        let rest = this.framing.as_mut().map(Framing::end);
                        let Some(rest) = rest.filter(|rest| !rest.is_empty()) else {
                            return Poll::Ready(Some(Ok(trailers)));
                        };
                        this.after = Some(trailers);
                        return Poll::Ready(Some(Ok(Frame::data(rest))));
                    }
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    this.has_ended = true;
                    let rest = this.framing.as_mut().map(Framing::end);
                    let rest = rest.filter(|rest| !rest.is_empty());
                    return Poll::Ready(rest.map(|rest| Ok(Frame::data(rest))));
                }
                Poll::Pending => {
                    if let Some(watched) = &mut this.watched
                        && watched.poll_ended(cx).is_ready()
                    {
                        return this.cut(BodyCut::Revoked);
                    }
                    if this.may_be_silent() {
                        return Poll::Pending;
                    }
                    // A sender of lines may have few to send, so its rate is not limited.
                    let is_rated = this.kind != BodyKind::Lines;
                    return match this.pace.poll(cx, is_rated) {
                        Poll::Ready(cut) => this.cut(cut),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let is_within = self.framing.as_ref().is_some_and(Framing::is_within);
        self.after.is_none() && !is_within && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures::{StreamExt as _, stream};
    use ganger_access::{Budget, Owner};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_silent_or_slow_sender_is_cut() {
        let begun = Instant::now();
        let mut pace = BodyRate::default();
        assert_eq!(pace.check_deadline(begun, true), Ok(begun + SILENT_MAX));
        // One byte every 12 seconds is never silent, and too slow after half a minute.
        for place in 1..=2 {
            pace.record(1, begun + SECOND * 12 * place);
        }
        assert!(pace.check_deadline(begun + SECOND * 29, true).is_ok());
        let slow = pace.check_deadline(begun + SECOND * 30, true);
        assert_eq!(slow, Err(BodyCut::Slow(BYTES_PER_SECOND_MIN)));
        let with_timeouts = pace.check_deadline(begun + SECOND * 30, false);
        assert_eq!(with_timeouts, Ok(begun + SECOND * 54), "lines may be slow");
        let silent = pace.check_deadline(begun + SECOND * 54, false);
        assert_eq!(silent, Err(BodyCut::Silent(SILENT_MAX)));
        let mut fast = BodyRate::default();
        fast.record(1 << 20, begun);
        fast.record(1, begun + SECOND * 900);
        assert!(
            fast.check_deadline(begun + SECOND * 901, true).is_ok(),
            "1 MiB pays for 1,024 s"
        );
    }

    fn pieces(count: usize, piece: &'static [u8]) -> Body {
        let all = (0..count).map(move |_| Ok::<_, std::io::Error>(Bytes::from_static(piece)));
        Body::from_stream(stream::iter(all))
    }

    #[tokio::test]
    async fn a_document_counts_until_the_request_ends_and_processed_lines_do_not() {
        const PIECE: &[u8] = &[b'\n'; 64 << 10];
        let budget = Budget::new(48 << 20);
        let hold = |name: &str| {
            let name = name.to_owned();
            Arc::new(budget.open(Owner::Named(ganger_access::Proof::Token, name)))
        };
        let (document, lines) = (hold("a"), hold("b"));
        let body = RequestBody::new(
            pieces(100, PIECE),
            BodyKind::Document,
            Arc::clone(&document),
            None,
        );
        let read = Body::new(body).into_data_stream().count().await;
        assert_eq!((read, document.bytes()), (100, 6_400 << 10));
        let body = RequestBody::new(
            pieces(1_000, PIECE),
            BodyKind::Lines,
            Arc::clone(&lines),
            None,
        );
        let read = Body::new(body).into_data_stream().count().await;
        assert_eq!(read, 1_000, "more than the identity's share in all");
        assert!(
            lines.bytes() <= WINDOW_BYTES + PIECE.len(),
            "{}",
            lines.bytes()
        );
    }

    #[tokio::test]
    async fn a_body_beyond_the_share_ends_with_the_reason() {
        const PIECE: &[u8] = &[0; 64 << 10];
        let budget = Budget::new(3 << 20);
        let hold = Arc::new(budget.open(Owner::Unknown));
        let body = pieces(100, PIECE);
        let body = RequestBody::new(body, BodyKind::Document, Arc::clone(&hold), None);
        let last = Body::new(body)
            .into_data_stream()
            .fold(None, async |_, next| next.err());
        let error = last.await.expect("it is refused");
        assert!(
            matches!(BodyCut::of(&error), Some(BodyCut::Full(_))),
            "{error}"
        );
        drop(hold);
        assert_eq!(budget.used(), 0);
    }
}

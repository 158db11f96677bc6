//! A request's body: counted in the budget before its bytes are passed on, and ended when its sender is silent or slow
//! for too long, or loses its right.
//!
//! A document counts until its request ends, and is refused at once where the budget has no room. A stream counts what
//! its handler keeps ([`BytesInProcess`]) and the whole of a message of which a part has come; where the budget has no
//! room it is read no further until there is some, so that many full streams of one identity slow down and none ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use ganger_access::{BodyCut, BytesInProcess, Full, Hold, SMALL_BYTES};
use http::request::Parts;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};
use tonic::Status;

use super::framing::Framing;
use super::rate::BodyRate;
use crate::security::WatchedRight;

/// Maximum time for which a stream waits until the budget has room for it. Below the time after which a reader of lines
/// takes the sender for silent.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(20);
/// Interval at which such a stream asks again.
const ROOM_RETRY: Duration = Duration::from_millis(10);

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
    /// A connection that another node passes on: bytes, processed as they arrive. The sender may be silent.
    Relayed,
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
    /// What the handler of a stream keeps.
    in_process: BytesInProcess,
    /// Maximum time for which a stream waits for room in the budget.
    room_wait_max: Duration,
    /// For a stream that waits for room in the budget: what is passed on then.
    waiting: Option<WaitingBytes>,
    /// Frame after the last complete message.
    after: Option<Frame<Bytes>>,
    has_ended: bool,
}

/// Bytes that arrived while the budget had no room for them. At most one chunk of the transport.
struct WaitingBytes {
    bytes: Bytes,
    since: Instant,
    /// Wakes the task for the next try.
    _pause: Pin<Box<Sleep>>,
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
            BodyKind::Document | BodyKind::Lines | BodyKind::Relayed => None,
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
            in_process: BytesInProcess::default(),
            room_wait_max: ROOM_WAIT_MAX,
            waiting: None,
            after: None,
            has_ended: false,
        }
    }

    /// Puts into the head of a stream's request the number that its handler keeps up to date.
    pub(crate) fn insert_in_process(&self, head: &mut Parts) {
        if self.is_stream() {
            head.extensions.insert(self.in_process.clone());
        }
    }

    /// Whether the body is processed as it arrives.
    fn is_stream(&self) -> bool {
        matches!(
            self.kind,
            BodyKind::Lines | BodyKind::MessageStream { .. } | BodyKind::Relayed
        )
    }

    /// Whether the sender may be silent without limit now.
    fn may_be_silent(&self) -> bool {
        let may_pause = matches!(
            self.kind,
            BodyKind::MessageStream { .. } | BodyKind::Relayed
        );
        may_pause && !self.framing.as_ref().is_some_and(Framing::is_within)
    }

    /// Adds a chunk; returns the bytes that can be passed on, none if they wait for room in the budget.
    fn take(&mut self, piece: Bytes, cx: &mut Context<'_>) -> Result<Bytes, BodyCut> {
        self.pace.record(piece.len(), Instant::now());
        if !self.is_stream() {
            self.hold.grow(piece.len())?;
            self.held += piece.len();
            return Ok(match &mut self.framing {
                Some(framing) => framing.add(piece),
                None => piece,
            });
        }
        let piece_bytes = piece.len();
        let whole = match &mut self.framing {
            Some(framing) => framing.add(piece),
            None => piece,
        };
        if self.framing.is_some() && !whole.is_empty() {
            self.pace = BodyRate::default();
        }
        match self.hold_with(&whole) {
            Ok(()) => Ok(whole),
            Err(_) if self.holds_already(&whole, piece_bytes) => Ok(whole),
            Err(_) if self.could_have_room() => {
                self.wait_for_room(whole, Instant::now(), cx);
                Ok(Bytes::new())
            }
            Err(full) => Err(full.into()),
        }
    }

    /// Returns the bytes of a stream that are in memory besides those about to be passed on. A message of which a part
    /// has come counts as a whole: two that wait for each other's memory would never end.
    fn kept(&self) -> usize {
        let framed = self.framing.as_ref().map_or(0, Framing::announced_bytes);
        // A handler that does not count keeps everything.
        self.in_process
            .get()
            .map_or(self.held, |bytes| bytes + framed)
    }

    /// Whether a message that is whole now was held as a whole, but for what came with the last piece. It is passed on
    /// even if there is no room for the message that has begun after it: two streams that held one message and waited for
    /// room for the next would wait for each other. What has come of that one counts with its next piece.
    fn holds_already(&self, passed: &Bytes, piece_bytes: usize) -> bool {
        let in_process = self.in_process.get();
        in_process.is_some_and(|in_process| {
            let needed = in_process + passed.len();
            let was_held = self.framing.is_some() && self.held > 0;
            was_held && !passed.is_empty() && needed <= self.held + piece_bytes
        })
    }

    /// Makes the hold cover what is kept and `passed`.
    fn hold_with(&mut self, passed: &Bytes) -> Result<(), Full> {
        let bytes = self.kept() + passed.len();
        if bytes > self.held {
            self.hold.grow(bytes - self.held)?;
        } else {
            self.hold.shrink(self.held - bytes);
        }
        self.held = bytes;
        Ok(())
    }

    /// Whether the budget may have room for this stream later: it is not alone larger than a share.
    fn could_have_room(&self) -> bool {
        let framed = self.framing.as_ref().map_or(0, Framing::announced_bytes);
        let is_counted = self.in_process.get().is_some();
        is_counted && framed <= self.hold.budget().share() + SMALL_BYTES
    }

    fn wait_for_room(&mut self, bytes: Bytes, since: Instant, cx: &mut Context<'_>) {
        let mut pause = Box::pin(sleep(ROOM_RETRY));
        // It has just begun: this only registers the task, which also tries again whenever its handler has finished
        // with something.
        let _ = pause.as_mut().poll(cx);
        self.waiting = Some(WaitingBytes {
            bytes,
            since,
            _pause: pause,
        });
    }

    /// Tries again to get room for the bytes that wait for it. Ready with the bytes that can be passed on.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyCut>> {
        let Some(WaitingBytes { bytes, since, .. }) = self.waiting.take() else {
            return Poll::Ready(Ok(Bytes::new()));
        };
        match self.hold_with(&bytes) {
            Ok(()) => {
                // The sender was not the one who was silent.
                self.pace = BodyRate::default();
                Poll::Ready(Ok(bytes))
            }
            Err(full) if since.elapsed() >= self.room_wait_max => Poll::Ready(Err(full.into())),
            Err(_) => {
                self.wait_for_room(bytes, since, cx);
                Poll::Pending
            }
        }
    }

    /// Returns bytes to the hold that the stream no longer keeps.
    fn release_processed(&mut self) {
        if self.is_stream() {
            let unneeded = self.held.saturating_sub(self.kept());
            self.hold.shrink(unneeded);
            self.held -= unneeded;
        }
    }

    /// Ready with the cut once the sender has lost its right.
    fn poll_revoked(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Some(watched) = &mut self.watched
            && watched.poll_ended(cx).is_ready()
        {
            return self.cut(BodyCut::Revoked);
        }
        Poll::Pending
    }

    fn cut(&mut self, cut: BodyCut) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.has_ended = true;
        // Nothing more is read, so the collected bytes are dropped.
        self.body = Body::empty();
        self.waiting = None;
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
        this.release_processed();
        loop {
            if let Some(watched) = &mut this.watched
                && watched.has_ended()
            {
                return this.cut(BodyCut::Revoked);
            }
            match this.poll_room(cx) {
                Poll::Ready(Ok(bytes)) if bytes.is_empty() => {}
                Poll::Ready(Ok(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Poll::Ready(Err(cut)) => return this.cut(cut),
                Poll::Pending => return this.poll_revoked(cx),
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(piece) => match this.take(piece, cx) {
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
                    let revoked = this.poll_revoked(cx);
                    if revoked.is_ready() || this.may_be_silent() {
                        return revoked;
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
        self.after.is_none()
            && self.waiting.is_none()
            && !is_within
            && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures::{FutureExt as _, StreamExt as _, stream};
    use ganger_access::{Budget, Owner};

    use super::*;

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
        body.in_process.set(0);
        let read = Body::new(body).into_data_stream().count().await;
        assert_eq!(read, 1_000, "more than the identity's share in all");
        assert_eq!(lines.bytes(), 0);
    }

    #[tokio::test]
    async fn what_a_handler_does_not_count_is_held_until_the_request_ends() {
        const PIECE: &[u8] = &[b'\n'; 64 << 10];
        let budget = Budget::new(48 << 20);
        let hold = Arc::new(budget.open(Owner::Unknown));
        let body = pieces(10, PIECE);
        let body = RequestBody::new(body, BodyKind::Lines, Arc::clone(&hold), None);
        let read = Body::new(body).into_data_stream().count().await;
        assert_eq!((read, hold.bytes()), (10, 640 << 10));
    }

    /// A message of zeros with its header.
    fn message(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).expect("short").to_be_bytes();
        [&[0], &length[..], &vec![0; bytes]].concat()
    }

    /// Reads a stream to its end as a handler that keeps what it reads for a moment. Returns the bytes read.
    async fn read_slowly(body: RequestBody) -> usize {
        let in_process = body.in_process.clone();
        in_process.set(0);
        let mut body = Body::new(body).into_data_stream();
        let mut read = 0;
        while let Some(next) = body.next().await {
            let bytes = next.expect("no stream ends early").len();
            in_process.set(bytes);
            tokio::time::sleep(Duration::from_millis(1)).await;
            in_process.set(0);
            read += bytes;
        }
        read
    }

    #[tokio::test]
    async fn streams_that_hold_a_message_do_not_wait_for_each_other_with_the_next_one() {
        // The share of 2 MiB has room for two messages, and not for three.
        let budget = Budget::new(12 << 20);
        let sent = Bytes::from([message(700 << 10), message(700 << 10)].concat());
        let (first, second) = (692 << 10, 708 << 10);
        let mut streams: Vec<_> = (0..2)
            .map(|_| {
                let (sends, pieces) = futures::channel::mpsc::unbounded();
                let hold = Arc::new(budget.open(Owner::Unknown));
                let kind = BodyKind::MessageStream { bytes_max: 1 << 20 };
                let body = RequestBody::new(Body::from_stream(pieces), kind, hold, None);
                body.in_process.set(0);
                (sends, Body::new(body).into_data_stream())
            })
            .collect();
        let piece = |range: std::ops::Range<usize>| Ok::<_, std::io::Error>(sent.slice(range));
        for (sends, body) in &mut streams {
            sends.unbounded_send(piece(0..first)).expect("it is read");
            assert!(body.next().now_or_never().is_none(), "a part has come");
        }
        for (sends, body) in &mut streams {
            sends
                .unbounded_send(piece(first..second))
                .expect("it is read");
            let whole = body.next().now_or_never().flatten().expect("it is whole");
            assert_eq!(whole.expect("no error").len(), (700 << 10) + 5);
        }
        // Nothing of them is in process any more.
        for (sends, body) in &mut streams {
            sends
                .unbounded_send(piece(second..sent.len()))
                .expect("it is read");
            let whole = body.next().now_or_never().flatten().expect("it is whole");
            assert_eq!(whole.expect("no error").len(), (700 << 10) + 5);
        }
    }

    #[tokio::test]
    async fn many_full_streams_of_one_identity_slow_down_and_none_ends() {
        // A share of 2 MiB for 40 streams of messages of 700 KiB: at most two or three are in memory at once.
        let budget = Budget::new(12 << 20);
        let sent = Bytes::from([message(700 << 10), message(700 << 10)].concat());
        let mut streams = tokio::task::JoinSet::new();
        for _ in 0..40 {
            let chunks: Vec<_> = sent.chunks(16 << 10).map(Bytes::copy_from_slice).collect();
            let chunks = stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>));
            let hold = Arc::new(budget.open(Owner::Unknown));
            let kind = BodyKind::MessageStream { bytes_max: 1 << 20 };
            let body = RequestBody::new(Body::from_stream(chunks), kind, hold, None);
            streams.spawn(read_slowly(body));
        }
        while let Some(read) = streams.join_next().await {
            assert_eq!(read.expect("no reader panics"), sent.len());
            assert!(budget.used() <= budget.share() + 40 * SMALL_BYTES);
        }
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test]
    async fn a_stream_that_gets_no_room_ends_with_the_reason() {
        let budget = Budget::new(12 << 20);
        let other = budget.open(Owner::Unknown);
        other.grow(2 << 20).expect("its share");
        let hold = Arc::new(budget.open(Owner::Unknown));
        let body = Body::from(message(700 << 10));
        let kind = BodyKind::MessageStream { bytes_max: 1 << 20 };
        let mut body = RequestBody::new(body, kind, hold, None);
        body.room_wait_max = Duration::from_millis(50);
        body.in_process.set(0);
        let begun = Instant::now();
        let mut body = Body::new(body).into_data_stream();
        let error = body.next().await.expect("an end").expect_err("no room");
        assert!(begun.elapsed() >= Duration::from_millis(50));
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert!(cause.is_some_and(|cause| cause.contains("its share")));
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

//! A response: counted in the budget until its last byte is written, in chunks, so that at most one chunk waits in
//! the transport for a client that does not read.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use ganger_access::{Full, Hold};
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::UnreadResponses;
use crate::fair::request_end;
use crate::security::{GuardedBody, WatchedRight};

/// Bytes of one chunk. A response that is not larger is covered by what every request holds.
const PIECE_BYTES: usize = 16 << 10;
/// Number of frames examined before the response is sent: the message of a call, its trailers, the end.
const FRAMES_AHEAD: usize = 3;

/// Resources that a response holds until its last byte is written.
#[derive(Debug, Default)]
pub(crate) struct ResponseHolds {
    /// The request's share of the budget.
    pub(crate) hold: Option<Arc<Hold>>,
    /// Permit of an unidentified caller on the connection.
    pub(crate) _permit: Option<OwnedSemaphorePermit>,
}

/// Counts a response in the budget. An incomplete one ends when its reader loses its right. `must_go_out` responses
/// are counted even beyond the share, since the change that they report has happened.
///
/// # Errors
/// If there is no memory for it; the response is then dropped.
pub(crate) fn counted(
    response: Response<Body>,
    kept: ResponseHolds,
    must_go_out: bool,
    readers: Option<&UnreadResponses>,
    watched: Option<WatchedRight>,
    cx: &mut Context<'_>,
) -> Result<Response<Body>, Full> {
    let (head, mut body) = response.into_parts();
    let (ahead, is_whole) = look_ahead(&mut body, cx);
    if ahead.is_empty() && is_whole {
        return Ok(Response::from_parts(head, Body::empty()));
    }
    let bytes: usize = ahead
        .iter()
        .filter_map(Frame::data_ref)
        .map(Bytes::len)
        .sum();
    let mut charged = 0;
    if let Some(hold) = &kept.hold
        && bytes > PIECE_BYTES
    {
        if must_go_out {
            hold.grow_anyway(bytes);
        } else {
            hold.grow(bytes)?;
        }
        charged = bytes;
    }
    let body = match (is_whole, watched) {
        (true, _) => None,
        (false, Some(watched)) => Some(Body::new(GuardedBody::new(body, watched))),
        (false, None) => Some(body),
    };
    let slot = Arc::new(CutSlot {
        kept: Arc::new(kept),
        end: request_end(),
        state: Mutex::new(State {
            ahead,
            body,
            rest: Bytes::new(),
            charged,
            unread_since: Some(Instant::now()),
            is_cut: false,
        }),
    });
    if let Some(readers) = readers {
        readers.watch(&slot);
    }
    Ok(Response::from_parts(head, Body::new(ResponseBody(slot))))
}

/// Returns the frames that are ready, and whether they are all.
fn look_ahead(body: &mut Body, cx: &mut Context<'_>) -> (VecDeque<Frame<Bytes>>, bool) {
    let mut ahead = VecDeque::new();
    while ahead.len() < FRAMES_AHEAD {
        if body.is_end_stream() {
            return (ahead, true);
        }
        match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let is_last = frame.is_trailers();
                ahead.push_back(frame);
                if is_last {
                    return (ahead, true);
                }
            }
            Poll::Ready(None) => return (ahead, true),
            Poll::Ready(Some(Err(error))) => {
                *body = Body::new(FailedBody(Some(error)));
                return (ahead, false);
            }
            Poll::Pending => return (ahead, false),
        }
    }
    (ahead, body.is_end_stream())
}

/// Body of an answer.
struct ResponseBody(Arc<CutSlot>);

/// The part of a response that can be dropped when its client stops reading.
#[derive(Debug)]
pub(super) struct CutSlot {
    kept: Arc<ResponseHolds>,
    /// Ends the request, since the transport does not poll a response whose client gives it no room; `None` over
    /// HTTP/1.
    end: Option<CancellationToken>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ahead: VecDeque<Frame<Bytes>>,
    /// Rest of the body; `None` if there is none.
    body: Option<Body>,
    /// Rest of a frame of which chunks were passed on.
    rest: Bytes,
    /// Bytes of the hold for `ahead` and `rest`.
    charged: usize,
    /// Time since which data waits without the transport asking for it; `None` if none waits.
    unread_since: Option<Instant>,
    is_cut: bool,
}

/// A chunk in the transport; its bytes count until they are written.
struct CountedPiece {
    bytes: Bytes,
    charged: usize,
    kept: Arc<ResponseHolds>,
}

impl AsRef<[u8]> for CountedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for CountedPiece {
    fn drop(&mut self) {
        if let Some(hold) = &self.kept.hold {
            hold.shrink(self.charged);
        }
    }
}

impl CutSlot {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops everything if the client has read nothing for `timeout`.
    pub(super) fn cut_if_unread(&self, timeout: Duration) {
        let mut state = self.state();
        if state
            .unread_since
            .is_none_or(|since| since.elapsed() < timeout)
        {
            return;
        }
        let body = state.body.take();
        state.ahead = VecDeque::new();
        state.rest = Bytes::new();
        state.is_cut = true;
        state.unread_since = None;
        if let Some(hold) = &self.kept.hold {
            hold.shrink(std::mem::take(&mut state.charged));
        }
        // Its end may wake others, who must not find the lock taken.
        drop(state);
        drop(body);
        if let Some(end) = &self.end {
            end.cancel();
        }
    }

    fn piece(&self, state: &mut State) -> Frame<Bytes> {
        let bytes = state.rest.split_to(state.rest.len().min(PIECE_BYTES));
        let charged = bytes.len().min(state.charged);
        state.charged -= charged;
        let kept = Arc::clone(&self.kept);
        Frame::data(Bytes::from_owner(CountedPiece {
            bytes,
            charged,
            kept,
        }))
    }
}

impl State {
    /// Counts a frame that arrived while the response is read.
    fn count(&mut self, frame: &Frame<Bytes>, kept: &ResponseHolds) -> Result<(), Full> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        if bytes > PIECE_BYTES
            && let Some(hold) = &kept.hold
        {
            hold.grow(bytes)?;
            self.charged += bytes;
        }
        Ok(())
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let slot = &self.0;
        let mut state = slot.state();
        let state = &mut *state;
        if state.is_cut {
            let error = std::io::Error::other("nobody has read this response for too long");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        }
        if state.rest.is_empty() {
            let next = match (state.ahead.pop_front(), &mut state.body) {
                (Some(frame), _) => frame,
                (None, None) => return Poll::Ready(None),
                (None, Some(body)) => match Pin::new(body).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        if let Err(full) = state.count(&frame, &slot.kept) {
                            return Poll::Ready(Some(Err(axum::Error::new(full))));
                        }
                        frame
                    }
                    Poll::Pending => {
                        state.unread_since = None;
                        return Poll::Pending;
                    }
                    ended @ Poll::Ready(_) => return ended,
                },
            };
            match next.into_data() {
                Ok(data) => state.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = slot.piece(state);
        state.unread_since = Some(Instant::now());
        Poll::Ready(Some(Ok(piece)))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.0.state();
        let is_body_over = state.body.as_ref().is_none_or(Body::is_end_stream);
        !state.is_cut && state.rest.is_empty() && state.ahead.is_empty() && is_body_over
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.0.state();
        let ahead = state.ahead.iter().filter_map(Frame::data_ref);
        let bytes = ahead.map(Bytes::len).sum::<usize>() + state.rest.len();
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let behind = state.body.as_ref().map(HttpBody::size_hint);
        let behind = behind.unwrap_or_else(|| SizeHint::with_exact(0));
        let mut hint = SizeHint::new();
        hint.set_lower(bytes + behind.lower());
        if let Some(upper) = behind.upper() {
            hint.set_upper(bytes + upper);
        }
        hint
    }
}

/// A body that fails.
struct FailedBody(Option<axum::Error>);

impl HttpBody for FailedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Poll::Ready(self.0.take().map(Err))
    }
}

//! A request's body that can be taken back as long as nobody has read from it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// The other end of a body that was passed on.
pub(super) struct UnreadBody(Slot);

type Slot = Arc<Mutex<Option<Body>>>;

/// Returns a body to pass on, and what takes it back.
pub(super) fn keep(body: Body) -> (UnreadBody, Body) {
    let slot = Arc::new(Mutex::new(Some(body)));
    let passed = PassedBody {
        slot: Arc::clone(&slot),
        body: None,
    };
    (UnreadBody(slot), Body::new(passed))
}

impl UnreadBody {
    /// Takes the body back; `None` if somebody has read from it.
    pub(super) fn take(self) -> Option<Body> {
        lock(&self.0).take()
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Body>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that is taken out of its slot when it is read for the first time.
struct PassedBody {
    slot: Slot,
    /// The body, once it is read.
    body: Option<Body>,
}

impl HttpBody for PassedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.body.is_none() {
            let taken = lock(&self.slot).take();
            self.body = taken;
        }
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Some(body) => body.is_end_stream(),
            None => lock(&self.slot).as_ref().is_none_or(Body::is_end_stream),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => lock(&self.slot)
                .as_ref()
                .map_or_else(SizeHint::new, Body::size_hint),
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_body_comes_back_unless_it_was_read() {
        let (unread, passed) = keep(Body::from("text"));
        assert_eq!(passed.size_hint().exact(), Some(4));
        drop(passed);
        let back = unread.take().expect("nobody has read it");
        let (unread, passed) = keep(back);
        let read = passed.collect().await.expect("it is in memory");
        assert_eq!(read.to_bytes(), "text");
        assert!(unread.take().is_none());
    }
}

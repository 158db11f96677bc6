//! A request's body that can be sent a second time: as long as nobody has read from it, or from a copy.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use ganger_access::BytesInProcess;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// Most bytes of a body that are copied.
const COPY_MAX: usize = 1 << 20;

/// The other end of a body that was passed on.
pub(super) struct KeptBody(Slot);

type Slot = Arc<Mutex<Kept>>;

/// What is left of a body that was passed on.
enum Kept {
    /// Nobody has read from it.
    Unread(Body),
    /// The part of it that was read.
    Copy { bytes: Vec<u8>, is_whole: bool },
    /// It was read, and cannot be sent again.
    Gone,
}

/// Returns a body to pass on, and what takes it back. With a `copied`, what is read is copied, up to a megabyte, and the
/// bytes are told there.
pub(super) fn keep(body: Body, copied: Option<BytesInProcess>) -> (KeptBody, Body) {
    let slot = Arc::new(Mutex::new(Kept::Unread(body)));
    let passed = PassedBody {
        slot: Arc::clone(&slot),
        copied,
        body: None,
    };
    (KeptBody(slot), Body::new(passed))
}

impl KeptBody {
    /// Takes the body back if nobody has read from it, or if all of it was copied; `None` otherwise.
    pub(super) fn take(self) -> Option<Body> {
        match std::mem::replace(&mut *lock(&self.0), Kept::Gone) {
            Kept::Unread(body) => Some(body),
            Kept::Copy {
                bytes,
                is_whole: true,
            } => Some(Body::from(bytes)),
            Kept::Copy { .. } | Kept::Gone => None,
        }
    }

    /// Whether what was copied so far meets a condition.
    pub(super) fn is_copy(&self, condition: impl FnOnce(&[u8]) -> bool) -> bool {
        match &*lock(&self.0) {
            Kept::Copy { bytes, .. } => condition(bytes),
            Kept::Unread(_) | Kept::Gone => false,
        }
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Kept> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that is taken out of its slot when it is read for the first time.
struct PassedBody {
    slot: Slot,
    /// Where the bytes of the copy are counted; `None` if there is no copy.
    copied: Option<BytesInProcess>,
    /// The body, once it is read.
    body: Option<Body>,
}

impl PassedBody {
    /// Takes the body out of its slot, and leaves an empty copy there.
    fn open(&mut self) -> Option<&mut Body> {
        if self.body.is_none() {
            let mut kept = lock(&self.slot);
            let copy = Kept::Copy {
                bytes: Vec::new(),
                is_whole: false,
            };
            let next = if self.copied.is_some() {
                copy
            } else {
                Kept::Gone
            };
            if let Kept::Unread(body) = std::mem::replace(&mut *kept, next) {
                self.body = Some(body);
            } else {
                *kept = Kept::Gone;
            }
        }
        self.body.as_mut()
    }

    fn count(&self, bytes: usize) {
        if let Some(copied) = &self.copied {
            copied.set(bytes);
        }
    }

    /// Copies a frame; `None` is the end of the body.
    fn copy(&self, frame: Option<&Frame<Bytes>>, is_end: bool) {
        let mut kept = lock(&self.slot);
        let Kept::Copy { bytes, is_whole } = &mut *kept else {
            return;
        };
        match frame.map(Frame::data_ref) {
            None => *is_whole = true,
            Some(Some(data)) if bytes.len() + data.len() <= COPY_MAX => {
                bytes.extend_from_slice(data);
                *is_whole = is_end;
                self.count(bytes.len());
            }
            Some(_) => {
                *kept = Kept::Gone;
                self.count(0);
            }
        }
    }
}

impl HttpBody for PassedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = self.open() else {
            return Poll::Ready(None);
        };
        let polled = Pin::new(&mut *body).poll_frame(cx);
        let is_end = body.is_end_stream();
        match &polled {
            Poll::Ready(Some(Ok(frame))) => self.copy(Some(frame), is_end),
            Poll::Ready(None) => self.copy(None, true),
            Poll::Ready(Some(Err(_))) | Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        if let Some(body) = &self.body {
            return body.is_end_stream();
        }
        match &*lock(&self.slot) {
            Kept::Unread(body) => body.is_end_stream(),
            Kept::Copy { .. } | Kept::Gone => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        if let Some(body) = &self.body {
            return body.size_hint();
        }
        match &*lock(&self.slot) {
            Kept::Unread(body) => body.size_hint(),
            Kept::Copy { .. } | Kept::Gone => SizeHint::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::BodyExt as _;

    use super::*;

    async fn text(body: Body) -> Bytes {
        let read = body.collect().await.expect("it is in memory");
        read.to_bytes()
    }

    /// Returns a body of several frames.
    fn frames(frames: &[&'static str]) -> Body {
        let frames: Vec<_> = frames
            .iter()
            .map(|frame| Ok::<_, axum::Error>(*frame))
            .collect();
        Body::from_stream(stream::iter(frames))
    }

    #[tokio::test]
    async fn a_body_comes_back_unless_it_was_read() {
        let (kept, passed) = keep(Body::from("text"), None);
        assert_eq!(passed.size_hint().exact(), Some(4));
        drop(passed);
        let back = kept.take().expect("nobody has read it");
        let (kept, passed) = keep(back, None);
        assert_eq!(text(passed).await, "text");
        assert!(kept.take().is_none());
    }

    #[tokio::test]
    async fn a_copied_body_comes_back_when_all_of_it_was_read() {
        let copied = BytesInProcess::default();
        let (kept, passed) = keep(frames(&["te", "xt"]), Some(copied.clone()));
        assert_eq!(text(passed).await, "text");
        assert_eq!(copied.get(), Some(4));
        assert!(kept.is_copy(|bytes| bytes == b"text"));
        let again = kept.take().expect("all of it was copied");
        assert_eq!(text(again).await, "text");

        let (kept, mut passed) = keep(frames(&["te", "xt"]), Some(copied));
        let first = passed.frame().await.expect("it has two frames");
        assert!(first.is_ok());
        drop(passed);
        assert!(kept.take().is_none(), "the rest of it is lost");
    }

    #[tokio::test]
    async fn only_a_small_body_is_copied() {
        for (bytes, is_copied) in [(COPY_MAX, true), (COPY_MAX + 1, false)] {
            let copied = BytesInProcess::default();
            let (kept, passed) = keep(Body::from(vec![7; bytes]), Some(copied.clone()));
            assert_eq!(text(passed).await.len(), bytes);
            assert_eq!(copied.get(), Some(if is_copied { bytes } else { 0 }));
            assert_eq!(kept.take().is_some(), is_copied);
        }
    }
}

//! A body that lasts only as long as its reader's rights: a stream that is open when a token is revoked
//! ends, and the client that opens it again is judged anew.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use ganger_access::Identity;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::{Door, Security, Shown};

/// A token may expire without any file having changed; open streams look so often.
const LOOK_EVERY: Duration = Duration::from_secs(30);

type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A body that ends with an error when who reads it is not known as the same any more.
pub(crate) struct Held {
    body: Body,
    security: Arc<Security>,
    door: Door,
    shown: Shown,
    identity: Identity,
    /// Made when the body first has to wait: an answer that is there at once costs nothing.
    ended: Option<Ended>,
}

impl Held {
    pub(crate) fn new(
        body: Body,
        security: Arc<Security>,
        door: Door,
        shown: Shown,
        identity: Identity,
    ) -> Self {
        Self {
            body,
            security,
            door,
            shown,
            identity,
            ended: None,
        }
    }

    fn watch(&self) -> Ended {
        let security = Arc::clone(&self.security);
        let (door, shown, identity) = (self.door, self.shown.clone(), self.identity.clone());
        let mut changes = security.changes.subscribe();
        Box::pin(async move {
            while security.is_still(door, &shown, &identity) {
                // A change, or time: after either it is looked again.
                let _ = tokio::time::timeout(LOOK_EVERY, changes.changed()).await;
            }
        })
    }
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let mut ended = self.ended.take().unwrap_or_else(|| self.watch());
        if ended.as_mut().poll(cx).is_ready() {
            let error = std::io::Error::other("the rights of whoever reads this have changed");
            return Poll::Ready(Some(Err(axum::Error::new(error))));
        }
        self.ended = Some(ended);
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

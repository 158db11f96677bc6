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
    /// The changes that its reader's identity took account of.
    changes_seen: u64,
    /// Made when the body first has to wait: an answer that is there at once costs nothing.
    ended: Option<Ended>,
}

impl Held {
    /// `changes_seen` is how many there were before the reader was identified.
    pub(crate) fn new(
        body: Body,
        security: Arc<Security>,
        door: Door,
        shown: Shown,
        identity: Identity,
        changes_seen: u64,
    ) -> Self {
        Self {
            body,
            changes_seen,
            security,
            door,
            shown,
            identity,
            ended: None,
        }
    }

    fn is_still(&self) -> bool {
        let Self {
            door,
            shown,
            identity,
            ..
        } = self;
        self.security.is_still(*door, shown, identity)
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

fn changed() -> axum::Error {
    axum::Error::new(std::io::Error::other(
        "the rights of whoever reads this have changed",
    ))
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // A body that always has something to say never waits, and must end all the same.
        let changes = self.security.changes_count();
        if changes != self.changes_seen {
            self.changes_seen = changes;
            if !self.is_still() {
                return Poll::Ready(Some(Err(changed())));
            }
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        let mut ended = self.ended.take().unwrap_or_else(|| self.watch());
        if ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(changed())));
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{StreamExt as _, stream};
    use http::{HeaderMap, HeaderValue, header};

    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn a_body_that_never_waits_ends_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, "the-first-token-of-the-server").expect("writable");
        let config = Config {
            token_file: Some(path.clone()),
            ..Config::default()
        };
        let security = Arc::new(Security::load(&config).expect("readable"));
        let shown = HeaderValue::from_static("Bearer the-first-token-of-the-server");
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, shown)]);
        let always = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(b"x")));
        let held = Held::new(
            Body::from_stream(always),
            Arc::clone(&security),
            Door::Http,
            Shown::of(&headers, None),
            Identity::shared_token(),
            security.changes_count(),
        );
        let mut pieces = Body::new(held).into_data_stream();
        assert!(pieces.next().await.is_some_and(|piece| piece.is_ok()));
        // What changes nothing for the reader does not end it.
        security.reload();
        assert!(pieces.next().await.is_some_and(|piece| piece.is_ok()));
        std::fs::write(&path, "the-second-token-of-the-server").expect("writable");
        security.reload();
        assert!(pieces.next().await.is_some_and(|piece| piece.is_err()));
    }
}

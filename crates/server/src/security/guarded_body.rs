//! Rights that end while a request is in progress: a stream that is open when a token is revoked ends, and the client
//! that opens it again is judged again; what waits is answered with a refusal.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use ganger_access::Identity;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::{PresentedCredentials, Protocol, Security};

/// A certificate expires without any file having changed; requests with one look so often.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

type RightEnded = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The right behind a request, watched while the request is in progress.
pub(crate) struct WatchedRight {
    security: Arc<Security>,
    protocol: Protocol,
    shown: PresentedCredentials,
    identity: Identity,
    /// The changes that the identity took account of.
    changes_seen: u64,
    /// Made when somebody first waits for the end: what is there at once costs nothing.
    ended: Option<RightEnded>,
}

impl Clone for WatchedRight {
    fn clone(&self) -> Self {
        Self {
            security: Arc::clone(&self.security),
            protocol: self.protocol,
            shown: self.shown.clone(),
            identity: self.identity.clone(),
            changes_seen: self.changes_seen,
            ended: None,
        }
    }
}

impl WatchedRight {
    /// `changes_seen` is how many there were before the sender was identified.
    pub(crate) fn new(
        security: Arc<Security>,
        protocol: Protocol,
        shown: PresentedCredentials,
        identity: Identity,
        changes_seen: u64,
    ) -> Self {
        Self {
            security,
            protocol,
            shown,
            identity,
            changes_seen,
            ended: None,
        }
    }

    /// Whether the right has ended. Looks only if something has changed since it looked last.
    pub(crate) fn has_ended(&mut self) -> bool {
        let changes = self.security.changes_count();
        if changes == self.changes_seen {
            return false;
        }
        let is_unchanged = self
            .security
            .is_unchanged(self.protocol, &self.shown, &self.identity);
        if is_unchanged {
            self.changes_seen = changes;
        }
        !is_unchanged
    }

    /// Ready when the right has ended.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_ended() {
            return Poll::Ready(());
        }
        let mut ended = self.ended.take().unwrap_or_else(|| self.watch());
        let polled = ended.as_mut().poll(cx);
        self.ended = Some(ended);
        polled
    }

    /// Completes when the right has ended.
    pub(crate) async fn ended(&mut self) {
        std::future::poll_fn(|cx| self.poll_ended(cx)).await;
    }

    fn watch(&self) -> RightEnded {
        let security = Arc::clone(&self.security);
        let (protocol, shown, identity) =
            (self.protocol, self.shown.clone(), self.identity.clone());
        let mut changes = security.changes.subscribe();
        let expires_unseen = shown.has_certificate();
        Box::pin(async move {
            while security.is_unchanged(protocol, &shown, &identity) {
                // A change, or time: after either it is looked again.
                if expires_unseen {
                    let _ = tokio::time::timeout(CHECK_INTERVAL, changes.changed()).await;
                } else if changes.changed().await.is_err() {
                    return;
                }
            }
        })
    }
}

/// A body that ends with an error when its reader has no right to it any more.
pub(crate) struct GuardedBody {
    body: Body,
    watched: WatchedRight,
}

impl GuardedBody {
    pub(crate) fn new(body: Body, watched: WatchedRight) -> Self {
        Self { body, watched }
    }
}

fn changed() -> axum::Error {
    axum::Error::new(std::io::Error::other("the reader's rights have changed"))
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // A body that always has something to say never waits, and must end all the same.
        if self.watched.has_ended() {
            return Poll::Ready(Some(Err(changed())));
        }
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        self.watched.poll_ended(cx).map(|()| Some(Err(changed())))
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
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        std::fs::write(&path, "the-first-token-of-the-server").expect("writable");
        let config = Config {
            token_file: Some(path.clone()),
            ..Config::default()
        };
        let security = Arc::new(Security::load(&config).expect("readable"));
        let shown = HeaderValue::from_static("Bearer the-first-token-of-the-server");
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, shown)]);
        let always = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from_static(b"x")));
        let watched = WatchedRight::new(
            Arc::clone(&security),
            Protocol::Http,
            PresentedCredentials::of(&headers, None),
            Identity::shared_token(),
            security.changes_count(),
        );
        let held = GuardedBody::new(Body::from_stream(always), watched);
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

//! Rights that end during a request: a stream whose token is revoked ends, and the client must authenticate again; a
//! waiting request is refused.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use ganger_access::Identity;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use super::{PresentedCredentials, Protocol, Security};

/// Interval between checks of requests with a certificate, which may expire without a change of files.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

type RightEnded = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The right behind a request, watched during the request.
pub(crate) struct WatchedRight {
    security: Arc<Security>,
    protocol: Protocol,
    shown: PresentedCredentials,
    identity: Identity,
    /// Number of changes when the caller was identified.
    changes_seen: u64,
    /// Created at the first wait, so immediate responses cost nothing.
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
    /// Creates the watch; `changes_seen` is the number of changes before the caller was identified.
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

    /// Whether the right has ended. Checks only after a change.
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

    /// Ready once the right has ended.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_ended() {
            return Poll::Ready(());
        }
        let mut ended = self.ended.take().unwrap_or_else(|| self.watch());
        let polled = ended.as_mut().poll(cx);
        self.ended = Some(ended);
        polled
    }

    /// Waits until the right has ended.
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
                // After a change, or some time, the right is checked again.
                if expires_unseen {
                    let _ = tokio::time::timeout(CHECK_INTERVAL, changes.changed()).await;
                } else if changes.changed().await.is_err() {
                    return;
                }
            }
        })
    }
}

/// A body that fails when its reader loses its right.
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
        // A body that always has data never waits, and must end too.
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
    async fn a_body_that_always_has_data_ends_too() {
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
        // A change that does not affect the reader does not end it.
        security.reload();
        assert!(pieces.next().await.is_some_and(|piece| piece.is_ok()));
        std::fs::write(&path, "the-second-token-of-the-server").expect("writable");
        security.reload();
        assert!(pieces.next().await.is_some_and(|piece| piece.is_err()));
    }
}

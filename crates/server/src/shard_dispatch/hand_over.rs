//! The hand-over of a shard between two nodes of a cluster: the one that has closed it tells the other one at once, which
//! then opens it without waiting for its next beat.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::body::Body;
use ganger_access::Identity;
use ganger_dialect_http::Problem;
use ganger_types::ShardId;
use http::{Method, Request, Response, StatusCode, Uri};
use tokio::time::Instant;

use super::{OWNER_WAIT_MAX, SHARD, ShardDispatch};
use crate::port_handler::refuse;
use crate::security::Protocol;

/// Path of the message that a shard can be taken; the header `ganger-shard` names it.
pub(super) const TAKE_SHARD: &str = "/peer/take-shard";

/// The shards that this node is handing over: their requests wait here until their new nodes serve them, or until this
/// node serves them again. A new node that has died would answer nothing.
#[derive(Debug, Default)]
pub(super) struct HandingOver(Mutex<BTreeSet<ShardId>>);

impl HandingOver {
    pub(super) fn has(&self, shard: &ShardId) -> bool {
        self.shards().contains(shard)
    }

    fn shards(&self) -> MutexGuard<'_, BTreeSet<ShardId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "no shard moves")
)]
impl ShardDispatch {
    /// Lets the requests of a shard wait from now on, because it is handed over to another node.
    pub(crate) fn begin_hand_over(&self, shard: &ShardId) {
        self.handing_over.shards().insert(shard.clone());
    }

    /// Lets the requests of a shard go on: to this node, or to its new one.
    pub(crate) fn end_hand_over(&self, shard: &ShardId) {
        if self.handing_over.shards().remove(shard) {
            // Those that wait look again.
            self.local.send_modify(|_| {});
        }
    }
}

impl ShardDispatch {
    /// Tells the node that is to serve a shard that it can take it, and at which commit the shard ended here: the log must
    /// go that far (S38). Returns once that node serves it.
    ///
    /// # Errors
    /// If the node cannot be reached, or does not serve the shard in time. Then it finds out by itself.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "no shard moves")
    )]
    pub(crate) async fn tell_released(&self, shard: &ShardId) -> Result<(), String> {
        #[cfg(feature = "postgres")]
        let known = self.what_is_known().unwrap_or_default();
        #[cfg(not(feature = "postgres"))]
        let known = String::new();
        let mut request = Request::new(Body::from(known));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(TAKE_SHARD);
        let this_node = Identity::peer([shard.as_str()]);
        self.add_forwarding_headers(request.headers_mut(), shard, &this_node);
        match self.router().forward(shard, request).await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(format!("the node answered {}", response.status())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Answers [`ShardDispatch::tell_released`] of another node, once the shard is served here.
    pub(super) async fn take_shard(&self, shard: Option<ShardId>, body: Body) -> Response<Body> {
        let Some(shard) = shard else {
            let words = format!("header {SHARD} is missing, or names no shard");
            return refuse(Protocol::Http, &Problem::new("invalid_value", words));
        };
        #[cfg(feature = "postgres")]
        if self.try_learn_marks(body).await.is_none() {
            tracing::warn!(%shard, "the node that hands the shard over does not say where it ended");
        }
        #[cfg(not(feature = "postgres"))]
        drop(body);
        self.released.notify_one();
        let until = Instant::now() + OWNER_WAIT_MAX;
        let is_here = || self.local().contains_key(&shard).then_some(());
        if self.wait_for_owner(until, is_here).await.is_some() {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            return response;
        }
        let words = format!("this node does not serve shard {shard} yet");
        refuse(Protocol::Http, &Problem::new("shard_unreachable", words))
    }

    /// Returns what is cancelled when the server stops.
    #[cfg(feature = "postgres")]
    pub(crate) fn stopping(&self) -> &tokio_util::sync::CancellationToken {
        &self.stopping
    }

    /// Waits until another node has released a shard for this one; `None` when the server stops.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "no shard moves")
    )]
    pub(crate) async fn next_release(&self) -> Option<()> {
        tokio::select! {
            () = self.released.notified() => Some(()),
            () = self.stopping.cancelled() => None,
        }
    }
}

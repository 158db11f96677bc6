//! Requests that wait while their shard moves from one node of a cluster to another.
//!
//! Such a request has not been passed to any shard, so it can wait without harm: nothing of it is done twice. Its body
//! is not read meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ganger_dialect_http::Problem;
use ganger_router::{ClusterState, Owners};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::ShardDispatch;
use super::forwarding::number;
use super::routing::Route;
use crate::security::Protocol;

/// Longest time for which a request waits for a node that serves its shard.
pub(crate) const OWNER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Longest pause before a node that could not be reached is tried again.
const RETRY_EVERY: Duration = Duration::from_millis(200);
/// Header with the milliseconds for which a forwarded request may still wait: the limit holds over all nodes on its way.
const WAIT_LEFT: &str = "ganger-wait-left";
/// Maximum number of requests that wait; further ones are refused at once.
const WAITING_MAX: usize = 10_000;

/// Number of requests that wait for a node that serves their shard.
#[derive(Debug, Default)]
pub(crate) struct WaitingRequests(AtomicUsize);

impl WaitingRequests {
    /// Returns the number of requests that wait now.
    pub(crate) fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts a request until the result is dropped; `None` if too many wait.
    fn enter(&self) -> Option<Waiting<'_>> {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        // A drop takes it back in any case.
        let waiting = Waiting(self);
        (before < WAITING_MAX).then_some(waiting)
    }
}

/// A request that waits.
struct Waiting<'a>(&'a WaitingRequests);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ShardDispatch {
    /// Returns where a request goes. If no node serves its shard, it waits until one does, or until a time.
    pub(super) async fn route_in_time(
        &self,
        protocol: Protocol,
        head: &Parts,
        until: Instant,
    ) -> Result<Route, Problem> {
        let route = self.route(protocol, head);
        if self.router().topology().owners().is_none() || !is_between_nodes(&route) {
            return route;
        }
        let Some(_waiting) = self.forwarded.waiting.enter() else {
            return route;
        };
        let look = || Some(self.route(protocol, head)).filter(|route| !is_between_nodes(route));
        match self.wait_for_owner(until, look).await {
            Some(route) => route,
            None => self.route(protocol, head),
        }
    }

    /// Waits before a request is tried again that did not reach a node: for a moment, or until the owners of shards change.
    pub(crate) async fn wait_to_retry(&self, until: Instant) {
        let mut looks = 0;
        let changed = || {
            looks += 1;
            (looks > 1).then_some(())
        };
        let until = until.min(Instant::now() + RETRY_EVERY);
        self.wait_for_owner(until, changed).await;
    }

    /// Waits until `look` finds something. It looks again after every change of the shards that are here, or of the
    /// owners of shards. Returns `None` at the time `until`, or when the server stops.
    pub(crate) async fn wait_for_owner<T>(
        &self,
        until: Instant,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut here = self.local.subscribe();
        let mut elsewhere = self.router().topology().owners().map(Owners::subscribe);
        loop {
            // What changed before this look is in its result.
            here.mark_unchanged();
            if let Some(owners) = &mut elsewhere {
                owners.mark_unchanged();
            }
            if let Some(found) = look() {
                return Some(found);
            }
            tokio::select! {
                _ = here.changed() => {}
                () = changed(elsewhere.as_mut()) => {}
                () = self.stopping.cancelled() => return None,
                () = sleep_until(until) => return None,
            }
        }
    }
}

/// Returns the time until which a request waits: what the node that forwarded it has left of its limit.
pub(super) fn wait_until(headers: &HeaderMap) -> Instant {
    let left = number(headers, WAIT_LEFT).map_or(OWNER_WAIT_MAX, Duration::from_millis);
    Instant::now() + left.min(OWNER_WAIT_MAX)
}

/// Tells the node that a request is forwarded to how long it may still wait.
pub(super) fn add_wait_left(headers: &mut HeaderMap, until: Instant) {
    let left = until.saturating_duration_since(Instant::now());
    let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    headers.insert(WAIT_LEFT, HeaderValue::from(left));
}

/// Waits for a change of the owners; forever if there are none.
async fn changed(owners: Option<&mut watch::Receiver<Arc<ClusterState>>>) {
    if let Some(owners) = owners
        && owners.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Whether no node serves the shard of a request at the moment.
fn is_between_nodes(route: &Result<Route, Problem>) -> bool {
    matches!(route, Err(problem) if problem.code == "shard_unreachable")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_a_wait_holds_over_all_nodes() {
        let limit_of = |headers: &HeaderMap| wait_until(headers) - Instant::now();
        let mut headers = HeaderMap::new();
        let began = Instant::now();
        assert!(wait_until(&headers) >= began + OWNER_WAIT_MAX);
        add_wait_left(&mut headers, Instant::now() + Duration::from_secs(2));
        assert!(limit_of(&headers) <= Duration::from_secs(2));
        add_wait_left(&mut headers, Instant::now());
        assert_eq!(limit_of(&headers), Duration::ZERO);
        headers.insert(WAIT_LEFT, HeaderValue::from(u64::MAX));
        assert!(limit_of(&headers) <= OWNER_WAIT_MAX);
    }

    #[test]
    fn a_bounded_number_of_requests_waits() {
        let waiting = WaitingRequests::default();
        let all: Vec<_> = (0..WAITING_MAX).map(|_| waiting.enter()).collect();
        assert!(all.iter().all(Option::is_some));
        assert!(waiting.enter().is_none());
        assert_eq!(waiting.now(), WAITING_MAX);
        drop(all);
        assert_eq!(waiting.now(), 0);
        assert!(waiting.enter().is_some());
    }
}

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
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::ShardDispatch;
use super::routing::Route;
use crate::security::Protocol;

/// Longest time for which a request waits for a node that serves its shard.
pub(crate) const OWNER_WAIT_MAX: Duration = Duration::from_secs(5);
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
    /// Returns where a request goes. If no node serves its shard, it waits until one does, for a limited time.
    pub(super) async fn route_in_time(
        &self,
        protocol: Protocol,
        head: &Parts,
    ) -> Result<Route, Problem> {
        let route = self.route(protocol, head);
        if self.router().topology().owners().is_none() || !is_between_nodes(&route) {
            return route;
        }
        let Some(_waiting) = self.forwarded.waiting.enter() else {
            return route;
        };
        let until = Instant::now() + OWNER_WAIT_MAX;
        let look = || Some(self.route(protocol, head)).filter(|route| !is_between_nodes(route));
        match self.wait_for_owner(until, look).await {
            Some(route) => route,
            None => self.route(protocol, head),
        }
    }

    /// Waits until `look` finds something. It looks again after every change of the shards that are here, or of the
    /// owners of shards. Returns `None` at the time `until`, or when the server stops.
    pub(crate) async fn wait_for_owner<T>(
        &self,
        until: Instant,
        look: impl Fn() -> Option<T>,
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

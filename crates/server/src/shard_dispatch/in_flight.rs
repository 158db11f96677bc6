//! Requests in progress at a shard that moves to another node: the shard is closed once they are answered.

use std::time::Duration;

use axum::body::Body;
use http::Response;
use http_body_util::BodyExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The requests in progress at one shard.
pub(crate) struct InFlight {
    /// Counts them; `None` if the shard never moves.
    requests: Option<TaskTracker>,
    /// Cancelled when the shard leaves: long polls and streams end then.
    leaving: CancellationToken,
}

impl InFlight {
    /// Counts the requests of a shard that may move, or of one that never does. `leaving` ends its long polls and streams.
    pub(crate) fn new(may_move: bool, leaving: CancellationToken) -> Self {
        Self {
            requests: may_move.then(TaskTracker::new),
            leaving,
        }
    }

    /// Counts a request until the result is dropped. `None` if the shard is leaving: the request must go to its new node.
    pub(super) fn enter(&self) -> Option<Entered> {
        let token = self.requests.as_ref().map(TaskTracker::token);
        // A request that is counted before this look is waited for.
        let is_leaving = token.is_some() && self.leaving.is_cancelled();
        (!is_leaving).then_some(Entered(token))
    }

    /// Ends long polls and streams, and waits until all requests are answered, for at most `within`.
    #[cfg_attr(
        not(feature = "postgres"),
        expect(dead_code, reason = "no shard moves")
    )]
    pub(crate) async fn leave(&self, within: Duration) {
        self.leaving.cancel();
        if let Some(requests) = &self.requests {
            requests.close();
            if within.is_zero() {
                return;
            }
            if tokio::time::timeout(within, requests.wait()).await.is_err() {
                let left = requests.len();
                tracing::warn!(
                    left,
                    ?within,
                    "requests are cut: they were not answered before their shard moved"
                );
            }
        }
    }
}

/// A request in progress.
#[derive(Default)]
pub(crate) struct Entered(Option<TaskTrackerToken>);

impl Entered {
    /// Counts the request until the last byte of its response is passed on.
    pub(crate) fn until_read(self, response: Response<Body>) -> Response<Body> {
        match self.0 {
            None => response,
            Some(token) => response.map(|body| {
                Body::new(body.map_err(move |error| {
                    // The closure lives as long as the body.
                    let _counted = &token;
                    error
                }))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_shard_leaves_once_its_requests_are_answered() {
        let leaving = CancellationToken::new();
        let in_flight = InFlight::new(true, leaving.clone());
        let request = in_flight.enter().expect("the shard is here");
        let response = request.until_read(Response::new(Body::from("answer")));
        let left = in_flight.leave(Duration::from_secs(600));
        tokio::pin!(left);
        assert!(
            left.as_mut().now_or_never().is_none(),
            "the response is not read yet"
        );
        assert!(leaving.is_cancelled() && in_flight.enter().is_none());
        let read = response.into_body().collect().await.expect("a body");
        assert_eq!(read.to_bytes(), "answer");
        left.await;
    }

    #[tokio::test]
    async fn a_request_that_takes_too_long_is_not_waited_for() {
        let in_flight = InFlight::new(true, CancellationToken::new());
        let _request = in_flight.enter().expect("the shard is here");
        in_flight.leave(Duration::from_millis(10)).await;
    }

    #[test]
    fn the_requests_of_a_shard_that_never_moves_are_not_counted() {
        let stopping = CancellationToken::new();
        let in_flight = InFlight::new(false, stopping.clone());
        stopping.cancel();
        let request = in_flight
            .enter()
            .expect("the dialects refuse by themselves");
        assert!(request.0.is_none());
    }
}

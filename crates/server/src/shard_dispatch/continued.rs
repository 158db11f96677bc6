//! Long answers over HTTP that outlive a move of their shard to another node of the cluster: waits, logs, and streams of
//! events.
//!
//! This node sends the request to the owner of the shard. When the shard moves, the owner ends its answer with the place
//! at which it stopped (`ganger_access::CONTINUE`), and this node sends the request to the next owner, with that place.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures::StreamExt as _;
use ganger_access::{CONTINUE, Identity};
use ganger_types::span::read_span;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyStream, StreamBody};
use hyper::body::Frame;
use tokio::time::Instant;

use super::{OWNER_WAIT_MAX, ShardDispatch};
use crate::security::Protocol;

/// Path of the stream of events.
pub(super) const EVENTS: &str = "/api/v1/events";
/// Path prefix of a job, and the end of the path of its log.
const JOBS: &str = "/api/v1/jobs/";
const LOG: &str = "/log";
/// Query parameter with the longest time for which an answer waits for a job.
const WAIT: &str = "wait=";
/// Longest time for which an answer that has begun waits for the next owner of its shard.
pub(super) const AWAY_MAX: Duration = Duration::from_secs(30);
/// Time after which an answer that ends early goes on at once; before it, after a pause.
pub(super) const MOVED_AGAIN_MIN: Duration = Duration::from_millis(200);
/// Time after which a request that fails had reached an owner of its shard: the search for one takes less.
pub(super) const BEGUN_AFTER: Duration = Duration::from_secs(OWNER_WAIT_MAX.as_secs() + 1);

/// A request whose answer may go on at another node.
struct Asked {
    dispatch: Arc<ShardDispatch>,
    head: Parts,
    caller: Identity,
}

impl ShardDispatch {
    /// Whether the answer to a request is a long one of a shard that may move.
    pub(super) fn is_continued(&self, protocol: Protocol, head: &Parts) -> bool {
        protocol == Protocol::Http
            && head.method == Method::GET
            && self.router.topology().owners().is_some()
            && (is_stream(&head.uri) || !wait_of(&head.uri).is_zero())
    }

    /// Answers a request whose answer may go on at another node.
    pub(super) async fn answer_continued(
        self: &Arc<Self>,
        head: Parts,
        caller: Identity,
    ) -> Response<Body> {
        let until = Instant::now() + wait_of(&head.uri);
        let is_stream = is_stream(&head.uri);
        let asked = Asked {
            dispatch: Arc::clone(self),
            head,
            caller,
        };
        let mut place = HeaderValue::from_static("");
        loop {
            let sent = Instant::now();
            let response = asked.send(place).await;
            let had_begun = sent.elapsed() > BEGUN_AFTER;
            if let Some(next) = response.headers().get(CONTINUE)
                && !self.stopping.is_cancelled()
            {
                place = next.clone();
                self.forwarded.answers_moved.fetch_add(1, Ordering::Relaxed);
            } else if had_begun && is_away(&response) && asked.may_try_again(until).await {
                // The node that waited for the job is gone.
                place = HeaderValue::from(left(until));
            } else if is_stream && response.status().is_success() {
                return response.map(|body| asked.follow(body));
            } else {
                return response;
            }
        }
    }
}

impl Asked {
    /// Sends the request to whichever node owns the shard now.
    async fn send(&self, place: HeaderValue) -> Response<Body> {
        let mut head = self.head.clone();
        head.headers.insert(CONTINUE, place);
        let request = Request::from_parts(head, Body::empty());
        self.dispatch
            .answer_at_shard(Protocol::Http, request, self.caller.clone())
            .await
    }

    /// Pauses before the request is sent again; false if there is no time left for that.
    async fn may_try_again(&self, until: Instant) -> bool {
        if Instant::now() >= until || self.dispatch.stopping.is_cancelled() {
            return false;
        }
        self.dispatch.wait_to_retry(until).await;
        true
    }

    /// Passes on an answer, and what follows it at other nodes.
    fn follow(self, body: Body) -> Body {
        let answer = Answer {
            asked: self,
            frames: BodyStream::new(body),
            began: Instant::now(),
        };
        let frames = futures::stream::unfold(answer, |mut answer| async move {
            let frame = answer.next().await?;
            Some((frame, answer))
        });
        Body::new(StreamBody::new(frames))
    }

    /// Goes on with the answer at the next owner.
    async fn continue_at(&self, place: HeaderValue) -> Result<Body, axum::Error> {
        let until = Instant::now() + AWAY_MAX;
        loop {
            let response = self.send(place.clone()).await;
            let status = response.status();
            if status.is_success() {
                self.dispatch
                    .forwarded
                    .answers_moved
                    .fetch_add(1, Ordering::Relaxed);
                return Ok(response.into_body());
            }
            if !is_away(&response) || !self.may_try_again(until).await {
                let words = format!("the shard has moved, and its next node answers {status}");
                return Err(axum::Error::new(words));
            }
        }
    }
}

/// An answer, with the node that sends it now.
struct Answer {
    asked: Asked,
    frames: BodyStream<Body>,
    /// Time at which this node began to answer.
    began: Instant,
}

impl Answer {
    async fn next(&mut self) -> Option<Result<Frame<Bytes>, axum::Error>> {
        loop {
            let frame = match self.frames.next().await? {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error)),
            };
            let place = frame
                .trailers_ref()
                .and_then(|trailers| trailers.get(CONTINUE));
            let Some(place) = place.cloned() else {
                return Some(Ok(frame));
            };
            // A shard that has failed ends answers as soon as they begin, until its node has noticed.
            if self.began.elapsed() < MOVED_AGAIN_MIN {
                let until = Instant::now() + AWAY_MAX;
                self.asked.may_try_again(until).await;
            }
            match self.asked.continue_at(place).await {
                Ok(body) => (self.frames, self.began) = (BodyStream::new(body), Instant::now()),
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

fn is_stream(uri: &Uri) -> bool {
    let path = uri.path();
    path == EVENTS || path.starts_with(JOBS) && path.ends_with(LOG)
}

/// Returns for how long a request waits for a job: zero if it does not wait, or in words that the dialect will refuse.
fn wait_of(uri: &Uri) -> Duration {
    if !uri.path().starts_with(JOBS) {
        return Duration::ZERO;
    }
    let mut pairs = uri.query().unwrap_or_default().split('&');
    let wait = pairs.find_map(|pair| pair.strip_prefix(WAIT));
    wait.and_then(|text| read_span(text).ok())
        .unwrap_or_default()
}

/// Returns the milliseconds until a time.
fn left(until: Instant) -> u64 {
    let left = until.saturating_duration_since(Instant::now());
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
}

/// Whether the owner of the shard could not be reached, or does not serve it now.
fn is_away(response: &Response<Body>) -> bool {
    response.status() == StatusCode::SERVICE_UNAVAILABLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_logs_and_streams_of_events_are_long_answers() {
        let seen = |text: &'static str| {
            let uri = Uri::from_static(text);
            (is_stream(&uri), wait_of(&uri).as_millis())
        };
        assert_eq!(seen("/api/v1/jobs/a"), (false, 0));
        assert_eq!(seen("/api/v1/jobs/a?wait=30s"), (false, 30_000));
        assert_eq!(
            seen("/api/v1/jobs/a/result?shard=2&wait=1m"),
            (false, 60_000)
        );
        assert_eq!(seen("/api/v1/jobs/a?wait=soon"), (false, 0));
        assert_eq!(seen("/api/v1/queues?wait=30s"), (false, 0));
        assert_eq!(seen("/api/v1/jobs/a/log?follow=true"), (true, 0));
        assert_eq!(seen("/api/v1/events?queue=a"), (true, 0));
    }
}

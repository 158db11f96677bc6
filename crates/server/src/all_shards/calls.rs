//! Calls of gRPC for all shards: one message of the caller becomes one for each shard, and their replies one.

use axum::body::{Body, Bytes};
use futures::future::join_all;
use ganger_access::Identity;
use ganger_dialect_grpc::merged::{self, Messages, Replies};
use ganger_dialect_grpc::{Problem, is_read};
use ganger_types::ShardId;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full, Limited};
use tonic::{Code, Status};

use super::{PAGE_BYTES_MAX, SHARD_WAIT};
use crate::security::Protocol;
use crate::shard_dispatch::ShardDispatch;

/// Bytes of a request: conditions on jobs.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// Bytes before a message: whether it is compressed, and its length.
const PREFIX_BYTES: usize = 5;
/// Header or trailer with the status of a call.
const STATUS: &str = "grpc-status";

/// What the caller gets instead of a merged reply.
enum Stop {
    Problem(Problem),
    /// The refusal of one shard, which every shard would answer alike.
    Refusal(Response<Body>),
}

/// What a shard replied.
enum Answer {
    Message(Vec<u8>),
    Refusal(Response<Body>),
    Unreachable,
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl ShardDispatch {
    /// Answers a call for the lists of all shards.
    pub(super) async fn answer_call_for_all(
        &self,
        head: &Parts,
        body: Body,
        caller: &Identity,
    ) -> Response<Body> {
        match self.merged_reply(head, body, caller).await {
            Ok(message) => reply(&message),
            Err(Stop::Problem(problem)) => Status::from(problem).into_http::<Body>(),
            Err(Stop::Refusal(refusal)) => refusal,
        }
    }

    async fn merged_reply(
        &self,
        head: &Parts,
        body: Body,
        caller: &Identity,
    ) -> Result<Vec<u8>, Stop> {
        let path = head.uri.path();
        if head.method != Method::POST || !merged::is_merged(path) || !is_read(path) {
            return Err(merged::not_merged().into());
        }
        let body = Limited::new(body, REQUEST_BYTES_MAX).collect().await;
        let body = body.ok().map(http_body_util::Collected::to_bytes);
        let message = body.as_ref().and_then(|body| message(body));
        let Some(message) = message else {
            return Err(merged::bad_request().into());
        };
        let ask = |requests| self.call_all(head, caller, requests);
        merged::answer(path, message, self.router().known(), ask).await
    }

    /// Calls shards at once. Returns their replies, and the shards that did not reply in time; or the refusal of one.
    async fn call_all(
        &self,
        head: &Parts,
        caller: &Identity,
        requests: Messages,
    ) -> Result<Replies, Stop> {
        let answers = requests.into_iter().map(|(shard, message)| async move {
            let answer = self.call_shard(head, caller, &shard, &message);
            let answer = tokio::time::timeout(SHARD_WAIT, answer).await;
            (shard, answer.unwrap_or(Answer::Unreachable))
        });
        let (mut replies, mut unreachable) = (Vec::new(), Vec::new());
        for (shard, answer) in join_all(answers).await {
            match answer {
                Answer::Message(message) => replies.push((shard, message)),
                Answer::Unreachable => unreachable.push(shard),
                Answer::Refusal(refusal) => return Err(Stop::Refusal(refusal)),
            }
        }
        Ok((replies, unreachable))
    }

    async fn call_shard(
        &self,
        head: &Parts,
        caller: &Identity,
        shard: &ShardId,
        message: &[u8],
    ) -> Answer {
        let mut request = Request::new(Body::from(frame(message)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = head.uri.clone();
        *request.version_mut() = head.version;
        let passed = self.pass_to(Protocol::Grpc, head, caller, shard, request);
        let Some(response) = passed.await else {
            return Answer::Unreachable;
        };
        if let Some(code) = status(response.headers()).filter(|code| *code != Code::Ok) {
            return if is_of_the_shard(code) {
                Answer::Unreachable
            } else {
                Answer::Refusal(response)
            };
        }
        let body = Limited::new(response.into_body(), PAGE_BYTES_MAX);
        let Ok(body) = body.collect().await else {
            return Answer::Unreachable;
        };
        let is_good = body.trailers().and_then(status) == Some(Code::Ok);
        let body = body.to_bytes();
        let message = self::message(&body).filter(|_| is_good);
        message.map_or(Answer::Unreachable, |message| {
            Answer::Message(message.to_vec())
        })
    }
}

/// Whether a status is about the state of one shard or of the way to it, rather than about the request.
fn is_of_the_shard(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable
            | Code::Unknown
            | Code::Internal
            | Code::DeadlineExceeded
            | Code::DataLoss
            | Code::Cancelled
    )
}

fn status(headers: &HeaderMap) -> Option<Code> {
    let value = headers.get(STATUS)?;
    Some(Code::from_bytes(value.as_bytes()))
}

/// The message of a body that has one, uncompressed.
fn message(body: &Bytes) -> Option<&[u8]> {
    let (prefix, message) = body.split_at_checked(PREFIX_BYTES)?;
    let (is_compressed, length) = prefix.split_first()?;
    let length = u32::from_be_bytes(length.try_into().ok()?);
    let is_whole = usize::try_from(length) == Ok(message.len());
    (*is_compressed == 0 && is_whole).then_some(message)
}

/// The body with a message.
fn frame(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("messages are far smaller than 4 GiB");
    [&[0], &length.to_be_bytes()[..], message].concat().into()
}

fn reply(message: &[u8]) -> Response<Body> {
    let good = async {
        let status = (
            header::HeaderName::from_static(STATUS),
            HeaderValue::from_static("0"),
        );
        Some(Ok(HeaderMap::from_iter([status])))
    };
    let body = Full::new(frame(message)).with_trailers(good);
    let mut response = Response::new(Body::new(body));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_in_its_frame_and_nowhere_else() {
        let body = frame(b"abc");
        assert_eq!(message(&body), Some(&b"abc"[..]));
        assert_eq!(message(&frame(b"")), Some(&b""[..]));
        for bad in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x02a", b"\x01\0\0\0\x01a"] {
            assert_eq!(message(&Bytes::copy_from_slice(bad)), None, "{bad:?}");
        }
    }
}

//! Long calls that go on at another node of a cluster when their shard moves: waits, logs, and streams of events.
//!
//! The node that the caller is connected to reads the request, and then each message of the answer, so it knows where to
//! go on. It sends the request with the header [`ganger_access::CONTINUE`], so that a stream of events ends with its shard
//! and not before.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ganger_proto::v1;
use prost::Message;

/// Path of the stream of events.
pub const EVENTS: &str = "/ganger.v1.Insight/Events";
/// Path of a job's log as it grows.
const FOLLOW_LOG: &str = "/ganger.v1.Jobs/FollowLog";
/// Path of the wait for the end of a job.
const WAIT: &str = "/ganger.v1.Jobs/Wait";
/// Bytes before each message on the wire: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

/// A long call, and how far its answer has come.
#[derive(Debug)]
pub struct LongCall(Kind);

#[derive(Debug)]
enum Kind {
    Events(v1::EventsRequest),
    FollowLog(v1::LogRequest),
    Wait {
        request: v1::WaitRequest,
        /// Time until which the call waits.
        until: Instant,
        /// Whether the answer says that the job has ended.
        has_ended: bool,
    },
}

impl LongCall {
    /// Whether the call with this path may be a long one.
    pub fn is_long(path: &str) -> bool {
        [EVENTS, FOLLOW_LOG, WAIT].contains(&path)
    }

    /// Reads a request from its body; `None` if the call is not a long one, or its message cannot be read here.
    pub fn read(path: &str, body: &[u8]) -> Option<Self> {
        let message = only_message(body)?;
        let kind = match path {
            EVENTS => Kind::Events(v1::EventsRequest::decode(message).ok()?),
            FOLLOW_LOG => Kind::FollowLog(v1::LogRequest::decode(message).ok()?),
            WAIT => {
                let request = v1::WaitRequest::decode(message).ok()?;
                let until = Instant::now().checked_add(Duration::from_millis(request.wait_ms))?;
                Kind::Wait {
                    request,
                    until,
                    has_ended: false,
                }
            }
            _ => return None,
        };
        Some(Self(kind))
    }

    /// Returns the body of the request that goes on where the answer has come to.
    pub fn body(&mut self) -> Bytes {
        let message = match &mut self.0 {
            Kind::Events(request) => request.encode_to_vec(),
            Kind::FollowLog(request) => request.encode_to_vec(),
            Kind::Wait { request, until, .. } => {
                let left = until.saturating_duration_since(Instant::now());
                request.wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                request.encode_to_vec()
            }
        };
        framed(&message)
    }

    /// Notes a whole message of the answer, as it is on the wire. One that cannot be read leaves the place as it was.
    pub fn note(&mut self, message: &[u8]) {
        let Some(message) = only_message(message) else {
            return;
        };
        match &mut self.0 {
            Kind::Events(request) => {
                let read = v1::EventBatch::decode(message);
                request.after = read.ok().and_then(|read| read.position).or(request.after);
            }
            Kind::FollowLog(request) => {
                if let Ok(read) = v1::LogReply::decode(message) {
                    (request.attempt, request.offset) = (read.attempt, read.offset);
                    request.tail_bytes = None;
                }
            }
            Kind::Wait { has_ended, .. } => {
                let state = v1::Job::decode(message).map(|job| job.state());
                *has_ended = !matches!(
                    state,
                    Ok(v1::JobState::Blocked
                        | v1::JobState::Scheduled
                        | v1::JobState::Ready
                        | v1::JobState::Running)
                );
            }
        }
    }

    /// Whether the answer is one message, which counts only if it is the last one.
    pub fn is_wait(&self) -> bool {
        matches!(self.0, Kind::Wait { .. })
    }

    /// Whether an answer that has ended well came too early: a wait whose job goes on, and which has time left.
    pub fn is_too_early(&self) -> bool {
        match self.0 {
            Kind::Wait {
                until, has_ended, ..
            } => !has_ended && Instant::now() < until,
            Kind::Events(_) | Kind::FollowLog(_) => false,
        }
    }
}

/// Returns the length of the whole messages at the start of bytes on the wire.
pub fn whole_messages(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(length) = bytes.get(at..).and_then(message_bytes) {
        at += length;
    }
    at
}

/// Returns the length of the first message of these bytes, with its header; `None` if it is not whole.
pub fn message_bytes(bytes: &[u8]) -> Option<usize> {
    let [_, a, b, c, d] = *bytes.first_chunk()?;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
    let whole = HEADER_BYTES.checked_add(length)?;
    (bytes.len() >= whole).then_some(whole)
}

/// Returns the content of the first message of a body; `None` if it is not whole, or compressed.
pub(crate) fn first_message(body: &[u8]) -> Option<&[u8]> {
    let whole = message_bytes(body).filter(|_| body.first() == Some(&0))?;
    body.get(HEADER_BYTES..whole)
}

/// Returns the content of the one message of a body; `None` if there is another number of them, or it is compressed.
fn only_message(body: &[u8]) -> Option<&[u8]> {
    first_message(body).filter(|message| HEADER_BYTES + message.len() == body.len())
}

/// Returns a message as it is on the wire.
pub(crate) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a request is not so long");
    let header = length.to_be_bytes();
    Bytes::from([&[0], &header[..], message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<M: Message + Default>(call: &mut LongCall) -> M {
        let body = call.body();
        M::decode(only_message(&body).expect("one message")).expect("it is ours")
    }

    fn call(path: &str, request: &impl Message) -> LongCall {
        LongCall::read(path, &framed(&request.encode_to_vec())).expect("it is a long call")
    }

    #[test]
    fn events_go_on_behind_the_last_position() {
        let request = v1::EventsRequest {
            after: Some(3),
            queues: vec!["q".to_owned()],
            ..v1::EventsRequest::default()
        };
        let mut events = call(EVENTS, &request);
        let batch = |position| {
            framed(
                &v1::EventBatch {
                    position,
                    ..v1::EventBatch::default()
                }
                .encode_to_vec(),
            )
        };
        events.note(&batch(None));
        assert_eq!(read::<v1::EventsRequest>(&mut events).after, Some(3));
        events.note(&batch(Some(9)));
        let next: v1::EventsRequest = read(&mut events);
        assert_eq!((next.after, next.queues), (Some(9), request.queues));
        assert!(!events.is_too_early());
    }

    #[test]
    fn a_log_goes_on_behind_its_last_byte() {
        let request = v1::LogRequest {
            job: "1/a".to_owned(),
            tail_bytes: Some(100),
            ..v1::LogRequest::default()
        };
        let mut log = call(FOLLOW_LOG, &request);
        assert_eq!(
            read::<v1::LogRequest>(&mut log).tail_bytes,
            Some(100),
            "nothing was read yet"
        );
        let reply = v1::LogReply {
            attempt: 2,
            offset: 70,
            ..v1::LogReply::default()
        };
        log.note(&framed(&reply.encode_to_vec()));
        let next: v1::LogRequest = read(&mut log);
        assert_eq!((next.attempt, next.offset), (2, 70));
        assert_eq!(next.tail_bytes, None);
    }

    #[test]
    fn a_wait_goes_on_until_its_job_has_ended_or_its_time_is_over() {
        let request = |wait_ms| v1::WaitRequest {
            wait_ms,
            ..v1::WaitRequest::default()
        };
        let job = |state: v1::JobState| {
            let mut job = v1::Job::default();
            job.set_state(state);
            framed(&job.encode_to_vec())
        };
        let mut wait = call(WAIT, &request(300_000));
        wait.note(&job(v1::JobState::Running));
        assert!(wait.is_too_early());
        let left = read::<v1::WaitRequest>(&mut wait).wait_ms;
        assert!((1..=300_000).contains(&left), "{left}");
        wait.note(&job(v1::JobState::Cancelled));
        assert!(!wait.is_too_early(), "the job has ended");
        let mut over = call(WAIT, &request(0));
        over.note(&job(v1::JobState::Running));
        assert!(!over.is_too_early(), "it does not wait");
    }

    #[test]
    fn what_cannot_be_read_is_no_long_call() {
        let request = framed(&v1::WaitRequest::default().encode_to_vec());
        assert!(LongCall::read(WAIT, &request).is_some());
        assert!(LongCall::read("/ganger.v1.Jobs/Get", &request).is_none());
        let two = [&request[..], &request[..]].concat();
        for body in [
            &b""[..],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 0],
            &[0, 0, 0, 0, 1],
            &two,
        ] {
            assert!(LongCall::read(WAIT, body).is_none(), "{body:?}");
        }
        let huge = framed(
            &v1::WaitRequest {
                wait_ms: u64::MAX,
                ..v1::WaitRequest::default()
            }
            .encode_to_vec(),
        );
        // The dialect refuses it.
        assert!(LongCall::read(WAIT, &huge).is_none_or(|call| call.is_wait()));
    }

    #[test]
    fn whole_messages_are_told_from_parts() {
        let message = framed(b"abc");
        let two = [&message[..], &message[..]].concat();
        for (end, whole) in [(0, 0), (4, 0), (7, 0), (8, 8), (12, 8), (15, 8), (16, 16)] {
            assert_eq!(
                whole_messages(two.get(..end).expect("within")),
                whole,
                "{end}"
            );
        }
    }
}

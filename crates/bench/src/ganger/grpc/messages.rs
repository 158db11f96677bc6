//! Messages of the schema with the fields that a load needs. The field numbers and types are those of `ganger.v1`, so the
//! bytes are too; what is not named here is skipped, and what never changes is encoded once.

use ganger_proto::v1::{Error, Hello};
use prost::Message;
use prost::bytes::Bytes;

/// The schema's `EnqueueRequest`, with jobs that are encoded once.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EnqueueRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) namespace: Bytes,
    /// The jobs, each as an encoded `NewJob`.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) jobs: Vec<Bytes>,
}

/// An `EnqueueReply`, of which nothing is read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EnqueueReply {}

/// The schema's `EnqueueBatch`, as sent on an enqueue stream.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EnqueueBatch {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    /// The request of the batch, as an encoded `EnqueueRequest`.
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) request: Bytes,
}

/// The schema's `EnqueueAnswer`, without the ids of the jobs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EnqueueAnswer {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(message, optional, tag = "3")]
    pub(super) refused: Option<Error>,
}

/// The schema's `Delivery`, with the fields that a report needs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Delivery {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) job: Bytes,
    #[prost(bytes = "bytes", tag = "8")]
    pub(super) token: Bytes,
    #[prost(bytes = "bytes", tag = "14")]
    pub(super) payload: Bytes,
}

/// The schema's `LeaseReply`: the leased jobs.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseReply {
    #[prost(message, repeated, tag = "1")]
    pub(super) deliveries: Vec<Delivery>,
}

/// The schema's `Held`: a job and the token of its lease.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Held {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) job: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) token: Bytes,
}

/// The schema's `Completion`: one success to report.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Completion {
    #[prost(message, optional, tag = "1")]
    pub(super) held: Option<Held>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) result: Option<Bytes>,
}

impl Completion {
    /// Completes a delivered job.
    pub(super) fn of(job: Delivery) -> Self {
        Self {
            held: Some(Held {
                job: job.job,
                token: job.token,
            }),
            result: Some(super::result()),
        }
    }
}

/// The schema's `CompleteRequest`: successes to report in one call.
#[derive(Clone, PartialEq, Message)]
pub(super) struct CompleteRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) namespace: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub(super) items: Vec<Completion>,
}

/// The schema's `ReportReply`: one answer for each report.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReportReply {
    #[prost(message, repeated, tag = "1")]
    pub(super) answers: Vec<ReportAnswer>,
}

/// The schema's `ReportAnswer`, of which only the error counts here.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ReportAnswer {
    #[prost(message, optional, tag = "5")]
    pub(super) refused: Option<Error>,
}

/// The schema's `WorkerMessage`, as a worker sends on its stream.
#[derive(Clone, PartialEq, Message)]
pub(super) struct WorkerMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) hello: Option<Hello>,
    #[prost(uint32, tag = "2")]
    pub(super) credits_added: u32,
    #[prost(message, repeated, tag = "4")]
    pub(super) reports: Vec<Report>,
}

/// A `Report` that completes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Report {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(message, optional, tag = "2")]
    pub(super) complete: Option<Completion>,
}

/// The schema's `ServerMessage`, as the server sends on a worker's stream.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ServerMessage {
    #[prost(message, repeated, tag = "2")]
    pub(super) deliveries: Vec<Delivery>,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) completed: Vec<u64>,
    #[prost(message, repeated, tag = "5")]
    pub(super) answers: Vec<ReportAnswer>,
}

#[cfg(test)]
mod tests {
    use ganger_proto::v1;

    use super::*;

    fn read<T: Message + Default>(message: &impl Message) -> T {
        T::decode(&message.encode_to_vec()[..]).expect("the schema can read it")
    }

    #[test]
    fn an_enqueue_is_one_of_the_schema() {
        let request = EnqueueRequest {
            namespace: "default".into(),
            jobs: vec![super::super::job("queue", b"payload"); 2],
        };
        let batch = EnqueueBatch {
            number: 7,
            request: request.encode_to_vec().into(),
        };
        let read: v1::EnqueueBatch = read(&batch);
        let request = read.request.expect("it was sent");
        assert_eq!((read.number, request.namespace.as_str()), (7, "default"));
        assert_eq!(request.jobs.len(), 2);
        assert_eq!(request.jobs[1].queue, "queue");
        assert_eq!(request.jobs[1].payload, "payload");
        let answer = v1::EnqueueAnswer {
            number: 7,
            outcome: Some(v1::enqueue_answer::Outcome::Refused(v1::Error::default())),
        };
        let answer: EnqueueAnswer = self::read(&answer);
        assert!(answer.number == 7 && answer.refused.is_some());
    }

    #[test]
    fn a_delivery_and_its_report_are_those_of_the_schema() {
        let message = v1::ServerMessage {
            deliveries: vec![v1::Delivery {
                job: "id".to_owned(),
                token: "token".into(),
                payload: "payload".into(),
                ..v1::Delivery::default()
            }],
            completed: vec![3, 4],
            ..v1::ServerMessage::default()
        };
        let mut message: ServerMessage = read(&message);
        assert_eq!(message.completed, [3, 4]);
        assert_eq!(message.deliveries[0].payload, "payload");
        let report = WorkerMessage {
            hello: None,
            credits_added: 1,
            reports: vec![Report {
                number: 5,
                complete: Some(Completion::of(message.deliveries.remove(0))),
            }],
        };
        let report: v1::WorkerMessage = read(&report);
        assert_eq!((report.credits_added, report.reports[0].number), (1, 5));
        let Some(v1::report::What::Complete(completion)) = &report.reports[0].what else {
            panic!("it completes");
        };
        let held = completion.held.as_ref().expect("it was sent");
        assert_eq!((held.job.as_str(), &held.token[..]), ("id", &b"token"[..]));
    }

    #[test]
    fn a_refused_completion_is_seen() {
        let refused = v1::ReportAnswer {
            number: 1,
            outcome: Some(v1::report_answer::Outcome::Refused(v1::Error::default())),
        };
        let reply = v1::ReportReply {
            answers: vec![refused],
        };
        let reply: ReportReply = read(&reply);
        assert!(reply.answers[0].refused.is_some());
    }
}

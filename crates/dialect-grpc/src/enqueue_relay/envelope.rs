//! The messages of a stream of batches, with the messages inside them left encoded. The fields are those of `jobs.proto`, by
//! their numbers.

use bytes::Bytes;
use prost::Message as _;

/// A message of the client: `EnqueueBatch`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct BatchEnvelope {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) request: Option<Bytes>,
}

/// A message of the server: `EnqueueAnswer`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AnswerEnvelope {
    #[prost(uint64, tag = "1")]
    pub(super) number: u64,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub(super) accepted: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub(super) refused: Option<Bytes>,
}

/// What a relay reads of an `EnqueueRequest`.
#[derive(Clone, PartialEq, prost::Message)]
struct Keyed {
    #[prost(string, tag = "3")]
    idempotency_key: String,
}

impl BatchEnvelope {
    /// Whether the batch has an idempotency key, so that it is enqueued once however often it is sent.
    pub(super) fn has_key(&self) -> bool {
        let read = self.request.clone().map(Keyed::decode);
        matches!(read, Some(Ok(keyed)) if !keyed.idempotency_key.is_empty())
    }
}

//! The messages of a stream of batches, with the messages inside them left encoded. The fields are those of `jobs.proto`, by
//! their numbers.

use bytes::Bytes;

use crate::repeats;

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

impl BatchEnvelope {
    /// Whether the batch is enqueued once however often it is sent.
    pub(super) fn is_repeatable(&self) -> bool {
        let request = self.request.as_deref();
        request.is_some_and(repeats::is_repeatable_request)
    }
}

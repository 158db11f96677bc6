//! The messages of a worker's stream, with the messages inside them left encoded: a relay looks at few of their fields.
//! The fields are those of `leases.proto`, by their numbers.

use bytes::Bytes;
use prost::Message as _;

/// A message of the worker: `WorkerMessage`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct WorkerEnvelope {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) hello: Option<Bytes>,
    #[prost(uint32, tag = "2")]
    pub(super) credits_added: u32,
    #[prost(bool, tag = "3")]
    pub(super) credits_dropped: bool,
    #[prost(bytes = "bytes", repeated, tag = "4")]
    pub(super) reports: Vec<Bytes>,
}

/// A message of the server: `ServerMessage`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ServerEnvelope {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub(super) welcome: Option<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) deliveries: Vec<Bytes>,
    #[prost(uint64, tag = "3")]
    pub(super) batch: u64,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) completed: Vec<u64>,
    #[prost(bytes = "bytes", repeated, tag = "5")]
    pub(super) answers: Vec<Bytes>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub(super) lost: Vec<Bytes>,
    #[prost(bool, tag = "7")]
    pub(super) drain: bool,
    #[prost(uint64, tag = "8")]
    pub(super) heard: u64,
}

/// What a relay reads of a `Report` or a `ReportAnswer`.
#[derive(Clone, PartialEq, prost::Message)]
struct Numbered {
    #[prost(uint64, tag = "1")]
    number: u64,
}

/// What a relay reads of a `Delivery`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Delivered {
    #[prost(string, tag = "1")]
    pub(super) job: String,
    #[prost(bytes = "bytes", tag = "8")]
    pub(super) token: Bytes,
}

/// Returns the number of an encoded report, or of its answer; `None` if it cannot be read.
pub(super) fn number(encoded: &Bytes) -> Option<u64> {
    Numbered::decode(encoded.clone())
        .ok()
        .map(|read| read.number)
}

impl Delivered {
    /// Reads an encoded delivery; `None` if it cannot be read.
    pub(super) fn read(encoded: &Bytes) -> Option<Self> {
        Self::decode(encoded.clone()).ok()
    }
}

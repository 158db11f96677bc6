//! The gRPC schema of ganger, package `ganger.v1`, and the code made from it.
//!
//! The schema is in `proto/ganger/v1`, one file per area, with the conventions at the top of
//! `common.proto`. These types stay inside `ganger-dialect-grpc` and `ganger-client`: both convert
//! at their edge, by the rules of `convert`, so the wire can grow without freezing the engine or the SDK.

#![forbid(unsafe_code)]

#[cfg(feature = "types")]
pub mod convert;

use v1::right::{Scope, Verb};

/// Messages, clients and servers of `ganger.v1`. Byte fields share their buffer with the frame.
#[allow(
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    missing_docs,
    reason = "made by prost and tonic"
)]
pub mod v1 {
    tonic::include_proto!("ganger.v1");
}

/// The schema as an encoded `FileDescriptorSet`, comments included, for reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = tonic::include_file_descriptor_set!("ganger.v1");

/// What a caller needs in order to call a method: the option `right` of the schema.
#[derive(Clone, Copy, Debug)]
pub struct MethodRight {
    /// Name of the method, such as `ganger.v1.Jobs/Enqueue`.
    pub method: &'static str,
    /// What the method does, as far as rights are concerned.
    pub verb: Verb,
    /// Where the caller must hold the verb.
    pub scope: Scope,
}

/// A row for every method, sorted by its name.
pub const METHOD_RIGHTS: &[MethodRight] = include!(concat!(env!("OUT_DIR"), "/rights.rs"));

/// Keys of the metadata of calls and answers.
pub mod metadata {
    /// The shard that a request is for, put there by the caller that knows it, so that the server in front can pass it
    /// on.
    pub const SHARD: &str = "ganger-shard";

    // These every refused call carries, beside the gRPC status.

    /// Our stable error code, such as `lease_lost`.
    pub const CODE: &str = "ganger-code";
    /// `true` if the same request may succeed later.
    pub const RETRYABLE: &str = "ganger-retryable";
    /// Milliseconds after which to come back, where the server can tell.
    pub const RETRY_AFTER_MS: &str = "ganger-retry-after-ms";
}

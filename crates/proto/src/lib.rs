//! The gRPC schema of ganger, package `ganger.v1`, and the code made from it.
//!
//! The schema is in `proto/ganger/v1`, one file per area, with the conventions at the top of `common.proto`. Only
//! `ganger-dialect-grpc` and `ganger-client` use these types. Both convert them by the rules of `convert`, so the
//! schema and the engine can change independently.

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

/// The right that a caller needs for a method: the option `right` of the schema.
#[derive(Clone, Copy, Debug)]
pub struct MethodRight {
    /// Name of the method, such as `ganger.v1.Jobs/Enqueue`.
    pub method: &'static str,
    /// Verb of the right.
    pub verb: Verb,
    /// Scope in which the caller must have the verb.
    pub scope: Scope,
}

/// A row for every method, sorted by its name.
pub const METHOD_RIGHTS: &[MethodRight] = include!(concat!(env!("OUT_DIR"), "/rights.rs"));

/// Keys of the metadata of calls and answers.
pub mod metadata {
    /// Shard that a request is for, if the caller knows it, so that another server can forward the request.
    pub const SHARD: &str = "ganger-shard";

    // Every refused call has the following keys besides the gRPC status.

    /// Stable error code of ganger, such as `lease_lost`.
    pub const CODE: &str = "ganger-code";
    /// `true` if the same request may succeed later.
    pub const RETRYABLE: &str = "ganger-retryable";
    /// Milliseconds after which to retry; absent if the server does not know.
    pub const RETRY_AFTER_MS: &str = "ganger-retry-after-ms";
}

//! The HTTP face: JSON under `/api/v1`, server-sent events, health and metrics.
//!
//! Thin: `ganger_document` turns bodies into commands and replies into documents; here is one file per resource between
//! them. The table in `operations` makes the routes and `/openapi.json`.

#![forbid(unsafe_code)]

mod api;
mod arguments;
mod authorization;
mod body;
mod filter;
mod host_check;
mod json;
mod lines;
mod openapi;
mod operations;
mod problem;
mod refusal;
mod request_context;
mod request_extensions;
mod resource;
mod routes;
mod stream;

pub use api::Settings;
pub use host_check::HostCheck;
pub use operations::rights;
pub use problem::Problem;
pub use request_extensions::Peer;
pub use routes::routes;

/// What holds for all operations; part of `/openapi.json`.
pub const CONVENTIONS: &str = "\
A durable job queue. What is answered with a status of 2xx is on disk.

Bytes. `payload`, `value` and `result` hold any JSON value, and its exact text is what is stored; \
`payload_base64`, `value_base64` and `result_base64` hold any bytes instead. Answers use the first form \
where the stored bytes are JSON, else the second.

Names are text of at most 255 bytes. A byte that is not UTF-8 is written \\xNN with two lower-case \
hexadecimal digits; the backslash of a literal \\xNN is written \\x5c.

Jobs are named by their id, or as shard/id; in a path the slash is written %2F.

A request is for the shard of the job in its path, else of the header Ganger-Shard, else of ?shard=, else the \
server's own.

Durations are strings such as 30s, 1h30m, 500ms, or numbers of seconds; fields that end in _seconds are \
numbers. Times are RFC 3339 with an offset.

Namespaces are chosen by ?namespace= or the header Ganger-Namespace; `default` if absent. In a namespace \
on its callers' clock the header Ganger-Now brings the time.

Unknown fields and parameters are refused. Errors are application/problem+json with a stable `code`.";

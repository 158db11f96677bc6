//! The HTTP dialect: JSON under `/api/v1`, server-sent events, health and metrics.
//!
//! `ganger_document` converts bodies to commands and replies to documents; this crate has a file per resource in
//! between. The routes and `/openapi.json` are made from the table in `operations`.

#![forbid(unsafe_code)]

mod api;
mod arguments;
mod authorization;
mod body;
mod byte_range;
mod description;
mod filter;
mod host_check;
mod json;
mod lines;
pub mod merged;
mod openapi;
mod operations;
mod problem;
mod refusal;
mod repeats;
mod request_context;
mod request_extensions;
mod resource;
mod routes;
mod stream;

pub use api::Settings;
pub use host_check::HostCheck;
pub use operations::rights;
pub use problem::Problem;
pub use repeats::{has_key, is_graph, is_repeatable};
pub use request_extensions::Peer;
pub use routes::routes;

//! The HTTP face: JSON under `/api/v1`, server-sent events, health and metrics.
//!
//! Thin: `ganger_document` turns bodies into commands and replies into documents; here is one file per resource between
//! them. The table in `operations` makes the routes and `/openapi.json`.

#![forbid(unsafe_code)]

mod api;
mod arguments;
mod authorization;
mod body;
mod description;
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

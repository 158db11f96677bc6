//! QuantumLeap's REST API: NGSI notifications and their tasks.
//!
//! A context broker posts a notification. `ganger-ngsi` checks and prepares its entities, which become the payload of an
//! ordinary job, and workers insert them into PostgreSQL later. Operators list, count and delete these jobs as the tasks
//! that QuantumLeap would show. `notify` handles notifications, `job` maps tasks to jobs, and `selection` decides which
//! tasks a request selects.

#![forbid(unsafe_code)]

mod about;
mod api;
mod authorization;
mod body;
mod count;
mod delete;
mod headers;
mod health;
mod inline_insert;
mod job;
mod list;
mod metrics;
mod notify;
mod problem;
mod routes;
mod selection;
mod show;

pub use api::{Service, Settings};
pub use authorization::{Operation, Peer};

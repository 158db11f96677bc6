//! QuantumLeap's REST API: NGSI notifications, and the tasks made of them.
//!
//! A context broker posts a notification; its entities are checked and prepared by `ganger-ngsi`, and become the
//! payload of one ordinary job, which workers insert into PostgreSQL later. Operators list, count and delete those
//! jobs as the tasks that QuantumLeap would show. The steps of a notification are in `notify`; the task as a job in
//! `job`; the tasks that a request selects in `selection`.

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

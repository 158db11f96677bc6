//! NGSI notifications: what is checked of them, what is kept, the rows of a database that they become, and how these get
//! there.
//!
//! The steps, in the order in which a notification meets them:
//!
//! 1. [`notification::parse`]: the body is JSON and has the form of a notification;
//! 2. [`prepare::prepare`]: times, places and empty attributes of its entities are settled;
//! 3. [`task::Task`]: what is queued, and what lists show of it;
//! 4. [`rows::groups`]: what is to be inserted, table by table;
//! 5. [`postgres::Inserter`]: the rows go into PostgreSQL, each task once.
//!
//! The first four are pure, as everything here but [`postgres`] and [`telemetry`]: no clock, no file, no socket. `cargo xtask
//! tidy` checks the libraries that they use.
//!
//! The behaviour is that of QuantumLeap 1.0, so its users find the same answers and the same tables.

#![forbid(unsafe_code)]

#[cfg(test)]
mod any_json;
pub mod attribute_type;
pub mod environment;
pub mod geo;
mod hexadecimal;
pub mod job;
mod json;
pub mod labels;
pub mod notification;
pub mod postgres;
pub mod prepare;
pub mod python;
pub mod rows;
pub mod task;
pub mod telemetry;
pub mod time;

/// An entity: a JSON object in the order in which it came, with numbers as they were written.
pub type Entity = serde_json::Map<String, serde_json::Value>;

//! NGSI notifications: checks, preparation, conversion into database rows, and inserts into PostgreSQL.
//!
//! A notification passes through these steps:
//!
//! 1. [`notification::parse`] checks that the body is JSON in the form of a notification;
//! 2. [`prepare::prepare`] normalises time index, location and empty attributes of its entities;
//! 3. [`task::Task`] is the document that is queued and that lists show;
//! 4. [`rows::groups`] converts the entities into rows, table by table;
//! 5. [`postgres::Inserter`] inserts the rows into PostgreSQL, each task exactly once.
//!
//! All modules but [`postgres`] and [`telemetry`] are pure: they use no clock, file or socket. `cargo xtask tidy` checks
//! which libraries they use.
//!
//! Answers and tables are those of QuantumLeap 1.0.

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

/// An entity: a JSON object that keeps the order of its members and the digits of its numbers.
pub type Entity = serde_json::Map<String, serde_json::Value>;

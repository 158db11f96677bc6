//! Inserts into a real PostgreSQL, which the tests start for themselves.

mod support;

mod exactly_once;
mod examples;
mod executor;
mod hostile;
mod outages;
mod races;
mod tables;
mod tls;
mod unfitting_entities;

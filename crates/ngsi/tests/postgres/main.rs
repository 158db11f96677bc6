//! Tests of inserts into a real PostgreSQL server, which the tests start themselves.

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

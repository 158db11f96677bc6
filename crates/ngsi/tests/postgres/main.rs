//! Inserts into a real PostgreSQL, which the tests start for themselves.

mod support;

mod examples;
mod executor;
mod hostile;
mod misfits;
mod once;
mod outages;
mod races;
mod tables;
mod tls;

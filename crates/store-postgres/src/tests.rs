//! Tests of the store's inside against a real server: the fence, the outcomes of statements, and the tables of the log.

mod fence;
mod outcomes;
mod support;
mod tables;

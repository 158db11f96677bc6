//! Tests of the store's inside against a real server: connections, operators, the fence, the outcomes of
//! statements, full disks, clocks, and the tables of the log.

mod answers;
mod away;
mod connect;
mod disk_full;
mod durability;
mod fence;
mod log_tables;
mod nodes;
mod operators;
mod outcomes;
mod readers;
mod rewind;
mod support;

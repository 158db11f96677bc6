//! Black-box tests of the real `ganger` binary, and their building blocks.
//!
//! The tests (in `tests/`) start the real server as a process and use it over HTTP, with a client that shares no code with
//! the product. They inject faults: they kill the server at random times and at chosen system calls, cut the power of its
//! disk, and fill its disk. A [`history::History`] records what clients observed, and [`checker`] checks it.

#![expect(
    clippy::missing_errors_doc,
    reason = "every function fails for the same reason: the test went wrong, as the error explains"
)]

pub mod api;
pub mod balanced_load;
pub mod binary;
pub mod certificates;
pub mod chaos;
pub mod checker;
pub mod clients;
pub mod cluster;
pub mod command;
pub mod disks;
pub mod figures;
pub mod hand_overs;
pub mod history;
pub mod http;
pub mod load;
pub mod network;
pub mod nodes;
pub mod ports;
pub mod quantumleap;
pub mod random;
pub mod redis;
pub mod relay;
pub mod scenario;
pub mod server;
pub mod skip;
pub mod trace;

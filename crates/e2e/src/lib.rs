//! Black-box tests of the real `ganger` binary, and what they are made of.
//!
//! The tests (in `tests/`) start the real server as a process, talk to it over HTTP with a client of their own that
//! shares no code with the product, and hurt it: kill it at random moments and at chosen system calls, cut the power of
//! its disk, fill its disk. What clients saw is recorded in a [`history::History`] and judged by [`checker`].

#![expect(
    clippy::missing_errors_doc,
    reason = "everything here fails for one reason: the test went wrong, and the error says how"
)]

pub mod api;
pub mod binary;
pub mod checker;
pub mod clients;
pub mod command;
pub mod disks;
pub mod history;
pub mod http;
pub mod load;
pub mod network;
pub mod ports;
pub mod quantumleap;
pub mod random;
pub mod redis;
pub mod relay;
pub mod scenario;
pub mod server;
pub mod skip;
pub mod trace;

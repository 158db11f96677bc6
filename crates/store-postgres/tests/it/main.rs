//! The suite of all stores on a private PostgreSQL, always as the role of the nodes: alone, with a synchronous
//! standby, through a pooler in transaction mode, and with connections that are cut.

mod failover;
mod faults;
mod model;
mod proxy;
mod suite;
#[path = "../../src/tests/support.rs"]
mod support;
mod tls;

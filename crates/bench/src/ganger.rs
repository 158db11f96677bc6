//! ganger itself: its APIs, its servers, and the report of `ganger bench`.

mod calls;
mod grpc;
mod http;
mod kind;
mod plan;
mod redis_port;
mod report;
mod server;
mod servers;
mod shards;
mod target;
mod waiting;
mod worker;

pub use kind::{Api, Kind};
pub use plan::{Bench, Plan};
pub use report::Report;

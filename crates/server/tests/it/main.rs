//! The integration tests of this crate, in one binary, because every further binary would link all crates again.

mod abandoned;
mod abuse;
mod alerts;
#[cfg(feature = "dashboard")]
mod dashboard;
#[cfg(feature = "dashboard")]
mod dashboard_shards;
mod floods;
mod health;
mod kit;
#[cfg(all(feature = "qless", feature = "quantumleap"))]
mod metrics;
#[cfg(feature = "quantumleap")]
mod quantumleap;
mod reload;
mod rights;
mod server;
mod shards;
mod stopping;
mod tls;

//! The integration tests of this crate, in one program: each further one links everything again.

mod audit_shards;
mod concurrent;
mod damage;
mod files;
mod formats;
mod kit;
mod qless;
mod suite;
mod together;
mod turns;
mod upgrade_kill;

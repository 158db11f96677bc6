//! The integration tests of this crate, in one program: each further one links everything again.

/// Whether the store of the tests is on another machine.
const IS_REMOTE: bool = false;

mod acknowledge;
mod broken;
mod core_property;
mod delivery;
mod failures;
mod full;
mod kit;
mod operations;
mod ownership;
mod popping;
mod qless;
mod qless_jobs;
mod reads;
mod recovery;
mod remote;
mod waiting;

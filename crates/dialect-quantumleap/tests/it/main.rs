//! The integration tests of this crate. They share one program, because each program links everything again.

mod notify;
mod paths;
mod support;
mod tasks;

//! The integration tests of this crate. They share one program, because each program links everything again.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

mod pool;
mod support;

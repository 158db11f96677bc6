//! The integration tests of this crate, in one program: each further one links everything again.
#![allow(clippy::unwrap_used, reason = "a test ends with its first surprise")]

mod pool;
mod support;

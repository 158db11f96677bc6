//! A private PostgreSQL for tests, made from Debian's packages.

#![forbid(unsafe_code)]

mod instance;

pub use instance::{Instance, Login, missing};

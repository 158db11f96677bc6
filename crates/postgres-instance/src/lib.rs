//! A private PostgreSQL for tests, with standbys and a pooler, made from Debian's packages.

#![forbid(unsafe_code)]

mod instance;
mod pooler;

pub use instance::{Instance, Login, unavailable_reason};
pub use pooler::{Pooler, missing_pooler};

//! Rows of external systems.

mod keys;
mod qless;

pub use keys::*;
pub use qless::*;

//! The integration tests of this crate, in one binary, because every further binary would link all crates again.

mod containment;
mod escape;
mod feeding;
mod limits;
mod programs;
mod stopping;
mod support;

//! The integration tests of this crate, in one program: each further one links everything again.

mod containment;
mod escape;
mod feeding;
mod limits;
mod programs;
mod stopping;
mod support;

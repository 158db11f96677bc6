//! The integration tests of this crate, in one binary, because every further binary would link all crates again.

mod bench;
mod command_line;
mod graphs;
mod operating;
mod walkthroughs;

//! The integration tests of this crate, in one program: each further one links everything again.

mod bench;
mod command_line;
mod operating;
mod walks;

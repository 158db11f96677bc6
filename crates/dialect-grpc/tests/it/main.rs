//! The integration tests of this crate, in one program: each further one links everything again.

mod bad_input;
mod events;
mod external_jobs;
mod graphs;
mod insight;
mod operating;
mod server;
mod shards;
mod streams;
mod support;

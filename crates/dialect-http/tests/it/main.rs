//! The integration tests of this crate, in one program: each further one links everything again.

mod bulk;
mod external_jobs;
mod graphs;
mod happy;
mod lists;
mod refusals;
mod series;
mod shards;
mod streams;
mod support;
mod values;
mod wording;

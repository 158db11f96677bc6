//! The integration tests of this crate, in one program: each further one links everything again.

mod cancel_effects;
mod external_jobs;
mod idempotency;
mod import;
mod keys;
mod operations;
mod order;
mod properties;
mod qless;
mod qless_events;
mod qless_jobs;
mod qless_leases;
mod retries;
mod rules;
mod scope;
mod shards;
mod support;
mod waits;
mod work_queues;

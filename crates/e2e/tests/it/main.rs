//! The integration tests of this crate. They share one program, because each program links everything again.

mod cluster;
mod dashboard;
mod disk_full;
mod documents;
mod full_disk_under_load;
mod import;
mod import_faults;
mod import_quantumleap;
mod kill;
mod nth_call;
mod one_process;
mod outbox;
mod packaging;
mod partitions;
mod power;
mod qless;
mod qless_compare;
mod quantumleap;
mod resp;
mod resp_guarded;
mod restart;
mod same_documents;
mod security;
mod shards;
mod stop;
mod store_faults;

//! The pages, one file each: a part reads, a part shows. Showing is a pure function of what was read.

mod about;
mod all_namespaces;
pub(crate) mod audit;
mod error;
mod events;
pub(crate) mod failures;
mod graph;
mod graphs;
mod job;
mod jobs;
mod login;
pub(crate) mod namespaces;
mod new_job;
mod operations;
mod overview;
mod queue;
mod queues;
mod route;
pub(crate) mod schedule;
pub(crate) mod schedule_form;
pub(crate) mod schedules;
pub(crate) mod search;
pub(crate) mod shards;
pub(crate) mod stats;
mod worker;
pub(crate) mod workers;

pub(crate) use error::{fault_page, plain_fault};
pub(crate) use job::raw;
pub(crate) use login::{Login, form as login_form};
pub(crate) use new_job::{FIELDS as NEW_JOB_FIELDS, read_new_job, show as new_job_page};
pub(crate) use operations::{address as operation_address, full_name as operation_name};
pub(crate) use route::{Interest, PATHS, build, interest};
pub(crate) use schedule::{TIMES as SCHEDULE_TIMES, on_shard as schedule_on};
pub(crate) use schedules::address as schedule_address;
pub(crate) use stats::csv as stats_csv;

/// The job that a reference names, and its shard.
pub(crate) async fn find_job(
    view: &crate::view::View,
    reference: &[u8],
) -> Result<(ganger_shard::Handle, ganger_types::StoredJob), crate::fault::Fault> {
    let found = job::find(view, reference).await?;
    Ok((found.shard, found.job))
}

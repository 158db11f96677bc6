//! The resources of the API, one file each.

pub(crate) mod act;
pub(crate) mod alter;
pub(crate) mod audit_log;
pub(crate) mod batch;
pub(crate) mod bulk;
pub(crate) mod events;
pub(crate) mod failures;
pub(crate) mod graph_views;
pub(crate) mod graphs;
pub(crate) mod health;
pub(crate) mod home;
pub(crate) mod jobs;
pub(crate) mod leases;
pub(crate) mod logs;
pub(crate) mod metrics;
pub(crate) mod namespaces;
pub(crate) mod numbers;
pub(crate) mod operations;
pub(crate) mod peers;
pub(crate) mod queues;
pub(crate) mod schedules;
pub(crate) mod series;
pub(crate) mod server;
pub(crate) mod submission;
pub(crate) mod whoami;
pub(crate) mod workers;

//! Reads that several pages share. Whatever the API cannot tell yet has its place here alone.

pub(crate) mod attention;
pub(crate) mod events;
pub(crate) mod jobs;
pub(crate) mod log;
pub(crate) mod operations;
pub(crate) mod queues;
pub(crate) mod rates;
pub(crate) mod sample;
pub(crate) mod series;

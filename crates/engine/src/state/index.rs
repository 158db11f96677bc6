//! Indexes over live jobs: derived from the job records, rebuilt at each start, and checked by the audit.

pub(crate) mod edges;
pub(crate) mod timers;

pub(crate) use edges::{Edge, Edges};
pub(crate) use timers::{Timer, Timers};

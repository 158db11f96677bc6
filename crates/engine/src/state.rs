//! The parts of the engine's state, each with its own fields and rules. None of them uses the engine or its commands.

mod clock;
mod endings;
mod index;
mod job;
mod names;
mod operations;
mod peers;
mod queues;
mod random;
mod ready_order;
mod removed;
mod space;
mod spaces;
mod statistics;
mod table;

pub(crate) use clock::ClockTrust;
pub(crate) use endings::EndedJob;
pub(crate) use index::{Edge, Edges, Timer};
pub(crate) use job::{Job, JobDetails};
pub(crate) use names::{Names, QueueIndex, SpaceIndex};
pub(crate) use operations::{AuditLog, Operations};
pub(crate) use peers::{Peer, Peers, RemoteEdge, WaitChecks};
pub(crate) use queues::Queues;
pub(crate) use random::RandomSource;
pub(crate) use ready_order::ReadyOrder;
pub(crate) use removed::RemovedJobs;
pub(crate) use space::{QueueState, Space, WorkerState, outcome_place};
pub(crate) use spaces::Spaces;
pub(crate) use statistics::{Occurrence, Statistics};
pub(crate) use table::JobTable;

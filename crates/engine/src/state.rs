//! The parts of the engine's state, each with its own fields and rules. None of them uses the engine or its commands.

mod clock;
mod draws;
mod endings;
mod index;
mod job;
mod names;
mod peers;
mod queues;
mod removed;
mod space;
mod spaces;
mod statistics;
mod table;

pub(crate) use clock::ClockTrust;
pub(crate) use draws::Draws;
pub(crate) use endings::EndedJob;
pub(crate) use index::{Edge, Edges, Timer};
pub(crate) use job::{Job, JobDetails};
pub(crate) use names::{Names, QueueIndex, SpaceIndex};
pub(crate) use peers::{Asking, Peer, Peers, RemoteEdge};
pub(crate) use queues::Queues;
pub(crate) use removed::RemovedJobs;
pub(crate) use space::{QueueState, Space, WorkerState, outcome_place};
pub(crate) use spaces::Spaces;
pub(crate) use statistics::{Counted, Statistics};
pub(crate) use table::JobTable;

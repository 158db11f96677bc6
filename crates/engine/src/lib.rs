//! The state machine: commands and time in; replies, events, changes out.
//!
//! Pure and deterministic: no clock, no randomness but a seed, no I/O, no threads. The same commands at the
//! same times give the same bytes out.

#![forbid(unsafe_code)]

mod check;
mod command;
mod dump;
mod endings;
mod engine;
mod external;
mod external_jobs;
mod finished_index;
mod firing;
mod followers;
mod invariants;
mod limits;
mod load;
mod peers;
mod prefetch;
mod query;
mod recurrence;
mod state;
mod statistics;
mod transition;
mod turn;
mod why;

pub use engine::Engine;
pub use external::Glob;
pub use followers::{Archive, Followed, Members, read_followers};
pub use load::Loader;
pub use peers::{Remainder, ReservedIds, ShardParts, ShardedSubmission};
pub use recurrence::check_spec;

use ganger_types::{
    Change, Epoch, Event, ExternalMessage, InputRow, JobKey, JobRecord, Meta, Now, Part, ShardId,
};

/// All that a turn caused: `changes` are committed first, then `events` and `messages` go out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Durable writes, in order.
    pub changes: Vec<Change>,
    /// Events to announce, in order.
    pub events: Vec<Event>,
    /// Messages for subscribers of external systems, in order.
    pub messages: Vec<ExternalMessage>,
}

/// What the engine is given at start.
#[derive(Clone, Debug)]
pub struct Start {
    /// Which shard it is.
    pub shard: ShardId,
    /// The epoch of this incarnation.
    pub epoch: Epoch,
    /// Unguessable bits, for lease tokens, jitter and the id tag.
    pub seed: [u8; 32],
    /// As of the last commit.
    pub meta: Meta,
    /// The moment of the start, on the continued time line.
    pub now: Now,
}

/// Finished jobs that a command names, looked up by the host (see [`Engine::prefetch`]).
#[derive(Clone, Debug, Default)]
pub struct PrefetchedRows {
    /// Their records, in any order; those that were not found are left out.
    pub jobs: Vec<JobRecord>,
    /// Their inputs, where [`Engine::prefetch_inputs`] says so.
    pub inputs: Vec<InputRow>,
    /// Undecided parts, where [`Engine::prefetch_parts`] names them.
    pub parts: Vec<Part>,
    /// Members of a graph, where [`Followed::members`] asks for some. Those of them that have ended are in `jobs`.
    pub members: Vec<JobKey>,
    /// The last of them, if there may be more behind it.
    pub members_up_to: Option<JobKey>,
}

//! The state machine of ganger: commands and times in; replies, events and changes out.
//!
//! It is pure and deterministic: no clock, no randomness except a seed, no I/O, no threads. The same commands at the
//! same times give the same output, byte for byte.

#![forbid(unsafe_code)]

mod cancel_effects;
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
mod grace;
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
pub use followers::{Archive, FollowersQuery, Members, read_followers};
pub use load::Loader;
pub use peers::{Remainder, ReservedIds, ShardParts, ShardedSubmission};
pub use recurrence::{check_spec, spec_times};

use ganger_types::{
    Change, Epoch, Event, ExternalMessage, InputRow, JobKey, JobRecord, Meta, Now, Part, ShardId,
};

/// The effects of a turn. The host first commits `changes`, then sends `events` and `messages`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Durable writes, in order.
    pub changes: Vec<Change>,
    /// Events to announce, in order.
    pub events: Vec<Event>,
    /// Messages for subscribers of external systems, in order.
    pub messages: Vec<ExternalMessage>,
}

/// What the engine needs at its start.
#[derive(Clone, Debug)]
pub struct Start {
    /// Id of the shard.
    pub shard: ShardId,
    /// Epoch of this start.
    pub epoch: Epoch,
    /// Secret random bits, for lease tokens, jitter and the id tag.
    pub seed: [u8; 32],
    /// Counters and clocks of the last commit.
    pub meta: Meta,
    /// Time of the start; the elapsed clock continues from the last commit.
    pub now: Now,
}

/// Finished jobs that a command needs, which the host has read (see [`Engine::prefetch`]).
#[derive(Clone, Debug, Default)]
pub struct PrefetchedRows {
    /// Records of the jobs, in any order; jobs that do not exist are absent.
    pub jobs: Vec<JobRecord>,
    /// Inputs of the jobs, if [`Engine::prefetch_inputs`] asks for them.
    pub inputs: Vec<InputRow>,
    /// Undecided parts that [`Engine::prefetch_parts`] names.
    pub parts: Vec<Part>,
    /// Members of a graph, if [`FollowersQuery::members`] asks for some. Those that have ended are also in `jobs`.
    pub members: Vec<JobKey>,
    /// Last member that was read, if there may be more.
    pub members_up_to: Option<JobKey>,
}

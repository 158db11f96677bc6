//! What an operator may set on a shard, and what its host may hook into.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ganger_types::keys::KeyUpkeep;
use ganger_types::{ShardId, limits};

/// The longest that a turn may wait for company, whatever the settings say.
pub const GROUP_WAIT_MAX: Duration = Duration::from_millis(1);

/// The settings of a shard. Every number has a unit and a default that suits a small machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which shard this is; `1` by default.
    pub shard: ShardId,
    /// Commands admitted and not yet answered; more are refused as overloaded. 65,536.
    pub inbox_commands_max: usize,
    /// Bytes of payloads in those commands; beyond it only a lone command is taken. 256 MiB.
    pub inbox_bytes_max: usize,
    /// Commands applied in one turn. 4,096.
    pub turn_commands_max: usize,
    /// Timers fired in one slice of a turn (`rel T9`). 4,096.
    pub turn_timers_max: usize,
    /// How long a turn may wait for company while the store is idle, only under load; never more
    /// than [`GROUP_WAIT_MAX`], zero switches it off. 1 ms.
    pub group_wait: Duration,
    /// A turn of so many commands waits for no more company. 64.
    pub group_enough: usize,
    /// Lease requests and waits for ends that may wait at once. 100,000.
    pub waiters_max: usize,
    /// The longest wait; longer ones are cut to it. 300 s.
    pub wait_for_max: Duration,
    /// Durable events kept in memory for subscribers that lag or resume. 65,536.
    pub events_kept: usize,
    /// Subscriptions at once. 10,000.
    pub subscriptions_max: usize,
    /// Free bytes kept on the store's device for reports, renewals and deletion (`rel D9`). 256 MiB.
    pub reserve_bytes: u64,
    /// Bytes of payloads and results kept in memory for jobs that are soon to be handed out. 64 MiB.
    pub blob_cache_bytes: usize,
    /// Threads that read for listings, logs and records. 2.
    pub reader_threads: usize,
    /// Reads that may wait for them; more are refused as overloaded. 1,024.
    pub reads_max: usize,
    /// Between two looks at free space, retention and upkeep. 1 s.
    pub upkeep_every: Duration,
    /// Finished jobs removed in one slice of retention. 500.
    pub retire_slice: usize,
    /// Bytes of payloads and inputs handed out by one lease request; its first job always fits. 64 MiB.
    pub delivery_bytes_max: usize,
    /// When work queues of raw keys are put in order.
    pub key_upkeep: KeyUpkeep,
}

/// No more of the reserve is taken in advance.
const RESERVE_TAKEN_MAX: u64 = 64 << 20;

impl Settings {
    /// Bytes of the reserve whose blocks are really taken on the device; of the rest only the free space is looked at.
    /// Half of it, at most 64 MiB.
    pub fn reserve_taken(&self) -> u64 {
        (self.reserve_bytes / 2).min(RESERVE_TAKEN_MAX)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            shard: ShardId::default(),
            inbox_commands_max: 65_536,
            inbox_bytes_max: 256 << 20,
            turn_commands_max: limits::TURN_COMMANDS_MAX,
            turn_timers_max: limits::TURN_TIMERS_MAX,
            group_wait: GROUP_WAIT_MAX,
            group_enough: 64,
            waiters_max: 100_000,
            wait_for_max: limits::WAIT_FOR_MAX,
            events_kept: 65_536,
            subscriptions_max: 10_000,
            reserve_bytes: 256 << 20,
            blob_cache_bytes: 64 << 20,
            reader_threads: 2,
            reads_max: 1_024,
            upkeep_every: Duration::from_secs(1),
            retire_slice: 500,
            delivery_bytes_max: 64 << 20,
            key_upkeep: KeyUpkeep::default(),
        }
    }
}

/// Why a shard ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// It was asked to.
    Requested,
    /// Another process owns the store now: this one must not write again.
    Fenced {
        /// Cause as text for people.
        reason: String,
    },
    /// The store could not be opened again, or not be read, after a failed commit or at start.
    StoreLost {
        /// Cause as text for people.
        reason: String,
        /// Whether what it holds is damaged: starting again does not help.
        is_damaged: bool,
    },
    /// A rule of the engine did not hold: it ended before anything was written.
    InvariantBroken {
        /// Cause as text for people.
        reason: String,
    },
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("the server is stopping"),
            Self::Fenced { reason }
            | Self::StoreLost { reason, .. }
            | Self::InvariantBroken { reason } => f.write_str(reason),
        }
    }
}

/// A place in the commit pipeline at which a test may stop the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PipelinePoint {
    /// A turn is about to be given to the store.
    BeforeCommit,
    /// The store has said that the turn is durable; nobody has heard of it.
    AfterCommit,
    /// Answers and events of durable turns are about to go out.
    BeforeRelease,
    /// They have gone out.
    AfterRelease,
    /// The rows of the store are about to be read back.
    BeforeLoad,
    /// They have been read back; the engine is not in service yet.
    AfterLoad,
}

impl PipelinePoint {
    /// Its name, for switches.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeCommit => "commit.before",
            Self::AfterCommit => "commit.after",
            Self::BeforeRelease => "release.before",
            Self::AfterRelease => "release.after",
            Self::BeforeLoad => "load.before",
            Self::AfterLoad => "load.after",
        }
    }
}

type OnStopped = Arc<dyn Fn(&StopCause) + Send + Sync>;
type AtPoint = Arc<dyn Fn(PipelinePoint) + Send + Sync>;

/// What the host of a shard wants to be told; called on the shard's own threads.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Called once when the shard has ended, with the reason.
    pub on_stopped: Option<OnStopped>,
    /// Called at every named point.
    pub at_point: Option<AtPoint>,
}

impl Hooks {
    pub(crate) fn reach(&self, point: PipelinePoint) {
        if let Some(hook) = &self.at_point {
            hook(point);
        }
    }

    pub(crate) fn stopped(&self, cause: &StopCause) {
        if let Some(hook) = &self.on_stopped {
            hook(cause);
        }
    }
}

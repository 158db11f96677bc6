//! Settings of a shard, and hooks for its host.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ganger_types::keys::KeyUpkeep;
use ganger_types::{ShardId, limits};

use crate::ownership::Ownership;

/// Longest time that a turn waits for more commands, whatever the settings say.
pub const GROUP_WAIT_MAX: Duration = Duration::from_millis(1);

/// The settings of a shard. The defaults suit a small machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Id of the shard; `1` by default.
    pub shard: ShardId,
    /// Maximum number of commands admitted and not yet answered; more are refused as overloaded. 65,536.
    pub inbox_commands_max: usize,
    /// Maximum bytes of payloads in those commands; a larger command is admitted only alone. 256 MiB.
    pub inbox_bytes_max: usize,
    /// Maximum number of commands in one turn. 4,096.
    pub turn_commands_max: usize,
    /// Maximum number of timers fired in one slice of a turn (`rel T9`). 4,096.
    pub turn_timers_max: usize,
    /// Longest time that a turn waits for more commands while the store is idle and only under load; at most
    /// [`GROUP_WAIT_MAX`], zero disables waiting. 1 ms.
    pub group_wait: Duration,
    /// Number of commands from which a turn does not wait for more. 64.
    pub group_enough: usize,
    /// Maximum number of waiting lease requests and waits for ends. 100,000.
    pub waiters_max: usize,
    /// Longest wait; longer ones are shortened to it. 300 s.
    pub wait_for_max: Duration,
    /// Number of durable events kept in memory for subscribers that lag or resume. 65,536.
    pub events_kept: usize,
    /// Maximum number of subscriptions. 10,000.
    pub subscriptions_max: usize,
    /// Free bytes kept on the store's device for reports, renewals and deletion (`rel D9`). 256 MiB.
    pub reserve_bytes: u64,
    /// Bytes of payloads and results cached for jobs that will soon be delivered. 64 MiB.
    pub blob_cache_bytes: usize,
    /// Number of threads that read listings, logs and records. 2.
    pub reader_threads: usize,
    /// Maximum number of reads that wait for those threads; more are refused as overloaded. 1,024.
    pub reads_max: usize,
    /// Interval between checks of free space, retention and upkeep. 1 s.
    pub upkeep_every: Duration,
    /// Number of finished jobs removed in one slice of retention; up to 2,000 if jobs expire faster than they are removed. 500.
    pub retire_slice: usize,
    /// Maximum bytes of payloads and inputs delivered to one lease request; its first job always fits. 64 MiB.
    pub delivery_bytes_max: usize,
    /// Intervals and limits of the upkeep of raw-key work queues.
    pub key_upkeep: KeyUpkeep,
    /// Time until which this process surely owns the shard; reads are refused afterwards. `None` if no other process
    /// can own it, the default.
    pub ownership: Option<Arc<Ownership>>,
}

/// Maximum bytes of the reserve whose blocks are allocated in advance.
const RESERVE_TAKEN_MAX: u64 = 64 << 20;

impl Settings {
    /// Bytes of the reserve whose blocks are allocated on the device: half of it, at most 64 MiB. For the rest only
    /// the free space is checked.
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
            ownership: None,
        }
    }
}

/// Why a shard ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// The shard was asked to stop.
    Requested,
    /// Another process owns the store now, so this one must not write any more.
    Fenced {
        /// Description of the cause.
        reason: String,
    },
    /// The store has lost commits that were confirmed: its server went back in time.
    Rewound {
        /// Description of the cause.
        reason: String,
    },
    /// The store could not be opened again, or not be read, after a failed commit or at start.
    StoreLost {
        /// Description of the cause.
        reason: String,
        /// Whether its content is damaged, so that a restart does not help.
        is_damaged: bool,
    },
    /// An invariant of the engine did not hold; the shard ended before anything was written.
    InvariantBroken {
        /// Description of the cause.
        reason: String,
    },
}

impl fmt::Display for StopCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("the server is stopping"),
            Self::Fenced { reason }
            | Self::Rewound { reason }
            | Self::StoreLost { reason, .. }
            | Self::InvariantBroken { reason } => f.write_str(reason),
        }
    }
}

/// A point in the commit pipeline at which a test may stop the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PipelinePoint {
    /// A turn is about to be submitted to the store.
    BeforeCommit,
    /// The store has confirmed the turn; none of it is visible yet.
    AfterCommit,
    /// Replies and events of durable turns are about to be sent.
    BeforeRelease,
    /// The replies and events have been sent.
    AfterRelease,
    /// The rows of the store are about to be loaded.
    BeforeLoad,
    /// The rows have been loaded; the engine is not in service yet.
    AfterLoad,
}

impl PipelinePoint {
    /// Returns the name of the point for command-line switches.
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

/// Callbacks for the host of a shard, called on the shard's own threads.
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

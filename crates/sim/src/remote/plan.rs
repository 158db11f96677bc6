//! The plan of a run of level 4, drawn from its seed: the database, the machines, and the kinds of faults.

use crate::rng::{Rng, mix};

/// A kind of fault. Each run has some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A process is killed.
    Kill,
    /// A process stands still for a while.
    Freeze,
    /// A connection breaks; sometimes its client notices late.
    Cut,
    /// A machine does not reach the database.
    Isolate,
    /// Another process takes the shard over though its owner is well.
    TakeOver,
    /// The owner hands the shard over in order: it completes what it has taken, and another process takes the shard.
    HandOver,
    /// The standby receives nothing for a while.
    Stall,
    /// An operator cancels the wait of a commit for its standby.
    Cancel,
    /// The server crashes and starts again.
    Crash,
    /// The standby takes the place of the server.
    Promote,
    /// Somebody holds the log tables, as a dump does.
    Dump,
    /// The wall clock of a machine jumps.
    Jump,
    /// A record of the log is lost.
    Damage,
    /// A backup of the database is taken, and restored a while later.
    Restore,
}

/// The kinds of faults that a run has or has not, each in every other run. Damage is apart.
const TROUBLES: &[Trouble] = &[
    Trouble::Kill,
    Trouble::Freeze,
    Trouble::Freeze,
    Trouble::Cut,
    Trouble::Isolate,
    Trouble::TakeOver,
    Trouble::Stall,
    Trouble::Cancel,
    Trouble::Crash,
    Trouble::Promote,
    Trouble::Dump,
    Trouble::Jump,
];

/// The plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Whether a commit waits for the standby.
    pub(crate) is_synchronous: bool,
    /// Number of machines that may own the shard.
    pub(crate) machines: usize,
    pub(crate) troubles: Vec<Trouble>,
    /// Statements or answers that are lost, per mille.
    pub(crate) losses: u64,
    /// Length of leases in milliseconds.
    pub(crate) lease_ms: u64,
    /// Most commands in a turn.
    pub(crate) turn_commands_max: usize,
    /// Changes of a commit from which it is written into the rows at once.
    pub(crate) record_changes: usize,
    /// Bytes of a log table from which the next one is used.
    pub(crate) slot_bytes: u64,
    /// Longest time between two steps in microseconds.
    pub(crate) pace: u64,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(mix(seed ^ 0x0004_0B5E));
        let mut troubles: Vec<Trouble> = TROUBLES
            .iter()
            .copied()
            .filter(|_| rng.chance(450))
            .collect();
        if rng.chance(250) {
            troubles.extend([Trouble::Damage, Trouble::Damage]);
        }
        let is_synchronous = rng.chance(600);
        if !is_synchronous {
            // Only so can a failover lose anything.
            troubles.extend([Trouble::Stall, Trouble::Promote]);
        }
        let mut plan = Self {
            is_synchronous,
            machines: rng.index(2) + 2,
            troubles,
            losses: *rng.pick(&[0, 10, 50, 120]),
            lease_ms: *rng.pick(&[300, 2_000, 10_000, 20_000]),
            turn_commands_max: *rng.pick(&[1, 4, 64]),
            record_changes: *rng.pick(&[3, 12, 65_536]),
            slot_bytes: *rng.pick(&[600, 3_000, 30_000]),
            pace: *rng.pick(&[60_000, 300_000, 1_000_000]),
        };
        // Drawn last, so that the other runs of a seed stay as they are.
        if rng.chance(250) {
            plan.troubles.push(Trouble::HandOver);
        }
        if !is_synchronous && rng.chance(400) {
            plan.troubles.extend([Trouble::Restore; 2]);
        }
        plan
    }
}

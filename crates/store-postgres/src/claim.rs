//! Taking a shard over: the epoch is raised while the fence is locked, so that every commit of an earlier owner lies
//! wholly before or wholly after.
//!
//! A commit holds its row of the fence shared until its transaction has ended, its flush and its replication
//! included. A claim locks and updates that row, so it waits for commits on their way, and what comes later finds
//! another epoch. The log and the checkpoint are read after the locks. Nothing is used before the claim's own commit
//! is confirmed: that lies behind all that it saw.

use std::time::Duration;

use ganger_store::StoreError;
use ganger_types::ShardId;

use crate::backend::{Backend, ClaimTables, FenceRow, LockWait, SlotEnd};
use crate::durability::Durability;
use crate::fault::Fault;
use crate::fence::{Claimant, REWOUND};
use crate::header::Header;
use crate::log::Log;
use crate::shared::Shared;

/// A shard that was taken over.
pub(crate) struct Claim {
    pub(crate) log: Log,
    /// State of the rows.
    pub(crate) header: Header,
    pub(crate) durability: Durability,
    /// Time since the last record, by the clock of the database.
    pub(crate) away: Duration,
}

/// Takes a shard over; from anybody, or only from ourselves, if nobody else has taken it since.
///
/// # Errors
/// If it has another owner than the claimant was, or cannot be used.
pub(crate) fn claim<B: Backend>(
    store: &Shared<B>,
    shard: &ShardId,
    claimant: Claimant<'_>,
) -> Result<Claim, Fault> {
    let backend = store.backend();
    let mut tables = backend.claiming()?;
    let durability = tables.durability();
    let attempt = Attempt {
        store,
        label: backend.label(),
        shard,
        claimant,
    };
    let taken = match attempt.run(&mut tables, LockWait::Owner) {
        Err(fault) if fault.is_lock_timeout() => {
            tracing::warn!(
                shard = backend.number(),
                "the last owner holds a lock on the shard: its sessions are ended"
            );
            tables.end_owner()?;
            let taken = attempt.run(&mut tables, LockWait::Last);
            taken.map_err(|fault| match fault {
                // An earlier claim may wait for its standby. It ends by itself, and then this one succeeds.
                fault if fault.is_lock_timeout() => Fault::Lost(
                    "another session holds a lock on the shard, such as a claim whose commit waits for a standby"
                        .to_owned(),
                ),
                fault => fault,
            })?
        }
        taken => taken?,
    };
    Ok(Claim {
        log: taken.log,
        header: taken.header,
        durability,
        away: taken.away,
    })
}

struct Taken {
    log: Log,
    header: Header,
    away: Duration,
}

struct Attempt<'a, B: Backend> {
    /// Counts waits that were cancelled.
    store: &'a Shared<B>,
    label: &'a str,
    shard: &'a ShardId,
    claimant: Claimant<'a>,
}

impl<B: Backend> Attempt<'_, B> {
    /// Takes the shard over in one transaction. A warning during its commit means that the commit is not confirmed.
    fn run<T: ClaimTables>(&self, tables: &mut T, wait: LockWait) -> Result<Taken, Fault> {
        tables.take_warning();
        let taken = self.take(tables, wait);
        // A shard that is found to be rewound is closed by the same transaction.
        if taken.as_ref().is_err_and(|fault| !fault.is_lost()) {
            tables.rollback()?;
        }
        let taken = taken?;
        match tables.take_warning() {
            None => taken.map_err(Fault::Store),
            // It is visible, and nobody has a copy: it may take with it what the claim saw.
            Some(warning) => {
                self.store.wait_cancelled();
                Err(Fault::Lost(warning))
            }
        }
    }

    /// Returns the shard; or why it can have no owner, which its fence says from now on.
    fn take<T: ClaimTables>(
        &self,
        tables: &mut T,
        wait: LockWait,
    ) -> Result<Result<Taken, StoreError>, Fault> {
        tables.begin(wait)?;
        let fence = tables
            .lock_fence()?
            .ok_or_else(|| Fault::row("fence", "log", "it is missing"))?;
        let epoch = fence.next_epoch(self.claimant, self.label)?;
        for (row, name) in [(FenceRow::Log, "log"), (FenceRow::Rows, "rows")] {
            // The second one waits for rows that the last owner is writing.
            if tables.write_fence(row, epoch, self.claimant.owner)? != 1 {
                return Err(Fault::row("fence", name, "it is missing"));
            }
        }
        let (sequence, sealed) = tables
            .checkpoint()?
            .ok_or_else(|| Fault::row("checkpoint", "1", "it is missing"))?;
        let header = Header::open(&sealed, sequence)?;
        if header.shard != self.shard.as_str() {
            return Err(Fault::Store(StoreError::OtherShard {
                path: self.label.to_owned(),
                found: header.shard,
                wanted: self.shard.to_string(),
            }));
        }
        let ends = tables.ends()?;
        let log = Log::new(fence.identity, epoch, &ends)
            .ok_or_else(|| Fault::Damaged("the log has lost its last record".to_owned()))?;
        let mark = self.claimant.mark;
        if mark.is_missing_from(fence.epoch, log.last) {
            tables.write_state(REWOUND)?;
            tables.commit()?;
            return Ok(Err(StoreError::Rewound {
                path: self.label.to_owned(),
                found: log.last,
                found_epoch: fence.epoch,
                known: mark.sequence,
                known_epoch: mark.epoch,
            }));
        }
        if log.last < header.sequence {
            let (last, rows) = (log.last, header.sequence);
            return Err(Fault::Damaged(format!(
                "the log ends with record {last}, before {rows}, the last one whose rows are written"
            )));
        }
        tables.commit()?;
        Ok(Ok(Taken {
            log,
            header,
            away: away(&ends),
        }))
    }
}

/// Time since the last record of the log; zero if a clock went back.
fn away(ends: &[SlotEnd]) -> Duration {
    let newest = ends.iter().max_by_key(|end| end.last);
    let age = newest.and_then(|end| end.age).unwrap_or_default();
    Duration::try_from_secs_f64(age).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(last: Option<u64>, age: Option<f64>) -> SlotEnd {
        SlotEnd {
            last,
            bytes: 0,
            age,
        }
    }

    #[test]
    fn the_time_since_the_last_record_is_never_negative() {
        let year = 365.0 * 86_400.0;
        for (age, expected) in [
            (Some(1.5), Duration::from_millis(1_500)),
            (Some(0.0), Duration::ZERO),
            (Some(-0.000_001), Duration::ZERO),
            (Some(-year), Duration::ZERO),
            (Some(year), Duration::from_secs(365 * 86_400)),
            (Some(f64::NAN), Duration::ZERO),
            (None, Duration::ZERO),
        ] {
            let ends = [end(Some(6), Some(9.0)), end(Some(7), age), end(None, None)];
            assert_eq!(away(&ends), expected, "{age:?}");
        }
        assert_eq!(away(&[]), Duration::ZERO);
    }
}

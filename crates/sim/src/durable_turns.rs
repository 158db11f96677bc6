//! Turns that became durable: the oracle checks each one in order, with the rows as they are after it.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::JobRecord;

use crate::oracle::Turn;
use crate::plan::Feature;
use crate::process::durable::touched;
use crate::process::{DurableTurn, ShardProcess};
use crate::rows::Rows;
use crate::world::{StepOutcome, World, broken};

impl World {
    /// Lets the oracle check every turn that the core released.
    pub(crate) fn check_durable_turns(&mut self, events: &[ganger_types::Event]) -> StepOutcome {
        let Some(served) = &mut self.process else {
            return Ok(());
        };
        served
            .check_events(events)
            .map_err(|why| broken("P5", why))?;
        while let Some(next) = self.process.as_mut().and_then(ShardProcess::next_durable) {
            match next {
                Ok(durable) => self.check_turn(durable)?,
                Err(sequence) => {
                    let what =
                        format!("turn {sequence} was let out, and the store does not hold it");
                    return Err(broken("D1", what));
                }
            }
        }
        Ok(())
    }

    fn check_turn(&mut self, durable: DurableTurn) -> StepOutcome {
        let (time, changes) = (self.time, &durable.commit.changes);
        for moment in &durable.moments {
            self.log.tell(time, || {
                format!(
                    "moment elapsed {} wall {}",
                    moment.now.elapsed, moment.now.wall
                )
            });
            for one in &moment.applied {
                self.log.tell(time, || {
                    format!("op {} is answered {:?}", one.op, one.answer)
                });
                self.log.deep(&one.answer);
            }
        }
        for change in changes {
            self.log.deep(change);
            self.log.tell(time, || format!("  stored {change:?}"));
        }
        let gone = removed(&self.rows, changes);
        let applied = self
            .rows
            .apply(durable.commit.sequence, durable.commit.meta, changes);
        applied.map_err(|why| broken("D3", format!("a commit makes no sense: {why}")))?;
        self.check_deliveries(&durable)?;
        let turn = Turn {
            moments: durable.moments,
            touched: touched(changes),
            removed: gone,
        };
        if !self.plan.does(Feature::CallersClock) {
            return self.oracle.turn(&turn, &self.rows);
        }
        let last = turn.moments.last().map(|moment| moment.now);
        let (ours, callers) = turn.parted(&self.rows);
        self.oracle.turn(&ours, &self.rows)?;
        self.callers.retention_now = last;
        self.callers.turn(&callers, &self.rows)
    }

    /// Checks that deliveries match the stored rows, unless the same turn changed them afterwards.
    fn check_deliveries(&self, durable: &DurableTurn) -> StepOutcome {
        let touched = touched(&durable.commit.changes);
        for delivery in &durable.deliveries {
            let key = delivery.grant.key;
            let stored = self.rows.payloads.get(&key).cloned().unwrap_or_default();
            if stored != delivery.payload && !touched.contains(&key) {
                let what = format!(
                    "job {key} was handed out with payload {:?} instead of {stored:?}",
                    delivery.payload
                );
                return Err(broken("D2", what));
            }
            let inputs = self.rows.delivery(key);
            let is_live = self.rows.leases.contains_key(&key);
            if is_live && inputs.as_ref() != Ok(&delivery.inputs) {
                let what = format!(
                    "job {key} was handed out with inputs {:?} instead of {inputs:?}",
                    delivery.inputs
                );
                return Err(broken("G2", what));
            }
        }
        Ok(())
    }
}

/// The records that changes remove, before their removal.
fn removed(rows: &Rows, changes: &[ganger_types::Change]) -> Vec<JobRecord> {
    let mut ended: BTreeMap<_, JobRecord> = BTreeMap::new();
    let mut gone = BTreeSet::new();
    for change in changes {
        match change {
            ganger_types::Change::FinishJob { record, .. } => {
                ended.insert(record.key, JobRecord::clone(record));
            }
            ganger_types::Change::RemoveJob(key) => {
                gone.insert(*key);
            }
            _ => {}
        }
    }
    gone.iter()
        .filter_map(|key| ended.get(key).or_else(|| rows.record(*key)).cloned())
        .collect()
}

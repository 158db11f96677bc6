//! Prefetched rows of finished jobs, from the turn so far and from the model store.

use std::collections::{BTreeMap, BTreeSet};

use ganger_engine::{Effects, Engine, Members, PrefetchedRows};
use ganger_types::{
    Change, Command, InputRow, InputState, JobId, JobKey, JobRecord, Namespace, Outcome,
};

use crate::rows::Rows;

/// Members of a graph on one page; few, so that small graphs take several pages.
const MEMBERS_MAX: usize = 3;

/// Reads the finished jobs that a command needs, from the turn so far, then from the rows.
pub(super) fn prefetch(
    engine: &Engine,
    command: &Command,
    rows: &Rows,
    effects: &Effects,
) -> PrefetchedRows {
    let mut known = PrefetchedRows::default();
    let mut seen = BTreeSet::new();
    for (namespace, id) in engine.prefetch(command) {
        if let Some(record) = find(&namespace, &id, rows, effects)
            && seen.insert(record.key)
        {
            known.jobs.push(record);
        }
    }
    if let Some(followed) = engine.prefetch_followers(command) {
        let mut archive = FinishedLookup { rows, effects };
        let read = ganger_engine::read_followers(&mut archive, &followed, &mut known);
        read.expect("memory does not fail");
        seen.extend(known.jobs.iter().map(|record| record.key));
    }
    if !engine.prefetch_inputs(command) {
        return known;
    }
    let found: Vec<JobKey> = known.jobs.iter().map(|record| record.key).collect();
    for key in found {
        for row in inputs_of(key, rows, effects) {
            if let InputState::Missing { dependency, .. } | InputState::Delivered { dependency, .. } =
                &row.state
                && let Some(record) = ended(*dependency, rows, effects)
                && seen.insert(record.key)
            {
                known.jobs.push(record);
            }
            known.inputs.push(row);
        }
    }
    known
}

/// Finished jobs in the turn so far and in the rows.
struct FinishedLookup<'a> {
    rows: &'a Rows,
    effects: &'a Effects,
}

impl ganger_engine::Archive for FinishedLookup<'_> {
    type Error = std::convert::Infallible;

    fn dependents(&mut self, key: JobKey) -> Result<Vec<JobKey>, Self::Error> {
        let waits = |state: &InputState| matches!(state, InputState::Missing { dependency, .. } if *dependency == key);
        let stored = self.rows.inputs.iter();
        let stored = stored.filter_map(|((job, _), state)| waits(state).then_some(*job));
        let in_turn = self
            .effects
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::PutInput(row) if waits(&row.state) => Some(row.job),
                _ => None,
            });
        Ok(stored.chain(in_turn).collect())
    }

    fn ended(&mut self, key: JobKey) -> Result<Option<JobRecord>, Self::Error> {
        Ok(ended(key, self.rows, self.effects))
    }

    fn inputs(&mut self, key: JobKey) -> Result<Vec<InputRow>, Self::Error> {
        Ok(inputs_of(key, self.rows, self.effects))
    }

    fn members(&mut self, asked: &Members) -> Result<(Vec<JobKey>, Option<JobKey>), Self::Error> {
        let stored = self.rows.finished.values().map(|row| &row.record);
        let is_meant = |job: &&JobRecord| {
            let end = job.finished.as_ref();
            job.namespace == asked.namespace
                && job.graph.as_ref() == Some(&asked.graph)
                && Some(job.key) > asked.after
                && end.is_some_and(|end| end.outcome != Outcome::Succeeded)
        };
        let keys: Vec<JobKey> = stored
            .filter(is_meant)
            .map(|job| job.key)
            .take(asked.limit.min(MEMBERS_MAX))
            .collect();
        let up_to = keys.last().copied();
        let up_to = up_to.filter(|_| keys.len() == asked.limit.min(MEMBERS_MAX));
        Ok((keys, up_to))
    }
}

fn find(namespace: &Namespace, id: &JobId, rows: &Rows, effects: &Effects) -> Option<JobRecord> {
    let in_turn = effects
        .changes
        .iter()
        .rev()
        .find_map(|change| match change {
            Change::FinishJob { record, .. } | Change::PutFinished(record)
                if record.namespace == *namespace && record.id == *id =>
            {
                Some(record.key)
            }
            _ => None,
        });
    let key = in_turn.or_else(|| rows.find(namespace, id).map(|record| record.key))?;
    ended(key, rows, effects)
}

/// The record of a finished job after the turn so far.
fn ended(key: JobKey, rows: &Rows, effects: &Effects) -> Option<JobRecord> {
    for change in effects.changes.iter().rev() {
        match change {
            Change::FinishJob { record, .. } | Change::PutFinished(record) if record.key == key => {
                return Some(JobRecord::clone(record));
            }
            Change::RemoveJob(gone) | Change::RetryJob(gone) if *gone == key => return None,
            _ => {}
        }
    }
    rows.finished.get(&key).map(|row| row.record.clone())
}

fn inputs_of(key: JobKey, rows: &Rows, effects: &Effects) -> Vec<InputRow> {
    let stored = rows.inputs.range((key, 0)..=(key, u32::MAX));
    let mut inputs: BTreeMap<u32, InputState> = stored
        .map(|((_, slot), state)| (*slot, state.clone()))
        .collect();
    for change in &effects.changes {
        match change {
            Change::PutInput(row) if row.job == key => {
                inputs.insert(row.slot, row.state.clone());
            }
            Change::RemoveInput { job, slot } if *job == key => {
                inputs.remove(slot);
            }
            _ => {}
        }
    }
    inputs
        .into_iter()
        .map(|(slot, state)| InputRow {
            job: key,
            slot,
            state,
        })
        .collect()
}

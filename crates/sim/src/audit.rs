//! The audit of the store: compares rows with each other, without the engine.

use std::collections::BTreeMap;

use ganger_types::{FailurePolicy, InputState, JobKey, JobState, Outcome};

use crate::rows::Rows;
use crate::world::{StepOutcome, broken};

/// Checks every row against the others (`rel A1`, `T1`).
pub(crate) fn audit(rows: &Rows) -> StepOutcome {
    rows.live.keys().try_for_each(|key| has_waker(rows, *key))?;
    queues(rows)?;
    tags(rows)?;
    groups(rows)?;
    orders(rows)?;
    for lease in rows.leases.values() {
        let record = &rows.live[&lease.key];
        if record.state != JobState::Ready {
            let what = format!("job {} is leased and stored as {}", record.id, record.state);
            return Err(broken("A1", what));
        }
    }
    Ok(())
}

/// Checks that something will move each live job (`rel T1`).
fn has_waker(rows: &Rows, key: JobKey) -> StepOutcome {
    let record = &rows.live[&key];
    let stalls = |why: String| Err(broken("T1", format!("job {} ({key}) {why}", record.id)));
    match record.state {
        JobState::Scheduled if record.due.is_none() => stalls("is scheduled without a time".into()),
        JobState::Ready | JobState::Scheduled => Ok(()),
        JobState::Blocked => {
            let inputs = rows.inputs.range((key, 0)..=(key, u32::MAX));
            let mut missing = 0;
            for (_, state) in inputs {
                let InputState::Missing {
                    dependency,
                    policy,
                    id,
                } = state
                else {
                    continue;
                };
                missing += 1;
                let is_live = rows.live.contains_key(dependency);
                let waits = *policy == FailurePolicy::Wait;
                if !is_live && !waits {
                    return stalls(format!("waits for job {id}, which has ended"));
                }
            }
            if missing == 0 {
                stalls("is blocked by nobody".into())
            } else {
                Ok(())
            }
        }
        other => stalls(format!("is stored live as {other}")),
    }
}

/// Checks the counts of finished jobs in the queues' rows.
fn queues(rows: &Rows) -> StepOutcome {
    let mut counts: BTreeMap<_, [u64; 3]> = BTreeMap::new();
    for row in rows.finished.values() {
        let name = (row.record.namespace.clone(), row.record.queue.clone());
        let Some(end) = &row.record.finished else {
            continue;
        };
        let place = match end.outcome {
            Outcome::Succeeded => 0,
            Outcome::Failed => 1,
            Outcome::Cancelled => 2,
        };
        counts.entry(name).or_default()[place] += 1;
    }
    for (name, record) in &rows.queues {
        let counted = counts.remove(name).unwrap_or_default();
        let stored = [record.succeeded, record.failed, record.cancelled];
        if stored != counted {
            let what = format!(
                "queue {} says it keeps {stored:?} jobs, a recount {counted:?}",
                name.1
            );
            return Err(broken("A1", what));
        }
    }
    match counts.first_key_value() {
        Some((name, counted)) => Err(broken(
            "A1",
            format!("queue {} has no row but keeps {counted:?} jobs", name.1),
        )),
        None => Ok(()),
    }
}

fn tags(rows: &Rows) -> StepOutcome {
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    let finished = rows.finished.values().map(|row| &row.record);
    for record in rows.live.values().chain(finished) {
        for tag in &record.tags {
            *counts
                .entry((record.namespace.clone(), tag.clone()))
                .or_default() += 1;
        }
    }
    if counts == rows.tag_counts {
        return Ok(());
    }
    let what = format!(
        "tags are counted as {:?}, a recount says {counts:?}",
        rows.tag_counts
    );
    Err(broken("A1", what))
}

fn groups(rows: &Rows) -> StepOutcome {
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for row in rows.finished.values() {
        let has_failed = row.record.state == JobState::Failed;
        if let Some(failure) = row.record.failure.as_ref().filter(|_| has_failed) {
            *counts
                .entry((row.record.namespace.clone(), failure.group.clone()))
                .or_default() += 1;
        }
    }
    if counts == rows.group_counts {
        return Ok(());
    }
    let what = format!(
        "failures are counted as {:?}, a recount says {counts:?}",
        rows.group_counts
    );
    Err(broken("A1", what))
}

/// Checks that positions in the order of endings are unique.
fn orders(rows: &Rows) -> StepOutcome {
    let mut seen = BTreeMap::new();
    for (key, row) in &rows.finished {
        let Some(end) = &row.record.finished else {
            continue;
        };
        if let Some(other) = seen.insert(end.order, key) {
            let what = format!(
                "jobs {other} and {key} have both ended as number {}",
                end.order
            );
            return Err(broken("A1", what));
        }
        if end.order >= rows.meta.next_order {
            return Err(broken(
                "A1",
                format!("job {key} ended beyond the counter of endings"),
            ));
        }
    }
    Ok(())
}

//! Checks of inputs, and of when jobs may start (`rel G1`, `G2`, `L1`, `R1`).

use ganger_types::{FailurePolicy, InputRow, InputState, JobKey, Outcome, ShardId};

use super::{MemberState, Oracle};
use crate::cluster::store::Store;
use crate::oracle::CheckResult;
use crate::world::broken;

impl Oracle {
    pub(super) fn input(&mut self, shard: &ShardId, row: &InputRow) -> CheckResult {
        let Some(job) = self.by_key.get(&(shard.clone(), row.job)).cloned() else {
            return Ok(());
        };
        let what = |why: String| format!("slot {} of job {shard}/{}: {why}", row.slot, job.id);
        let (value, dependency_is) = match &row.state {
            InputState::Received {
                value, dependency, ..
            } => (Some(value), Some(dependency.clone())),
            InputState::Delivered { dependency, .. } => (
                None,
                self.by_key.get(&(shard.clone(), *dependency)).cloned(),
            ),
            InputState::Ignored { .. } => (None, None),
            InputState::Value(_) | InputState::Missing { .. } | InputState::Remote { .. } => {
                return Ok(());
            }
        };
        let Some((dependency, policy)) = self.members[&job].edges.get(&row.slot).cloned() else {
            return Err(broken("G2", what("there is no such edge".into())));
        };
        let unsure = self.members[&job].unsure.get(&row.slot);
        let unsure = unsure.and_then(|renamed_count| self.members.get(renamed_count));
        let by = self.members.get(&dependency);
        let either = || by.into_iter().chain(unsure);
        if matches!(row.state, InputState::Ignored { .. }) {
            // A failed job may have been retried since, and have succeeded.
            let is_unsuccessful = by.is_none()
                || either()
                    .any(|by| by.has_failed || by.place != MemberState::Ended(Outcome::Succeeded));
            if policy != FailurePolicy::Ignore || !is_unsuccessful {
                return Err(broken(
                    "G4",
                    what(format!("{dependency:?} is ignored under {policy:?}")),
                ));
            }
        } else {
            if dependency_is.as_ref() != Some(&dependency) {
                return Err(broken(
                    "G2",
                    what(format!(
                        "it has the result of {dependency_is:?} and not of {dependency:?}"
                    )),
                ));
            }
            let results = || either().flat_map(|by| &by.results);
            if results().next().is_none() {
                return Err(broken(
                    "G1",
                    what(format!("{dependency:?} has not succeeded")),
                ));
            }
            if let Some(value) = value {
                if !results().any(|result| result == value) {
                    let results: Vec<_> = results().collect();
                    return Err(broken(
                        "G2",
                        what(format!(
                            "{value:?} was delivered, and the results are {results:?}"
                        )),
                    ));
                }
                self.goals.reach("result-over-a-border");
            }
        }
        let is_new = self
            .members
            .get_mut(&job)
            .expect("a member")
            .filled
            .insert(row.slot);
        if !is_new {
            return Err(broken("X2", what("it is filled twice".into())));
        }
        Ok(())
    }

    pub(super) fn leased(
        &mut self,
        shard: &ShardId,
        key: JobKey,
        attempt: u32,
        counted: u32,
        store: &Store,
    ) -> CheckResult {
        let Some(job) = self.by_key.get(&(shard.clone(), key)).cloned() else {
            return Ok(());
        };
        let member = self.members.get_mut(&job).expect("a member");
        let what = |why: String| format!("attempt {attempt} of job {shard}/{}: {why}", job.id);
        if attempt == member.attempts {
            // A renewal.
            return Ok(());
        }
        if member.is_leased {
            return Err(broken("L1", what("the one before still runs".into())));
        }
        if attempt != member.attempts + 1 {
            return Err(broken(
                "L8",
                what(format!("it follows attempt {}", member.attempts)),
            ));
        }
        if counted > member.attempts_max {
            return Err(broken(
                "R1",
                what(format!("{} were allowed", member.attempts_max)),
            ));
        }
        member.attempts = attempt;
        member.is_leased = true;
        // The commit may have removed the job, which then has no inputs.
        if store.rows.live.contains_key(&key) {
            let inputs = store
                .rows
                .delivery(key)
                .map_err(|why| broken("G1", what(why)))?;
            if member.seen.get_or_insert_with(|| inputs.clone()) != &inputs {
                return Err(broken(
                    "G2",
                    what(format!(
                        "it sees {inputs:?} and an earlier one saw {:?}",
                        member.seen
                    )),
                ));
            }
        }
        for (slot, (dependency, policy)) in &member.edges {
            if !member.filled.contains(slot) && member.attempts_max != u32::MAX {
                let state = store.rows.inputs.get(&(key, *slot));
                let is_there = matches!(
                    state,
                    Some(
                        InputState::Delivered { .. }
                            | InputState::Received { .. }
                            | InputState::Ignored { .. }
                    )
                );
                if !is_there {
                    return Err(broken(
                        "G1",
                        what(format!(
                            "{dependency:?} under {policy:?} is missing: {state:?}"
                        )),
                    ));
                }
            }
        }
        Ok(())
    }
}

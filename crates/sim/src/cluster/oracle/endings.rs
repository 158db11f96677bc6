//! Checks of endings: by themselves, because of a failed dependency, or because no job needs them (`rel G4`, `G5`,
//! `K2`).

use ganger_types::{
    Bytes, Change, FailurePolicy, JobKey, JobRecord, JobRef, Outcome, ShardId, What,
};

use super::{MemberState, Oracle};
use crate::cluster::store::Store;
use crate::oracle::CheckResult;
use crate::world::broken;

impl Oracle {
    pub(super) fn finished(
        &mut self,
        shard: &ShardId,
        record: &JobRecord,
        result: Option<&Bytes>,
        rest: &[Change],
        store: &Store,
    ) -> CheckResult {
        let job = JobRef {
            shard: shard.clone(),
            id: record.id.clone(),
        };
        let Some(end) = &record.finished else {
            return Ok(());
        };
        let what = |why: &str| format!("job {shard}/{} ended as {:?}: {why}", job.id, end.outcome);
        let member = &self.members[&job];
        if matches!(member.place, MemberState::Ended(_)) {
            return Err(broken("A2", what("it has ended before")));
        }
        let group = record
            .failure
            .as_ref()
            .map(|failure| failure.group.to_string());
        let group = group.unwrap_or_default();
        let is_irregular = self.graphs[member.graph].is_irregular;
        match end.outcome {
            Outcome::Succeeded if !member.is_leased && !member.just_ran => {
                return Err(broken("L3", what("nobody ran it")));
            }
            Outcome::Failed if group == "dependency" => {
                let has_reason = member.edges.iter().any(|(slot, (dependency, policy))| {
                    let by = self.members.get(dependency);
                    let place = by.map_or(MemberState::Gone, |by| by.place);
                    match (place, policy) {
                        (_, FailurePolicy::Ignore) => false,
                        _ if member.is_unsure_of(*slot) => true,
                        (MemberState::Gone | MemberState::Unborn, _) => true,
                        (MemberState::Ended(outcome), FailurePolicy::Fail) => {
                            outcome != Outcome::Succeeded
                        }
                        // Deleted in this commit, so it cannot be retried.
                        (MemberState::Ended(outcome), FailurePolicy::Wait) => {
                            outcome != Outcome::Succeeded && by.is_some_and(|by| by.is_by_hand)
                        }
                        _ => false,
                    }
                });
                if !has_reason && !is_irregular {
                    return Err(broken("G4", what("no dependency of it failed")));
                }
                self.failed_by_dependency(&job);
            }
            Outcome::Cancelled if was_cancelled(record) => {
                let unneeded = self.is_unneeded(&job);
                let still_waits = store
                    .dependents
                    .range((record.key, ShardId::default(), JobKey(0), 0)..);
                let mut still_waits = still_waits.take_while(|((key, ..), _)| *key == record.key);
                let told_after = rest.iter().any(|change| matches!(change, Change::RemoveDependent(key, ..) if *key == record.key));
                if !is_irregular && !unneeded {
                    return Err(broken("G5", what("members of its graph need it")));
                }
                if told_after || still_waits.next().is_some() {
                    return Err(broken("G5", what("a job of another shard waits for it")));
                }
                if member.users.iter().any(|user| user.shard != *shard) {
                    self.goals.reach("called-off-from-another-shard");
                }
            }
            _ => {}
        }
        let member = self.members.get_mut(&job).expect("a member");
        if end.outcome == Outcome::Succeeded {
            let result = result
                .cloned()
                .unwrap_or_else(|| Bytes::from_static(b"null"));
            member.results.push(result);
        } else {
            member.has_failed = true;
        }
        member.place = MemberState::Ended(end.outcome);
        member.is_leased = false;
        member.group = group;
        Ok(())
    }

    fn failed_by_dependency(&mut self, job: &JobRef) {
        let member = &self.members[job];
        let places = member.edges.values().map(|(dependency, _)| {
            let by = self.members.get(dependency);
            (dependency.shard != job.shard, by.map(|by| by.place))
        });
        let places: Vec<_> = places.collect();
        let fails = places.iter().any(|(elsewhere, place)| {
            *elsewhere && *place == Some(MemberState::Ended(Outcome::Failed))
        });
        let succeeds = places
            .iter()
            .any(|(_, place)| *place == Some(MemberState::Ended(Outcome::Succeeded)));
        if fails && succeeds {
            self.goals
                .reach("failure-over-a-border-while-a-sibling-succeeds");
        }
    }

    /// Whether all members that waited for a job have ended, one of them without success.
    pub(crate) fn is_unneeded(&self, job: &JobRef) -> bool {
        let users = self.members[job]
            .users
            .iter()
            .map(|user| self.members[user].place);
        let places: Vec<MemberState> = users.collect();
        let has_ended =
            |place: &MemberState| matches!(place, MemberState::Ended(_) | MemberState::Gone);
        places.iter().all(has_ended)
            && places
                .iter()
                .any(|place| *place != MemberState::Ended(Outcome::Succeeded))
    }

    pub(super) fn removed(&mut self, shard: &ShardId, key: JobKey) -> CheckResult {
        let Some(job) = self.by_key.get(&(shard.clone(), key)).cloned() else {
            return Ok(());
        };
        if !self.members[&job].is_by_hand {
            return Err(broken(
                "K4",
                format!("job {shard}/{} is removed and nobody deleted it", job.id),
            ));
        }
        let succeeded = !self.members[&job].results.is_empty()
            && self.members[&job].place == MemberState::Ended(Outcome::Succeeded);
        for user in &self.members[&job].users {
            let member = &self.members[user];
            let mut waits = member.edges.iter().filter(|(slot, (dependency, _))| {
                dependency == &job && !member.filled.contains(slot)
            });
            // A retried job asks again, and may ask too late.
            let is_first_life = member.attempts_max != u32::MAX;
            if succeeded
                && is_first_life
                && member.place == MemberState::Live
                && waits.next().is_some()
            {
                let what = format!(
                    "job {shard}/{} is removed while {user:?} needs its result",
                    job.id
                );
                return Err(broken("K2", what));
            }
        }
        let member = self.members.get_mut(&job).expect("a member");
        member.place = MemberState::Gone;
        member.is_leased = false;
        Ok(())
    }
}

/// Whether the last history entry shows that the job was cancelled because no job needs it.
fn was_cancelled(record: &JobRecord) -> bool {
    let last = record.history.last().map(|entry| &entry.what);
    matches!(last, Some(What::Cancelled { reason }) if reason.contains("needs it no more"))
}

//! Commits of the shards: decisions, and the rows of members that they write and remove.

use std::collections::BTreeMap;

use ganger_types::{Change, Graph, JobRecord, JobRef, Namespace, ShardId};

use super::{MemberState, Oracle};
use crate::cluster::store::Store;
use crate::oracle::CheckResult;
use crate::world::broken;

impl Oracle {
    /// Checks a commit of a shard.
    pub(crate) fn committed(
        &mut self,
        shard: &ShardId,
        changes: &[Change],
        stores: &BTreeMap<ShardId, &Store>,
    ) -> CheckResult {
        if self.has_restored_store {
            return Ok(());
        }
        for change in changes {
            if let Change::PutPart(record) = change
                && record.is_committed
                && record.decider == *shard
            {
                self.decided(&record.graph, stores)?;
            }
        }
        for (place, change) in changes.iter().enumerate() {
            self.changed(shard, change, &changes[place + 1..], stores)?;
        }
        Ok(())
    }

    fn decided(&mut self, name: &Graph, stores: &BTreeMap<ShardId, &Store>) -> CheckResult {
        let Some(number) = self.find(name) else {
            return Ok(());
        };
        if std::mem::replace(&mut self.graphs[number].is_decided, true) {
            return Ok(());
        }
        self.add_members(number)?;
        let graph = &self.graphs[number];
        let part = (Namespace::default(), name.clone());
        for shard in &graph.shards {
            if !stores[shard].parts.contains_key(&part) {
                let what =
                    format!("graph {name} was decided for without the part of shard {shard}");
                return Err(broken("G8", what));
            }
        }
        if graph.shards.len() > 1 {
            self.goals.reach("decided-over-several-shards");
        }
        Ok(())
    }

    fn changed(
        &mut self,
        shard: &ShardId,
        change: &Change,
        rest: &[Change],
        stores: &BTreeMap<ShardId, &Store>,
    ) -> CheckResult {
        match change {
            Change::PutJob(record) => {
                self.put(shard, record)?;
                if let Some(member) = self.member(shard, record.key) {
                    member.just_ran = false;
                }
                Ok(())
            }
            Change::FinishJob { record, result } => {
                self.put(shard, record)?;
                self.finished(shard, record, result.as_ref(), rest, stores[shard])
            }
            Change::PutInput(row) => self.input(shard, row),
            Change::PutLease(lease) => self.leased(
                shard,
                lease.key,
                lease.attempt,
                lease.attempts_counted,
                stores[shard],
            ),
            Change::RemoveLease(key) => {
                if let Some(member) = self.member(shard, *key) {
                    member.just_ran = member.is_leased;
                    member.is_leased = false;
                }
                Ok(())
            }
            Change::RetryJob(key) => {
                if let Some(member) = self.member(shard, *key) {
                    member.place = MemberState::Live;
                    member.filled.clear();
                    member.seen = None;
                    member.attempts_max = u32::MAX;
                }
                Ok(())
            }
            Change::RemoveJob(key) => self.removed(shard, *key),
            Change::RemovePart(_, name) => self.dropped(shard, name),
            _ => Ok(()),
        }
    }

    fn put(&mut self, shard: &ShardId, record: &JobRecord) -> CheckResult {
        let job = JobRef {
            shard: shard.clone(),
            id: record.id.clone(),
        };
        let Some(member) = self.members.get_mut(&job) else {
            return Err(broken(
                "A1",
                format!("nobody submitted job {shard}/{}", job.id),
            ));
        };
        let graph = &self.graphs[member.graph];
        let known = self.by_key.get(&(shard.clone(), record.key));
        if member.place != MemberState::Unborn && known != Some(&job) {
            return Err(broken(
                "P1",
                format!("there are two jobs {shard}/{}", job.id),
            ));
        }
        if member.place == MemberState::Unborn {
            member.place = MemberState::Live;
            if !graph.is_decided {
                let what = format!(
                    "job {shard}/{} exists and graph {} is not decided",
                    job.id, graph.name
                );
                return Err(broken("G8", what));
            }
            if !graph.is_local && record.graph.as_ref() != Some(&graph.name) {
                let what = format!("job {shard}/{} belongs to graph {:?}", job.id, record.graph);
                return Err(broken("G8", what));
            }
            self.by_key.insert((shard.clone(), record.key), job);
        } else if member.place == MemberState::Gone {
            return Err(broken(
                "K5",
                format!("job {shard}/{} was deleted and is back", job.id),
            ));
        }
        Ok(())
    }

    fn dropped(&mut self, shard: &ShardId, name: &Graph) -> CheckResult {
        match self.find(name) {
            Some(graph) if self.graphs[graph].is_decided => {
                // A part is removed a week after all its jobs have ended.
                let over = self.graphs[graph].ids.iter().all(|id| {
                    id.shard != *shard
                        || !matches!(
                            self.place_in(graph, id),
                            MemberState::Unborn | MemberState::Live
                        )
                });
                if over {
                    return Ok(());
                }
                let what =
                    format!("graph {name} was decided for, and shard {shard} drops its part");
                Err(broken("G8", what))
            }
            _ => Ok(()),
        }
    }
}

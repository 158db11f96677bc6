//! Cancels jobs: single ones, or a whole graph. Also ends attempts by hand.

use ganger_types::command::{Cancel, Selection, TimeOut};
use ganger_types::job::AttemptEnd;
use ganger_types::limits::{BULK_JOBS_MAX, MESSAGE_BYTES_MAX};
use ganger_types::{
    Answer, Change, Graph, Group, HistoryEntry, JobId, JobKey, JobState, Message, Namespace, Now,
    Rejection, Reply, What,
};

use super::enqueue::at_most;
use super::fail::cut;
use crate::Effects;
use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::transition::Move;

impl Engine {
    pub(crate) fn cancel(
        &mut self,
        now: Now,
        cmd: &Cancel,
        known: &FinishedIndex,
        out: &mut Effects,
    ) -> Answer {
        let (keys, skipped) = match &cmd.jobs {
            Selection::Jobs(ids) => {
                check_bulk(ids.len())?;
                self.refuse_sole_item(&cmd.namespace, ids, known)?;
                self.refuse_sole_prepared(&cmd.namespace, ids, known)?;
                self.sort_out(&cmd.namespace, ids)
            }
            Selection::Graph(graph) => {
                let name = (cmd.namespace.clone(), graph.clone());
                let mut reason = cmd.reason.clone();
                cut(&mut reason, MESSAGE_BYTES_MAX);
                self.cancel_elsewhere(now, &name, &reason, out);
                let count = self.cancel_graph(now, &name, &reason, out);
                let skipped = Vec::new();
                return Ok(Reply::Changed { count, skipped });
            }
        };

        let mut reason = cmd.reason.clone();
        cut(&mut reason, MESSAGE_BYTES_MAX);
        let mut count = 0;
        for key in keys {
            // An earlier one of the list may have taken this one with it.
            if self.is_live(key) {
                self.cancel_job(now, key, &reason, out);
            }
            count += 1;
        }
        let (more, skipped) = self.cancel_of_qless(now, &cmd.namespace, skipped, known, out);
        count += more;
        Ok(Reply::Changed { count, skipped })
    }

    /// Cancels those that are jobs of qless, by its own rules: one that is complete stays, and so does one for which a
    /// job waits that is not named too. How many went, and the ids of the others.
    pub(super) fn cancel_of_qless(
        &mut self,
        now: Now,
        namespace: &Namespace,
        ids: Vec<JobId>,
        known: &FinishedIndex,
        out: &mut Effects,
    ) -> (u64, Vec<JobId>) {
        let is_of_qless =
            |id: &JobId| known.find(namespace, id).is_none() && self.qless.has_job(namespace, id);
        let named = ids.iter().filter(|id| is_of_qless(id)).cloned().collect();
        let gone = self.qless.cancel(now, namespace, named, out);
        let left = ids.into_iter().filter(|id| !gone.contains(id));
        (
            u64::try_from(gone.len()).unwrap_or(u64::MAX),
            left.collect(),
        )
    }

    /// Calls the members of a graph off that are here. A part that is not decided falls once it is decided for
    /// (`rel G9`).
    pub(crate) fn cancel_graph(
        &mut self,
        now: Now,
        name: &(Namespace, Graph),
        reason: &str,
        out: &mut Effects,
    ) -> u64 {
        if let Some(part) = self.peers.parts.get_mut(name) {
            if !part.is_committed {
                part.cancelled = Some(reason.to_owned());
                out.changes.push(Change::PutPart(Box::new(part.clone())));
                return u64::from(part.count);
            }
            self.peers.falling = Some(name.clone());
        }
        let members = self
            .find_space(&name.0)
            .and_then(|space| self.spaces[space.at()].graphs.get(&name.1));
        let keys: Vec<JobKey> = members.into_iter().flatten().copied().collect();
        for key in &keys {
            if self.is_live(*key) {
                self.cancel_job(now, *key, reason, out);
            }
        }
        u64::try_from(keys.len()).unwrap_or(u64::MAX)
    }

    /// Tells the other shards that hold a part of a graph to cancel it.
    pub(crate) fn cancel_elsewhere(
        &mut self,
        now: Now,
        name: &(Namespace, Graph),
        reason: &str,
        out: &mut Effects,
    ) {
        let Some(part) = self.peers.parts.get(name) else {
            return;
        };
        for shard in part.shards.clone() {
            if shard == self.shard {
                continue;
            }
            let message = Message::CancelGraph {
                namespace: name.0.clone(),
                graph: name.1.clone(),
                reason: reason.to_owned(),
            };
            self.post(now, &shard, message, out);
        }
    }

    /// The refusal of a command about this one job alone, if that is part of a submission that is not decided here.
    fn refuse_sole_prepared(
        &self,
        namespace: &Namespace,
        ids: &[JobId],
        known: &FinishedIndex,
    ) -> Result<(), Rejection> {
        let [id] = ids else {
            return Ok(());
        };
        let is_there =
            self.find_job(namespace, id).is_some() || known.find(namespace, id).is_some();
        if !is_there && self.undecided_job(namespace, id).is_some() {
            let job = id.clone();
            return Err(Rejection::JobPrepared { job });
        }
        Ok(())
    }

    /// The numbers of those that are live, and the ids of the others.
    pub(super) fn sort_out(
        &self,
        namespace: &ganger_types::Namespace,
        ids: &[JobId],
    ) -> (Vec<JobKey>, Vec<JobId>) {
        let mut keys = Vec::new();
        let mut skipped = Vec::new();
        for id in ids {
            match self.find_job(namespace, id) {
                Some(key) => keys.push(key),
                None => skipped.push(id.clone()),
            }
        }
        (keys, skipped)
    }

    /// Takes running jobs from their workers without waiting for their leases to end. The attempts count.
    pub(crate) fn time_out(&mut self, now: Now, cmd: &TimeOut, out: &mut Effects) -> Answer {
        check_bulk(cmd.jobs.len())?;
        let mut keys = std::collections::BTreeSet::new();
        for id in &cmd.jobs {
            let key = self
                .find_job(&cmd.namespace, id)
                .ok_or_else(|| self.not_ours(&cmd.namespace, id))?;
            let state = self.job(key).state;
            if state != JobState::Running {
                let needed = "only a running job can be timed out";
                return Err(Rejection::WrongState {
                    job: id.clone(),
                    state,
                    needed,
                });
            }
            keys.insert(key);
        }

        let count = u64::try_from(keys.len()).unwrap_or(u64::MAX);
        for key in keys {
            self.end_attempt(now, key, AttemptEnd::TimedOut);
            self.append_history(
                key,
                HistoryEntry {
                    at: now.wall,
                    what: What::TimedOutByHand,
                },
            );
            if self.may_retry(now, key, std::time::Duration::ZERO) {
                let to = Move::Ready {
                    at: now.elapsed,
                    is_ahead: true,
                };
                self.transition(now, key, to, "timed out by hand", out);
            } else {
                let group = Group::from_static("timed-out-by-hand");
                let message = "timed out by hand, and no retries were left".to_owned();
                self.fail_for_good(now, key, group, message, out);
            }
        }
        Ok(Reply::Changed {
            count,
            skipped: Vec::new(),
        })
    }
}

/// Refuses a command that names too many jobs.
pub(super) fn check_bulk(jobs: usize) -> Result<(), Rejection> {
    let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    at_most(
        "the number of jobs named",
        count(jobs),
        count(BULK_JOBS_MAX),
    )
}

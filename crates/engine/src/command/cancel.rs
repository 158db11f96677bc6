//! Cancels single jobs or a whole graph, and ends attempts by hand.

use crate::check::{at_most, cut};
use ganger_types::command::{Cancel, Selection, TimeOut};
use ganger_types::history::AttemptEnd;
use ganger_types::limits::{BULK_JOBS_MAX, MESSAGE_BYTES_MAX};
use ganger_types::{
    Answer, Change, Graph, Group, HistoryEntry, JobId, JobKey, JobState, Message, Namespace,
    Rejection, Reply, What,
};

use crate::engine::Engine;
use crate::finished_index::FinishedIndex;
use crate::transition::Move;
use crate::turn::Turn;

impl Engine {
    pub(crate) fn cancel(&mut self, cmd: &Cancel, turn: &mut Turn<'_>) -> Answer {
        let (keys, skipped) = match &cmd.jobs {
            Selection::Jobs(ids) => {
                check_bulk(ids.len())?;
                self.refuse_external_item(&cmd.namespace, ids, turn.known)?;
                self.refuse_sole_prepared(&cmd.namespace, ids, turn.known)?;
                self.split_live(&cmd.namespace, ids)
            }
            Selection::Graph(graph) => {
                let name = (cmd.namespace.clone(), graph.clone());
                let mut reason = cmd.reason.clone();
                cut(&mut reason, MESSAGE_BYTES_MAX);
                self.cancel_elsewhere(&name, &reason, turn);
                let count = self.cancel_graph(&name, &reason, turn);
                let skipped = Vec::new();
                return Ok(Reply::Changed { count, skipped });
            }
        };

        let mut reason = cmd.reason.clone();
        cut(&mut reason, MESSAGE_BYTES_MAX);
        let mut count = 0;
        for key in keys {
            // Cancelling an earlier job of the list may have cancelled this one.
            if self.is_live(key) {
                self.cancel_job(key, &reason, turn);
            }
            count += 1;
        }
        let (more, skipped) = self.cancel_external(&cmd.namespace, skipped, turn);
        count += more;
        Ok(Reply::Changed { count, skipped })
    }

    /// Cancels the members of a graph on this shard. An undecided part is cancelled when its submission is committed
    /// (`rel G9`).
    pub(crate) fn cancel_graph(
        &mut self,
        name: &(Namespace, Graph),
        reason: &str,
        turn: &mut Turn<'_>,
    ) -> u64 {
        if let Some(part) = self.peers.parts.get_mut(name) {
            if !part.is_committed {
                part.cancelled = Some(reason.to_owned());
                turn.out
                    .changes
                    .push(Change::PutPart(Box::new(part.clone())));
                return u64::from(part.count);
            }
            self.peers.graph_being_cancelled = Some(name.clone());
        }
        let members = self
            .find_space(&name.0)
            .and_then(|space| self.spaces[space].graphs.get(&name.1));
        let keys: Vec<JobKey> = members.into_iter().flatten().copied().collect();
        for key in &keys {
            if self.is_live(*key) {
                self.cancel_job(*key, reason, turn);
            }
        }
        u64::try_from(keys.len()).unwrap_or(u64::MAX)
    }

    /// Sends the other shards that hold a part of a graph a message to cancel it.
    pub(crate) fn cancel_elsewhere(
        &mut self,
        name: &(Namespace, Graph),
        reason: &str,
        turn: &mut Turn<'_>,
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
            self.post(&shard, message, turn);
        }
    }

    /// Refuses a command that names only this job if the job is part of an undecided submission.
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

    /// The numbers of the jobs that are live, and the ids of the others.
    pub(super) fn split_live(
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

    /// Ends the attempts of running jobs without waiting for their leases to expire. The attempts count.
    pub(crate) fn time_out(&mut self, cmd: &TimeOut, turn: &mut Turn<'_>) -> Answer {
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
            self.end_attempt(turn.now, key, AttemptEnd::TimedOut);
            self.append_history(
                key,
                HistoryEntry {
                    at: turn.now.wall,
                    what: What::TimedOutByHand,
                },
            );
            if self.may_retry(turn.now, key, std::time::Duration::ZERO) {
                let to = Move::Ready {
                    at: turn.now.elapsed,
                    is_ahead: true,
                };
                self.transition(key, to, "timed out by hand", turn);
            } else {
                let group = Group::from_static("timed-out-by-hand");
                let message = "timed out by hand, and no retries were left".to_owned();
                self.fail_for_good(key, group, message, turn);
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

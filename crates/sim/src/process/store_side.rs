//! The store's side of the process: its tasks, their reports, and the rest of both after a crash.

use ganger_shard::core::{StoreReport, StoreTask};
use ganger_store::CommitError;
use ganger_types::Now;

use super::{CallOutcome, MomentRecord, ShardProcess};
use crate::faulty_store::CommitOutcome;
use crate::oracle::Restart;
use crate::rng::Rng;
use crate::sim_ticket::TicketEvent;

/// Most steps of a process that has died until the oracle knows what its store has.
const RELEASE_STEPS_MAX: u32 = 64;

impl ShardProcess {
    /// Passes the store's next report to the core.
    pub(crate) fn report(&mut self, now: Now) -> CallOutcome {
        let Some(report) = self.reports.pop_front() else {
            return CallOutcome::default();
        };
        let is_loaded = matches!(report, StoreReport::Loaded(Ok(_)));
        let is_unknown = matches!(
            &report,
            StoreReport::Failed {
                error: CommitError::Unknown(_),
                ..
            }
        );
        let has_failed = matches!(report, StoreReport::Failed { .. });
        if matches!(report, StoreReport::Committed { .. }) {
            self.recoveries.forget();
        }
        self.core.report(report, self.planted.time(now));
        if has_failed {
            // Commands since the last commit are lost with the engine.
            let lost = std::mem::take(&mut self.growing);
            self.share_with_lost(&lost);
        }
        if has_failed && !is_unknown {
            self.forget_lost_turns();
        }
        let mut came = self.collect();
        if is_loaded && self.core.engine().is_some() {
            came.restarted = Some(Restart {
                began: self.load_began,
                served: self.planted.time(now),
            });
            self.forget_lost_turns();
        }
        if is_loaded {
            self.note_moment(now, false);
        }
        came
    }

    /// Forgets the turns that are not durable and never will be.
    fn forget_lost_turns(&mut self) {
        let durable = self.core.durable_sequence();
        let kept = self
            .sent
            .partition_point(|sent| sent.commit.sequence <= durable);
        for lost in self.sent.split_off(kept) {
            self.share_with_lost(&lost.moments);
        }
    }

    /// Lease requests that were tried in vain in a lost turn wait on, and jobs are shared out to them too.
    fn share_with_lost(&mut self, lost: &[MomentRecord]) {
        for (event, _) in lost.iter().flat_map(|moment| &moment.turned_to) {
            if let TicketEvent::Try(op) = event
                && self.waiting.contains_key(op)
            {
                self.shared_by.insert(*op);
            }
        }
    }

    /// Runs a search for finished jobs, if there is one, and reports it.
    pub(crate) fn find(&mut self, now: Now) -> CallOutcome {
        let report = self
            .finds
            .pop_front()
            .and_then(|task| self.executor.execute(task).report());
        if let Some(report) = report {
            if let StoreReport::Found { jobs: Ok(jobs), .. } = &report
                && self.core.engine().is_some()
            {
                self.found.clone_from(jobs);
                self.note_retirement(now);
            }
            self.core.report(report, self.planted.time(now));
        }
        self.collect()
    }

    pub(crate) fn has_finds(&self) -> bool {
        !self.finds.is_empty()
    }

    /// The next task of the store, if there is one.
    pub(crate) fn next_store_task(&self) -> Option<&StoreTask> {
        self.store_tasks.front()
    }

    /// The random numbers of a command in the next commit of the store. Each command decides once, because a waiting
    /// lease request is tried repeatedly and must not get the same outcome forever.
    pub(crate) fn rng_of_next(&mut self) -> Option<Rng> {
        let Some(StoreTask::Commit(commit)) = self.store_tasks.front() else {
            return None;
        };
        let sent = self
            .sent
            .iter()
            .find(|sent| sent.commit.sequence == commit.sequence)?;
        let marks = sent.moments.iter().flat_map(|moment| &moment.turned_to);
        let (op, rng) = marks.into_iter().find_map(|(mark, _)| match mark {
            TicketEvent::Call(op) | TicketEvent::Try(op) if self.decisions.is_open(*op) => {
                self.calls.get(op).map(|call| (*op, call.rng.clone()))
            }
            _ => None,
        })?;
        self.decisions.close(op);
        Some(rng)
    }

    pub(crate) fn recovers_without_pause(&self) -> bool {
        self.recoveries.are_without_pause()
    }

    fn note_recovery(&mut self, began: Now) {
        self.load_began = began;
        self.recoveries.note(began.elapsed);
    }

    /// Runs the store's next task; its report waits for the core.
    pub(crate) fn work(&mut self, end: CommitOutcome) {
        let Some(task) = self.store_tasks.pop_front() else {
            return;
        };
        match &task {
            StoreTask::Commit(_) => self.executor.store_mut().next_outcome = end,
            StoreTask::Load { start } => self.note_recovery(start.now),
            StoreTask::Reopen { now, .. } => self.note_recovery(*now),
            _ => {}
        }
        let report = self.executor.execute(task).report();
        self.executor.store_mut().next_outcome = CommitOutcome::Success;
        let is_known = |report: &StoreReport<_>| matches!(report, StoreReport::Committed { sequence, .. } if self.claimed.contains(sequence));
        self.reports
            .extend(report.filter(|report| !is_known(report)));
    }

    /// A planted bug: commits count as durable before the store has written them. Returns their number.
    pub(crate) fn claim(&mut self) -> usize {
        let mut count = 0;
        for task in &self.store_tasks {
            if let StoreTask::Commit(commit) = task
                && self.claimed.insert(commit.sequence)
            {
                let sequence = commit.sequence;
                self.reports.push_back(StoreReport::Committed {
                    sequence,
                    is_reserve_open: false,
                });
                count += 1;
            }
        }
        count
    }

    pub(crate) fn has_reports(&self) -> bool {
        !self.reports.is_empty()
    }

    pub(crate) fn is_turn_in_flight(&self) -> bool {
        !self.sent.is_empty()
    }

    /// After a crash, releases the turns that the store has, for the oracle alone.
    pub(crate) fn release_after_crash(&mut self, mut now: Now) -> CallOutcome {
        let mut all = CallOutcome::default();
        for _ in 0..RELEASE_STEPS_MAX {
            while self.has_reports() {
                all.events.extend(self.report(now).events);
            }
            if self.store.sequence() <= self.core.durable_sequence() {
                break;
            }
            let reopen = |task: &StoreTask| matches!(task, StoreTask::Reopen { .. });
            if let Some(place) = self.store_tasks.iter().position(reopen) {
                self.store_tasks.rotate_left(place);
                self.work(CommitOutcome::Success);
            } else if let Some(pause) = self.core.sleep_for(now) {
                // The process may have died during a pause of its recovery; it has pauses for other reasons too.
                now.elapsed = now.elapsed.after(pause);
                now.wall = now.wall.after(pause);
                self.core.run(self.planted.time(now));
                all.events.extend(self.collect().events);
            } else {
                break;
            }
        }
        self.forget_lost_turns();
        all
    }

    /// The last sequences of the store and of the oracle.
    pub(crate) fn sequences(&self) -> (u64, u64) {
        (self.store.sequence(), self.checked)
    }
}

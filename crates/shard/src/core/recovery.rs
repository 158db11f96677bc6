//! Recovery after a commit that failed or may have failed. Nothing is acknowledged that is not durable: the engine is
//! dropped and loaded again, and service continues if the store allows it. Repeated failures are followed by a
//! growing pause.

use ganger_engine::Start;
use ganger_store::{CommitError, Line, Opened, Reader, StoreError};
use ganger_types::{Elapsed, Now};

use super::recovery_backoff::{RecoveryBackoff, RecoveryKind};
use super::request::{Output, Request, Ticket};
use super::waiters::Waiter;
use super::{ActiveEngine, Core, CoreState, ReloadedEngine, StoreReport, StoreTask};
use crate::{CallError, StopCause};

/// Number of live jobs up to which a shard is taken over within the ownership lease and two seconds.
const JOBS_MOVED_FAST: u64 = 300_000;

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Handles a report of the store.
    pub fn report(&mut self, report: StoreReport<R>, now: Now) {
        if matches!(self.stage, CoreState::Stopped(_)) {
            return;
        }
        match report {
            StoreReport::Committed {
                sequence,
                is_reserve_open,
            } => self.committed(sequence, is_reserve_open, now),
            StoreReport::Failed { sequence, error } => self.failed(sequence, error, now),
            StoreReport::Loaded(Ok(fresh)) => self.load_succeeded(*fresh, now),
            StoreReport::Loaded(Err(error)) => self.load_failed(&error, now),
            StoreReport::Found { round, jobs } => self.found(round, jobs, now),
            StoreReport::Rows(rows) => self.rows_read(rows),
            StoreReport::Upkeep {
                free_bytes,
                reserve,
                error,
            } => self.upkeep_finished(free_bytes, reserve, error.as_ref(), now),
        }
    }

    /// Orders a load of a new engine, in the same epoch.
    ///
    /// Lease tokens stay unique: no lost turn was ever visible outside, and the new engine draws new random bits.
    pub(super) fn order_load(&mut self, now: Now) {
        let seed = (self.seeds)();
        let start = Start {
            shard: self.settings.shard.clone(),
            epoch: self.epoch,
            seed,
            meta: self.durable_meta,
            now,
        };
        self.store_tasks.push(StoreTask::Load { start });
    }

    fn failed(&mut self, sequence: u64, error: CommitError, now: Now) {
        self.metrics.counters.commit_failures_total.inc();
        self.drop_engine();
        match error {
            CommitError::NotApplied { reason, is_full } => {
                let refusal = if is_full {
                    self.record_full(now.elapsed, &reason);
                    self.full()
                } else {
                    self.warn_failed(now.elapsed, sequence, &reason);
                    self.note_away(&reason);
                    self.unavailable(&format!("the store did not take the write: {reason}"))
                };
                self.fail_turns(&refusal);
                if matches!(self.stage, CoreState::Stopping) {
                    return self.end(StopCause::Requested);
                }
                self.last_submitted = self.durable;
                self.closed_meta = self.durable_meta;
                self.recover_after_pause(RecoveryKind::Load, now);
            }
            CommitError::Fenced { .. } => {
                tracing::error!(shard = %self.settings.shard, sequence, %error, "commit failed");
                self.end(StopCause::Fenced {
                    reason: error.to_string(),
                });
            }
            CommitError::Unknown(reason) => {
                self.warn_failed(now.elapsed, sequence, &reason);
                self.note_away(&reason);
                // The open turn was never submitted to the store; those in flight may be stored.
                self.fail_open_turn("a write before it failed");
                self.recover_after_pause(RecoveryKind::Reopen, now);
            }
        }
    }

    /// Records why a store on another machine is out of service until it is read again.
    fn note_away(&mut self, reason: &str) {
        if self.rows_beside.is_some() {
            self.unreachable = Some(reason.to_owned());
        }
    }

    /// Orders a recovery: at once after the first failure, after a pause for each further one.
    fn recover_after_pause(&mut self, recovery: RecoveryKind, now: Now) {
        self.stage = CoreState::Loading;
        let pause = self.backoff.note_failure();
        if !pause.is_zero() {
            self.metrics.counters.recovery_pauses_total.inc();
        }
        self.backoff.wait(now.elapsed.after(pause), recovery);
        self.recover_when_due(now);
    }

    /// Logs repeated failed writes at most once a minute.
    fn warn_failed(&mut self, now: Elapsed, sequence: u64, reason: &str) {
        let shard = &self.settings.shard;
        match self.failures.occur(now) {
            Some(Line::First) => {
                tracing::error!(%shard, sequence, %reason, "commit failed; the store is read again");
            }
            Some(Line::Again { times }) => {
                tracing::error!(%shard, sequence, %reason, times, "commits still fail");
            }
            None => {}
        }
    }

    /// Starts the ordered recovery now.
    pub(super) fn recover(&mut self, now: Now) {
        self.stage = CoreState::Loading;
        self.order_load(now);
    }

    /// Starts the waiting recovery once its pause is over.
    pub(super) fn recover_when_due(&mut self, now: Now) {
        let due = self.backoff.take_due(now.elapsed);
        self.recovery = due.unwrap_or(self.recovery);
        match due {
            Some(RecoveryKind::Load) => self.order_load(now),
            Some(RecoveryKind::Reopen) => {
                let seed = (self.seeds)();
                self.store_tasks.push(StoreTask::Reopen {
                    shard: self.settings.shard.clone(),
                    ours: self.epoch,
                    seed,
                    now,
                });
            }
            None => {}
        }
    }

    pub(super) fn drop_engine(&mut self) {
        self.live = None;
        self.has_more_timers = false;
    }

    fn fail_open_turn(&mut self, reason: &str) {
        let refusal = self.unavailable(reason);
        let Some(turn) = self.open.take() else { return };
        self.inbox.extend(turn.returns);
        self.refuse_or_repeat(turn.answers, &refusal);
    }

    /// Takes a newly loaded engine into service.
    fn load_succeeded(&mut self, fresh: ReloadedEngine<R>, now: Now) {
        if let Some(opened) = fresh.opened
            && !self.settle_unknown(opened)
        {
            return;
        }
        self.metrics.counters.loads_total.inc();
        self.unreachable = None;
        self.warn_of_slow_moves();
        let mut engine = fresh.engine;
        // The engine has the time at which its load was ordered, and a load may take longer than a lease. Nobody could
        // renew a lease meanwhile.
        engine.extend_leases(now);
        engine.begin_key_upkeep(now, self.settings.key_upkeep);
        self.live = Some(ActiveEngine {
            engine,
            reader: fresh.reader,
        });
        self.stage = CoreState::Running;
        self.store_idle_since = now.elapsed;
        self.upkeep.restart(now.elapsed);
        self.check_external_ends(now);
        self.serve_all(now);
    }

    /// Warns if another node of the cluster would take the shard over later than it promises.
    fn warn_of_slow_moves(&self) {
        let jobs = self.metrics.gauges.loaded_jobs.get();
        if self.settings.ownership.is_some() && jobs > JOBS_MOVED_FAST {
            tracing::warn!(
                shard = %self.settings.shard,
                jobs,
                "the shard has so many live jobs that another node takes it over more than two seconds after the ownership lease: spread its queues over more shards"
            );
        }
    }

    /// Resolves commits with unknown outcome: turns whose commits are in the store are released, the others fail.
    /// Returns false if the shard had to stop.
    fn settle_unknown(&mut self, opened: Opened) -> bool {
        let (found, known) = (opened.sequence, self.durable);
        if found < known {
            let reason = format!(
                "the store went back in time: it ends with commit {found}, and commit {known} was confirmed before"
            );
            self.end(StopCause::Rewound { reason });
            return false;
        }
        if found > self.last_submitted {
            let reason = format!(
                "the store stands at commit {found}, and this shard gave it {}: another process writes to it",
                self.last_submitted
            );
            self.end(StopCause::Fenced { reason });
            return false;
        }
        for turn_in_flight in &mut self.turns_in_flight {
            let Some(commit) = &turn_in_flight.commit else {
                continue;
            };
            if turn_in_flight.is_durable {
                continue;
            }
            if commit.sequence > opened.sequence {
                self.metrics.counters.commits_unknown_missing_total.inc();
                continue;
            }
            self.metrics.counters.commits_unknown_kept_total.inc();
            turn_in_flight.is_durable = true;
        }
        self.release();
        let refusal = self.unavailable("the write was not there after the store was opened again");
        self.fail_turns(&refusal);
        self.epoch = opened.epoch;
        self.durable = opened.sequence;
        self.last_submitted = opened.sequence;
        self.durable_meta = opened.meta;
        self.closed_meta = opened.meta;
        true
    }

    /// Handles a failed load. A full disk, and a store that cannot be reached, are waited out. After any other error the
    /// store is lost, for this process or for all.
    fn load_failed(&mut self, error: &StoreError, now: Now) {
        let refusal = match error {
            StoreError::Full { .. } => {
                self.record_full(now.elapsed, &error.to_string());
                let unknown =
                    self.unavailable("the disk is full, and the store cannot be read again");
                self.refuse_turns(&unknown);
                self.full()
            }
            StoreError::Unreachable { .. } => {
                let reason = error.to_string();
                self.warn_failed(now.elapsed, self.last_submitted, &reason);
                let refusal = self.unavailable(&reason);
                self.unreachable = Some(reason);
                self.refuse_turns(&refusal);
                refusal
            }
            StoreError::Fenced { .. } => {
                let shard = &self.settings.shard;
                tracing::error!(%shard, %error, "another process has taken the shard over");
                return self.end(StopCause::Fenced {
                    reason: error.to_string(),
                });
            }
            StoreError::Rewound { .. } => {
                tracing::error!(shard = %self.settings.shard, %error, "the store has lost commits");
                return self.end(StopCause::Rewound {
                    reason: error.to_string(),
                });
            }
            _ => return self.lost(error),
        };
        self.refuse_all(&refusal);
        let recovery = match error {
            // A database that went away may come back without rows that were written: taking it back writes them again.
            StoreError::Unreachable { .. } => RecoveryKind::Reopen,
            _ => self.recovery,
        };
        self.recover_after_pause(recovery, now);
    }

    fn lost(&mut self, error: &StoreError) {
        tracing::error!(shard = %self.settings.shard, %error, "store lost");
        self.end(StopCause::StoreLost {
            reason: error.to_string(),
            is_damaged: matches!(
                error,
                StoreError::Damaged { .. } | StoreError::NotAStore { .. }
            ),
        });
    }

    /// Ends the shard: nothing more is written, and all waiting requests are answered.
    pub(super) fn end(&mut self, cause: StopCause) {
        let reason = cause.to_string();
        self.stage = CoreState::Stopped(cause);
        self.backoff = RecoveryBackoff::default();
        self.drop_engine();
        let refusal = self.unavailable(&reason);
        self.fail_turns(&refusal);
        self.refuse_reads(&refusal);
        for waiter in self.waiters.take_all() {
            let ticket = match waiter {
                Waiter::Lease(waiter) => waiter.ticket,
                Waiter::End(waiter) => waiter.ticket,
                Waiter::Pop(waiter) => waiter.ticket,
            };
            self.outputs
                .push(Output::Answer(ticket, Err(refusal.clone())));
        }
        self.refuse_inbox();
    }

    /// Ends a stopping shard once all admitted requests are durable and answered.
    pub(super) fn finish_stopping(&mut self) {
        if self.may_end() {
            self.end(StopCause::Requested);
        }
    }

    /// Whether the shard stops, and has completed everything.
    pub(super) fn may_end(&self) -> bool {
        self.is_stopping()
            && self.inbox.is_empty()
            && self.beside.is_empty()
            && self.open.is_none()
            && self.turns_in_flight.is_empty()
    }

    pub(super) fn refuse_inbox(&mut self) {
        if let CoreState::Stopped(cause) = &self.stage {
            let refusal = self.unavailable(&cause.to_string());
            self.refuse_all(&refusal);
        }
    }

    /// Refuses all queued requests; those that only give something back stay queued.
    fn refuse_all(&mut self, refusal: &CallError) {
        for request in std::mem::take(&mut self.inbox) {
            let ticket = match request {
                Request::Call { ticket, .. }
                | Request::CallAll { ticket, .. }
                | Request::Lease { ticket, .. }
                | Request::AwaitEnd { ticket, .. }
                | Request::Pop { ticket, .. }
                | Request::QueueSnapshot { ticket } => ticket,
                Request::CancelWaiter(_)
                | Request::Undelivered { .. }
                | Request::ReturnElement(_) => {
                    if !matches!(self.stage, CoreState::Stopped(_)) {
                        self.inbox.push_back(request);
                    }
                    continue;
                }
            };
            self.outputs
                .push(Output::Answer(ticket, Err(refusal.clone())));
        }
    }
}

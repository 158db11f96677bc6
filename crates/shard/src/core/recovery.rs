//! What follows a commit that failed, or may have: nothing is acknowledged that is not durable, the
//! engine is dropped and read back, and service goes on if the store lets it. Failures in a row are
//! followed by a growing pause.

use ganger_engine::Start;
use ganger_store::{CommitError, Opened, Reader, StoreError};
use ganger_types::Now;

use super::request::{Output, Request, Ticket};
use super::setback::{Recovery, Setbacks};
use super::waiters::Waiter;
use super::{Core, Fresh, Live, Order, Report, Stage};
use crate::{CallError, StopCause};

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Takes what the store says.
    pub fn report(&mut self, report: Report<R>, now: Now) {
        if matches!(self.stage, Stage::Stopped(_)) {
            return;
        }
        match report {
            Report::Committed { sequence } => self.committed(sequence, now),
            Report::Failed { sequence, error } => self.failed(sequence, error, now),
            Report::Loaded(Ok(fresh)) => self.loaded(*fresh, now),
            Report::Loaded(Err(error)) => self.lost(&error),
            Report::Found { round, jobs } => self.found(round, jobs, now),
            Report::Upkeep { free_bytes, error } => self.kept_up(free_bytes, error.as_ref(), now),
        }
    }

    /// Orders the rows to be read back for a new engine, in the same epoch.
    ///
    /// Lease tokens stay unique all the same: none of the lost turns was ever seen outside, and the
    /// new engine draws new bits.
    pub(super) fn order_load(&mut self, now: Now) {
        let seed = (self.seeds)();
        let start = Start {
            shard: self.settings.shard.clone(),
            epoch: self.epoch,
            seed,
            meta: self.durable_meta,
            now,
        };
        self.orders.push(Order::Load { start });
    }

    fn failed(&mut self, sequence: u64, error: CommitError, now: Now) {
        self.numbers.counters.commit_failures_total.inc();
        tracing::error!(shard = %self.settings.shard, sequence, %error, "commit failed");
        self.drop_engine();
        match error {
            CommitError::NotApplied { reason, is_full } => {
                if is_full {
                    self.upkeep.note_full(now.elapsed);
                }
                self.fail_turns(&format!("the store did not take the write: {reason}"));
                if matches!(self.stage, Stage::Stopping) {
                    return self.end(StopCause::Asked);
                }
                self.given = self.durable;
                self.closed_meta = self.durable_meta;
                self.recover_after_pause(Recovery::Load, now);
            }
            CommitError::Fenced { .. } => self.end(StopCause::Fenced {
                reason: error.to_string(),
            }),
            CommitError::Unknown(_) => {
                // The open turn was never given to the store; those in flight may be there.
                self.fail_open_turn("a write before it failed");
                self.recover_after_pause(Recovery::Reopen, now);
            }
        }
    }

    /// Has the rows read back: at once after the first failure, later after each one that follows it.
    fn recover_after_pause(&mut self, recovery: Recovery, now: Now) {
        self.stage = Stage::Loading;
        let pause = self.setbacks.note_failure();
        if !pause.is_zero() {
            self.numbers.counters.recovery_pauses_total.inc();
            tracing::warn!(shard = %self.settings.shard, ?pause, "writes fail in a row: recovery waits");
        }
        self.setbacks.wait(now.elapsed.after(pause), recovery);
        self.recover_when_due(now);
    }

    /// Orders the recovery that waits, once its pause is over.
    pub(super) fn recover_when_due(&mut self, now: Now) {
        match self.setbacks.take_due(now.elapsed) {
            Some(Recovery::Load) => self.order_load(now),
            Some(Recovery::Reopen) => {
                let seed = (self.seeds)();
                let shard = self.settings.shard.clone();
                self.orders.push(Order::Reopen { shard, seed, now });
            }
            None => {}
        }
    }

    fn drop_engine(&mut self) {
        self.live = None;
        self.has_more_timers = false;
    }

    fn fail_open_turn(&mut self, reason: &str) {
        let refusal = self.unavailable(reason);
        for (ticket, _) in self.open.take().into_iter().flat_map(|turn| turn.answers) {
            self.outputs
                .push(Output::Answer(ticket, Err(refusal.clone())));
        }
    }

    /// A new engine is there: into service.
    fn loaded(&mut self, fresh: Fresh<R>, now: Now) {
        if let Some(opened) = fresh.opened
            && !self.settle_unknown(opened)
        {
            return;
        }
        self.numbers.counters.loads_total.inc();
        let mut engine = fresh.engine;
        engine.begin_key_upkeep(now, self.settings.key_upkeep);
        self.live = Some(Live {
            engine,
            reader: fresh.reader,
        });
        self.stage = Stage::Running;
        self.store_idle_since = now.elapsed;
        self.upkeep.restart(now.elapsed);
        self.look_for_ends_of_qless(now);
        self.serve_all(now);
    }

    /// After an unknown outcome: turns whose commits are in the store are let out, the others failed.
    /// False if the shard had to stop.
    fn settle_unknown(&mut self, opened: Opened) -> bool {
        if opened.sequence > self.given || opened.sequence < self.durable {
            let (ours, found) = (self.given, opened.sequence);
            let reason = format!(
                "the store stands at commit {found}, this shard gave it {ours} and saw {} confirmed: another process writes to it, or it went back in time",
                self.durable
            );
            self.end(StopCause::Fenced { reason });
            return false;
        }
        for flight in &mut self.flights {
            let Some(commit) = &flight.commit else {
                continue;
            };
            if commit.sequence > opened.sequence {
                break;
            }
            flight.is_durable = true;
        }
        self.release();
        self.fail_turns("the write was not there after the store was opened again");
        self.epoch = opened.epoch;
        self.durable = opened.sequence;
        self.given = opened.sequence;
        self.durable_meta = opened.meta;
        self.closed_meta = opened.meta;
        true
    }

    fn lost(&mut self, error: &StoreError) {
        tracing::error!(shard = %self.settings.shard, %error, "store lost");
        self.end(StopCause::StoreLost {
            reason: error.to_string(),
            is_damaged: matches!(error, StoreError::Damaged { .. }),
        });
    }

    /// Ends the shard: nothing more is written, everybody who waits is told.
    pub(super) fn end(&mut self, cause: StopCause) {
        let reason = cause.to_string();
        self.stage = Stage::Stopped(cause);
        self.setbacks = Setbacks::default();
        self.drop_engine();
        self.fail_turns(&reason);
        let refusal = self.unavailable(&reason);
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

    /// Once asked to stop: ends when everything taken is durable and answered.
    pub(super) fn finish_stopping(&mut self) {
        let is_drained = self.inbox.is_empty() && self.open.is_none() && self.flights.is_empty();
        if matches!(self.stage, Stage::Stopping) && is_drained {
            self.end(StopCause::Asked);
        }
    }

    pub(super) fn refuse_inbox(&mut self) {
        let Stage::Stopped(cause) = &self.stage else {
            return;
        };
        let refusal: CallError = self.unavailable(&cause.to_string());
        for request in std::mem::take(&mut self.inbox) {
            let ticket = match request {
                Request::Call { ticket, .. }
                | Request::CallAll { ticket, .. }
                | Request::Lease { ticket, .. }
                | Request::AwaitEnd { ticket, .. }
                | Request::Pop { ticket, .. }
                | Request::Census { ticket } => ticket,
                Request::GiveUp(_) | Request::Undelivered { .. } | Request::Unpop(_) => continue,
            };
            self.outputs
                .push(Output::Answer(ticket, Err(refusal.clone())));
        }
    }
}

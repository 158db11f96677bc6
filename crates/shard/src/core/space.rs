//! Space on the store's device: what is refused while space is short, and until when (`rel D9`).
//!
//! | what is short | refused |
//! |---|---|
//! | free bytes, with the store's own reserve less than the setting | new work |
//! | the store has taken from its reserve | new work; no jobs are handed out |
//! | a write failed, and the last look has found no room either | every write; reads go on, timers stand still |
//!
//! In the last case the engine is loaded again once there is room, as after a restart: leases whose renewals were
//! refused get their full length again, so no job suffers from the full device.

use std::time::Duration;

use ganger_store::{Line, Reader, RepeatedWarning, Reserve};
use ganger_types::{Command, Elapsed, Now};

use super::request::{Request, Ticket};
use super::{Core, CoreState};
use crate::CallError;

/// Time for which a write that failed for lack of space keeps new work out, if free space is unknown.
const FULL_DURATION: Duration = Duration::from_secs(5);
/// Free bytes from which a failed write is tried again.
const RETRY_FREE_BYTES: u64 = 1 << 20;

/// State of the store's device.
#[derive(Default)]
pub(super) struct Space {
    pub(super) free_bytes: Option<u64>,
    reserve: Reserve,
    full_until: Option<Elapsed>,
    /// Whether even the reserve is used up: nothing is written until there is room.
    is_write_stopped: bool,
    warning: RepeatedWarning,
}

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Whether new work is refused.
    pub(super) fn is_full(&self) -> bool {
        let space = &self.space;
        let kept = |free: u64| free.saturating_add(space.reserve.held);
        let is_low = space
            .free_bytes
            .is_some_and(|free| kept(free) < self.settings.reserve_bytes);
        is_low
            || !space.reserve.is_whole()
            || space.reserve.is_open
            || space.full_until.is_some()
            || space.is_write_stopped
    }

    /// Whether the store uses its reserve: running jobs may end, and none is started.
    pub(super) fn is_on_reserve(&self) -> bool {
        // A reserve that was never complete, because the device had no room for it, does not stop work.
        self.space.reserve.is_open || self.space.is_write_stopped
    }

    /// Whether nothing can be written.
    pub(super) fn is_write_stopped(&self) -> bool {
        self.space.is_write_stopped
    }

    /// Refuses commands that a full or nearly full device cannot take.
    pub(super) fn refuse_if_full(&self, command: &Command) -> Result<(), CallError> {
        if command.is_new_work() && self.is_full() || !self.may_apply(command) {
            return Err(self.full());
        }
        Ok(())
    }

    /// Whether free space allows the command.
    pub(super) fn may_apply(&self, command: &Command) -> bool {
        !self.is_write_stopped() || command.is_read()
    }

    /// Counts a refusal for lack of space and returns its error.
    pub(super) fn full(&self) -> CallError {
        self.metrics.counters.full_total.inc();
        CallError::Full {
            shard: self.settings.shard.clone(),
            free: self.space.free_bytes.unwrap_or(0),
            needed: self.settings.reserve_bytes,
        }
    }

    /// Records that a write failed for lack of space, whatever the number of free bytes is (for example because of a
    /// quota).
    pub(super) fn record_full(&mut self, now: Elapsed, reason: &str) {
        self.space.full_until = Some(now.after(FULL_DURATION));
        // If free space is unknown, only another try can tell.
        self.space.is_write_stopped |= !self.has_room_to_write();
        self.warn_full(now, reason);
    }

    /// Whether the device had room for some writes at the last check, or its free space is unknown.
    fn has_room_to_write(&self) -> bool {
        let enough = RETRY_FREE_BYTES.min(self.settings.reserve_bytes / 4);
        let space = &self.space;
        space
            .free_bytes
            .is_none_or(|free| free.saturating_add(space.reserve.held) >= enough)
    }

    /// Records whether the store has used its reserve for a commit.
    pub(super) fn note_reserve(&mut self, is_open: bool, now: Elapsed) {
        if is_open && !self.space.reserve.is_open {
            self.space.reserve.is_open = true;
            self.warn_full(now, "the store writes from its reserve");
        }
    }

    fn warn_full(&mut self, now: Elapsed, reason: &str) {
        let shard = &self.settings.shard;
        match self.space.warning.occur(now) {
            Some(Line::First) => {
                tracing::error!(%shard, %reason, "the disk is full: new work is refused until there is room");
            }
            Some(Line::Again { .. }) => {
                tracing::error!(%shard, %reason, "the disk is still full");
            }
            None => {}
        }
    }

    /// Records the result of a check of the device.
    pub(super) fn note_space(&mut self, free: Option<u64>, reserve: Reserve, now: Now) {
        self.metrics.gauges.store_free_bytes.set(free.unwrap_or(0));
        self.metrics.gauges.store_reserve_bytes.set(reserve.held);
        let space = &mut self.space;
        space.free_bytes = free;
        space.reserve = reserve;
        let is_over = |until: Elapsed| until <= now.elapsed;
        if space.full_until.is_some_and(is_over) {
            space.full_until = None;
        }
        // Turns still being committed, such as the removal of an expired key, are waited for.
        if self.is_write_stopped() && self.has_room_to_write() && self.turns_in_flight.is_empty() {
            self.resume_writing(now);
        }
        self.report_space(now.elapsed);
    }

    /// Logs changes in the device's state; a lasting state is logged at intervals.
    fn report_space(&mut self, now: Elapsed) {
        if self.is_full() {
            let kept = self.space.free_bytes.unwrap_or(0);
            let kept = kept.saturating_add(self.space.reserve.held);
            let wanted = self.settings.reserve_bytes;
            let reason = format!("{kept} bytes are free or in reserve, {wanted} are wanted");
            return self.warn_full(now, &reason);
        }
        if let Some(over) = self.space.warning.look(now) {
            let shard = &self.settings.shard;
            tracing::warn!(%shard, lasted = ?over.lasted, "there is room on the disk again");
        }
    }

    /// Continues from the stored state, as after a restart, once there is room.
    fn resume_writing(&mut self, now: Now) {
        self.space.is_write_stopped = false;
        self.inbox.extend(self.deferred.drain(..));
        if !matches!(self.stage, CoreState::Running) {
            return;
        }
        self.drop_engine();
        let refusal = self.unavailable("the disk was full; there is room again");
        self.fail_turns(&refusal);
        self.last_submitted = self.durable;
        self.closed_meta = self.durable_meta;
        self.recover(now);
    }

    /// Keeps a request that gives something back until that can be written; returns all others.
    pub(super) fn defer_if_write_stopped(&mut self, request: Request<T>) -> Option<Request<T>> {
        let gives_back = matches!(
            request,
            Request::Undelivered { .. } | Request::ReturnElement(_)
        );
        if gives_back && self.is_write_stopped() {
            self.deferred.push(request);
            return None;
        }
        Some(request)
    }
}

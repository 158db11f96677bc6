//! Closes turns, and releases them once they and all earlier ones are durable.

use std::sync::Arc;
use std::time::Duration;

use ganger_store::{Reader, StoredJob};
use ganger_types::{Change, Command, Commit, Elapsed, Happening, Meta, Now};

use super::request::{CallReply, Output, Request, Ticket};
use super::turn::{PendingAnswer, Turn, TurnInFlight, TurnSizeHint};
use super::{Core, CoreState, IN_FLIGHT_TURNS_MAX, StoreTask};
use crate::CallError;
use crate::metrics::WaitTimes;
use crate::settings::GROUP_WAIT_MAX;

/// Smallest batch that a turn waits for: with fewer commands at once there is no load, and their senders wait too.
const BATCH_MIN: usize = 8;

/// Time of a commit to a store on another machine from which the shard counts as standing still: workers waited for the
/// answers to their renewals. A flush of a disk that takes so long stops the shard's thread, which is noticed there.
const COMMIT_LATE: Duration = Duration::from_secs(2);

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Whether the store has not confirmed a commit for so long that no timer may fire: what workers did meanwhile is not
    /// durable, and they do not know whether it will be.
    pub(super) fn is_held_up(&self, now: Now) -> bool {
        let mut waiting = self.turns_in_flight.iter().filter(|turn| !turn.is_durable);
        let oldest = waiting.next().filter(|_| self.rows_beside.is_some());
        oldest.is_some_and(|turn| now.elapsed.since(turn.closed_at) > COMMIT_LATE)
    }

    /// Number of turns that the store has not confirmed.
    fn unconfirmed(&self) -> usize {
        self.turns_in_flight
            .iter()
            .filter(|turn_in_flight| !turn_in_flight.is_durable)
            .count()
    }

    fn is_turn_full(&self) -> bool {
        let max = self.settings.turn_commands_max;
        self.open.as_ref().is_some_and(|turn| {
            turn.commands >= max || turn.effects.changes.len() >= max.saturating_mul(16)
        })
    }

    /// Whether the open turn can take more commands. A full turn waits until the store accepts it.
    pub(super) fn has_room(&self) -> bool {
        !self.is_turn_full()
    }

    /// Closes the open turn when the store is idle or the turn is full.
    ///
    /// While the store is busy the turn stays open, so it grows under load.
    pub(super) fn close_when_due(&mut self, now: Now) {
        let Some(turn) = &self.open else { return };
        if turn.is_empty() {
            self.open = None;
            return;
        }
        let unconfirmed = self.unconfirmed();
        let may_close = if self.is_turn_full() {
            unconfirmed < IN_FLIGHT_TURNS_MAX
        } else {
            unconfirmed == 0
                && self
                    .batching_until()
                    .is_none_or(|until| until <= now.elapsed)
        };
        if may_close {
            self.close(now);
        }
    }

    /// Time until which the open turn waits for more commands; `None` if it does not wait. It waits only while the
    /// store is idle, only if recently more commands arrived together than it holds, and no longer than a commit takes:
    /// commands that arrive later than that share the next commit as early.
    pub(super) fn batching_until(&self) -> Option<Elapsed> {
        let turn = self.open.as_ref()?;
        let hoped_for = self.recent_batch.min(self.settings.group_enough);
        let is_to_be_written = turn.has_written()
            || self
                .live
                .as_ref()
                .is_some_and(|live| live.engine.may_write_at_end());
        let may_wait = matches!(self.stage, CoreState::Running)
            && is_to_be_written
            && hoped_for >= BATCH_MIN
            && turn.commands < hoped_for
            && self.unconfirmed() == 0;
        let since = turn.opened.elapsed.max(self.store_idle_since);
        let wait = self.settings.group_wait.min(GROUP_WAIT_MAX);
        may_wait.then(|| since.after(wait.min(self.commit_takes)))
    }

    fn close(&mut self, now: Now) {
        let Some(mut turn) = self.open.take() else {
            return;
        };
        let engine = &mut self.live().engine;
        engine.end_turn(now, &mut turn.effects);
        let meta = engine.meta();
        let must_flush = turn.has_written() || counters(&meta) != counters(&self.closed_meta);
        self.closed_meta = meta;
        self.expected = TurnSizeHint::like(&turn.effects);
        let commit = must_flush.then(|| {
            self.last_submitted += 1;
            Arc::new(Commit {
                epoch: self.epoch,
                sequence: self.last_submitted,
                meta,
                changes: std::mem::take(&mut turn.effects.changes),
            })
        });
        self.store_tasks
            .extend(commit.clone().map(StoreTask::Commit));
        self.turns_in_flight
            .push_back(TurnInFlight::new(turn, commit, now.elapsed));
        self.release();
    }

    /// Takes the store's report that a commit is durable.
    ///
    /// # Panics
    /// If it is not the next commit: the store and the shard disagree.
    pub(super) fn committed(&mut self, sequence: u64, is_reserve_open: bool, now: Now) {
        let turn_in_flight = self
            .turns_in_flight
            .iter_mut()
            .find(|turn_in_flight| !turn_in_flight.is_durable);
        let turn_in_flight = turn_in_flight.expect("only what was given can be committed");
        let commit = turn_in_flight
            .commit
            .as_ref()
            .expect("a turn without a commit is durable");
        assert_eq!(commit.sequence, sequence, "commits are confirmed in order");
        self.durable = sequence;
        self.durable_meta = commit.meta;
        self.backoff.note_success();
        turn_in_flight.is_durable = true;
        let took = now.elapsed.since(turn_in_flight.closed_at);
        self.commit_takes = (self.commit_takes * 7 + took) / 8;
        if took > COMMIT_LATE && self.rows_beside.is_some() {
            tracing::warn!(shard = %self.settings.shard, ?took, "a commit took long; leases get their full length again");
            self.grant_grace(now);
        }
        self.note_reserve(is_reserve_open, now.elapsed);
        self.store_idle_since = now.elapsed;
        self.release();
        // The turn that grew meanwhile is submitted to the store before anything else is applied.
        self.close_when_due(now);
    }

    /// Releases every turn that is durable together with all earlier turns.
    pub(super) fn release(&mut self) {
        let mut released = 0;
        while self
            .turns_in_flight
            .front()
            .is_some_and(|turn_in_flight| turn_in_flight.is_durable)
        {
            let turn_in_flight = self.turns_in_flight.pop_front().expect("there is a front");
            released += turn_in_flight.commands;
            self.release_turn(turn_in_flight);
        }
        if released > 0 {
            self.recent_batch = released + self.open.as_ref().map_or(0, |turn| turn.commands);
        }
    }

    fn release_turn(&mut self, mut turn_in_flight: TurnInFlight<T>) {
        let mut waits = WaitTimes::default();
        if let Some(commit) = &turn_in_flight.commit {
            waits = self
                .metrics
                .observe_turn(turn_in_flight.commands, &commit.changes);
            self.blobs.apply_changes(&commit.changes);
            self.upkeep.note_touched(&commit.changes);
        }
        self.metrics
            .observe_events(&turn_in_flight.effects.events, waits);
        if let Some((at, queues)) = turn_in_flight.sample.take() {
            self.metrics.series().sample(at, &queues);
        }
        // Messages go out before every reply, since clients rely on that order.
        if !turn_in_flight.effects.messages.is_empty() {
            let messages = std::mem::take(&mut turn_in_flight.effects.messages);
            self.outputs.push(Output::Messages(messages));
        }
        if self.waiters.has_ends() {
            self.answer_end_waiters(&mut turn_in_flight);
        }
        if self.waiters.has_external_ends()
            && let Some(commit) = &turn_in_flight.commit
        {
            self.answer_external_end_waiters(commit);
        }
        // Events go out first: a client that has a reply may rely on its events being published.
        if !turn_in_flight.effects.events.is_empty() {
            self.outputs
                .push(Output::Events(turn_in_flight.effects.events));
        }
        let grew = |change: &Change| matches!(change, Change::PutOutbox(_));
        if let Some(commit) = &turn_in_flight.commit
            && commit.changes.iter().any(grew)
        {
            self.outputs.push(Output::Outbox);
        }
        let worked = |change: &Change| matches!(change, Change::PutOperation(_));
        if let Some(commit) = &turn_in_flight.commit
            && commit.changes.iter().any(worked)
        {
            self.outputs.push(Output::Operations);
        }
        for pending in turn_in_flight.answers {
            match (pending.unread, pending.answer) {
                (Some(unread), Ok(CallReply::Deliveries(deliveries))) => {
                    self.await_rows(unread, pending.ticket, deliveries);
                }
                (_, answer) => self.outputs.push(Output::Answer(pending.ticket, answer)),
            }
        }
        if let Some(commit) = &turn_in_flight.commit {
            self.beside.keep(commit, turn_in_flight.rows);
        }
    }

    /// Answers the requests that wait for the end of a job that ended in this turn.
    fn answer_end_waiters(&mut self, turn_in_flight: &mut TurnInFlight<T>) {
        for event in &turn_in_flight.effects.events {
            let (key, id, is_gone) = match &event.happening {
                Happening::JobMoved { key, job, to, .. } if to.is_terminal() => (*key, job, false),
                Happening::JobRemoved { key, job, .. } => (*key, job, true),
                _ => continue,
            };
            let waiters = self.waiters.take_ended(&event.namespace, id);
            if waiters.is_empty() {
                continue;
            }
            let record = if is_gone {
                None
            } else {
                turn_in_flight
                    .rows
                    .ended_record(turn_in_flight.commit.as_ref(), key)
            };
            let job = record.map(|record| {
                Box::new(StoredJob {
                    record,
                    lease: None,
                })
            });
            for waiter in waiters {
                let answer = Ok(CallReply::Job(job.clone()));
                self.outputs.push(Output::Answer(waiter.ticket, answer));
            }
        }
    }

    /// Refuses all requests in the open turn and in flight. Queries, and requests that give leases back, are repeated.
    pub(super) fn fail_turns(&mut self, refusal: &CallError) {
        let open = self
            .open
            .take()
            .map(|turn: Turn<T>| (turn.answers, turn.returns));
        let turns_in_flight = std::mem::take(&mut self.turns_in_flight);
        let turns_in_flight = turns_in_flight
            .into_iter()
            .map(|turn_in_flight| (turn_in_flight.answers, turn_in_flight.returns));
        let (answers, returns): (Vec<_>, Vec<_>) = turns_in_flight.chain(open).unzip();
        self.inbox.extend(returns.into_iter().flatten());
        self.refuse_or_repeat(answers.into_iter().flatten(), refusal);
    }

    /// Refuses the requests of all turns like [`Core::fail_turns`], but keeps the turns in flight: some may be stored, and
    /// then their events must still go out.
    pub(super) fn refuse_turns(&mut self, refusal: &CallError) {
        let mut refused = Vec::new();
        if let Some(open) = self.open.take() {
            refused.extend(open.answers);
            self.inbox.extend(open.returns);
        }
        for turn_in_flight in &mut self.turns_in_flight {
            refused.append(&mut turn_in_flight.answers);
            self.inbox.extend(turn_in_flight.returns.drain(..));
        }
        self.refuse_or_repeat(refused, refusal);
    }

    /// Refuses the requests of a failed turn, except queries, which are repeated: another client's write has failed.
    pub(super) fn refuse_or_repeat(
        &mut self,
        answers: impl IntoIterator<Item = PendingAnswer<T>>,
        refusal: &CallError,
    ) {
        for PendingAnswer {
            ticket,
            query,
            unread,
            ..
        } in answers
        {
            if let Some(unread) = unread {
                self.beside.forget(unread.round);
            }
            match query {
                Some((query, at)) => self.inbox.push_back(Request::Call {
                    command: Command::Query(query),
                    at,
                    ticket,
                }),
                None => {
                    let answer = Err(refusal.clone());
                    self.outputs.push(Output::Answer(ticket, answer));
                }
            }
        }
    }
}

/// Returns the counters whose values must be durable before anything that uses them becomes visible.
fn counters(meta: &Meta) -> (u64, u64, u64) {
    (meta.next_key.0, meta.next_order, meta.next_event.0)
}

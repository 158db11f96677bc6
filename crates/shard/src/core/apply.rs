//! Applies requests to the engine within the open turn.

use ganger_store::Reader;
use ganger_types::limits::PAGE_QUEUES_MAX;
use ganger_types::query::Query;
use ganger_types::{
    Command, Elapsed, JobState, Namespace, Now, Queue, QueueCounts, Rejection, Reply, Timestamp,
};

use super::Core;
use super::deliver::Taken;
use super::request::{CallReply, QueueGauge, Request, Ticket};
use super::turn::{PendingAnswer, Turn, UnreadAnswer, WaitingLease};
use crate::CallError;

/// Maximum number of queues in a snapshot for the metrics; further queues are not listed.
const SNAPSHOT_QUEUES_MAX: usize = 1_000;

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Fires due timers, in bounded slices, before anything else of this moment is applied.
    pub(super) fn fire_timers(&mut self, now: Now) {
        if !self.has_room() || self.is_write_stopped() || self.is_held_up(now) {
            return;
        }
        let limit = self.settings.turn_timers_max;
        let (engine, turn) = self.engine_and_turn(now);
        self.has_more_timers = engine.advance(now, limit, &mut turn.effects);
        self.serve_woken(now);
    }

    /// Applies queued requests until the turn is full.
    pub(super) fn take_requests(&mut self, now: Now) {
        self.take_reads(now);
        while self.has_room() {
            let Some(request) = self.inbox.pop_front() else {
                break;
            };
            if request.takes_jobs() {
                // Those that have waited longer go first.
                self.serve_woken(now);
            }
            self.take(request, now);
            self.serve_grown(now);
        }
        // Once for all requests, so that a worker gets the jobs of many submissions in one delivery.
        self.serve_woken(now);
    }

    fn take(&mut self, request: Request<T>, now: Now) {
        let Some(request) = self.defer_if_write_stopped(request) else {
            return;
        };
        let is_beside = self.rows_beside.is_some();
        if let Some(request) = self.put_aside(request, now) {
            self.take_prepared(request, now);
            self.drop_rows(is_beside);
        }
    }

    /// Applies a request whose rows are in place.
    pub(super) fn take_prepared(&mut self, request: Request<T>, now: Now) {
        match request {
            Request::Call {
                command,
                at,
                ticket,
            } => {
                let query = match &command {
                    Command::Query(query) => Some((query.clone(), at)),
                    _ => None,
                };
                let answer = self.apply(now, command, at).map(CallReply::Reply);
                self.keep_answer(
                    now,
                    PendingAnswer {
                        ticket,
                        answer,
                        query,
                        unread: None,
                    },
                );
            }
            Request::CallAll { commands, ticket } => {
                let answers = self.apply_all(now, commands);
                self.answer(now, ticket, Ok(CallReply::Replies(answers)));
            }
            Request::Lease {
                lease,
                wait_for,
                waiter,
                ticket,
            } => {
                self.take_lease(now, lease, wait_for, waiter, ticket);
            }
            Request::AwaitEnd {
                namespace,
                id,
                wait_for,
                waiter,
                ticket,
            } => {
                self.take_await(now, namespace, id, wait_for, waiter, ticket);
            }
            Request::Pop {
                wait,
                wait_for,
                waiter,
                ticket,
            } => self.take_pop(now, wait, wait_for, waiter, ticket),
            Request::ReturnElement(unpopped) => self.unpop(now, *unpopped),
            Request::CancelWaiter(waiter) => drop(self.waiters.take(waiter)),
            Request::Undelivered {
                held,
                request,
                waiter,
            } => {
                self.keep_for_repeat(now, &held, request.as_ref(), waiter);
                self.take_back(now, held, request, waiter);
            }
            Request::QueueSnapshot { ticket } => {
                let (mut snapshot, others) = self.snapshot(now, SNAPSHOT_QUEUES_MAX);
                self.metrics.gauges.queues_left_out.set(others.queues);
                snapshot.extend(others.gauge());
                self.answer(now, ticket, Ok(CallReply::QueueSnapshot(snapshot)));
            }
        }
    }

    /// Applies commands in order.
    pub(super) fn apply_all(
        &mut self,
        now: Now,
        commands: Vec<Command>,
    ) -> Vec<Result<Reply, CallError>> {
        let commands = commands.into_iter();
        commands
            .map(|command| self.apply(now, command, None))
            .collect()
    }

    /// Keeps a reply until the open turn is durable.
    pub(super) fn answer(&mut self, now: Now, ticket: T, answer: Result<CallReply, CallError>) {
        self.keep_answer(
            now,
            PendingAnswer {
                ticket,
                answer,
                query: None,
                unread: None,
            },
        );
    }

    /// Keeps deliveries until the open turn is durable, and what is missing in them was read.
    pub(super) fn answer_taken(
        &mut self,
        now: Now,
        ticket: T,
        taken: Result<Taken, CallError>,
        request: Option<WaitingLease>,
    ) {
        let unread = taken.as_ref().ok().and_then(|taken| taken.unread);
        let unread = unread.map(|round| UnreadAnswer { round, request });
        let answer = taken.map(|taken| CallReply::Deliveries(taken.deliveries));
        self.keep_answer(
            now,
            PendingAnswer {
                ticket,
                answer,
                query: None,
                unread,
            },
        );
    }

    fn keep_answer(&mut self, now: Now, answer: PendingAnswer<T>) {
        let turn = self.open.get_or_insert_with(|| Turn::new(now));
        turn.answers.push(answer);
    }

    /// Applies one command. `at` is the caller's time, used only in namespaces that run on their callers' clocks.
    pub(super) fn apply(
        &mut self,
        now: Now,
        command: Command,
        at: Option<Timestamp>,
    ) -> Result<Reply, CallError> {
        self.refuse_if_full(&command)?;
        self.apply_if_full(now, command, at)
    }

    /// Applies one command even if the device is nearly full, for commands that only restore what was there.
    pub(super) fn apply_if_full(
        &mut self,
        now: Now,
        command: Command,
        at: Option<Timestamp>,
    ) -> Result<Reply, CallError> {
        if !self.may_apply(&command) {
            return Err(self.full());
        }
        self.metrics.counters.commands_total.inc();
        let moment = self.moment(now, &command, at)?;
        // Jobs that end by the caller's time must be found among the finished ones, so timers fire before the lookup.
        let (engine, turn) = self.engine_and_turn(now);
        engine.settle_callers_clock(moment, &command, &mut turn.effects);
        let known = self.prefetch(&command);
        if self.lacks_rows() {
            // Only for the shard's own commands for jobs that have just ended, and after a change within the turn.
            self.drop_rows(true);
        }
        let known = known?;
        let expected = self.expected;
        let (engine, turn) = self.engine_and_turn(now);
        turn.begin_command(expected);
        let before = turn.effects.changes.len();
        let answer = engine.apply(moment, command, &known, &mut turn.effects);
        debug_assert!(
            answer.is_ok() || turn.effects.changes.len() == before,
            "a rejection changes nothing (rel P6)"
        );
        answer.map_err(|rejection| {
            self.metrics.counters.rejected_total.inc();
            if matches!(rejection, Rejection::LeaseLost { .. }) {
                self.metrics.counters.stale_reports_total.inc();
            }
            CallError::Rejected(rejection)
        })
    }

    /// Fires the timers that are due by the time of a command in a namespace that runs on its callers' clocks, before the
    /// rows that it needs are looked up beside the shard.
    pub(super) fn settle_callers_clock(
        &mut self,
        now: Now,
        command: &Command,
        at: Option<Timestamp>,
    ) {
        if let Ok(moment) = self.moment(now, command, at) {
            let (engine, turn) = self.engine_and_turn(now);
            engine.settle_callers_clock(moment, command, &mut turn.effects);
        }
    }

    /// Returns the time of a command. In a namespace that runs on its callers' clocks both readings are the caller's;
    /// a query without a time uses the epoch, at which nothing is due.
    fn moment(
        &mut self,
        now: Now,
        command: &Command,
        at: Option<Timestamp>,
    ) -> Result<Now, CallError> {
        let engine = &self.live().engine;
        let is_callers = !command.is_setting()
            && command
                .namespace()
                .is_some_and(|namespace| engine.runs_on_callers_clock(namespace));
        match at {
            _ if !is_callers => Ok(now),
            Some(at) => Ok(Now {
                elapsed: Elapsed(at.0),
                wall: at,
            }),
            None if matches!(command, Command::Query(_)) => Ok(Now::default()),
            None => Err(Rejection::ClockMissing.into()),
        }
    }

    /// Counts the queues that have live jobs, of every namespace, at most so many of them. Returns them, and the sum
    /// of those that were left out.
    pub(super) fn snapshot(
        &mut self,
        now: Now,
        queues_max: usize,
    ) -> (Vec<QueueGauge>, OtherQueues) {
        let mut ask = |query| self.apply(now, Command::Query(Box::new(query)), None);
        let mut namespaces = vec![Namespace::default()];
        if let Ok(Reply::Namespaces(records)) = ask(Query::Namespaces) {
            namespaces.extend(records.into_iter().map(|record| record.namespace));
        }
        namespaces.sort();
        namespaces.dedup();
        let mut snapshot: Vec<QueueGauge> = Vec::new();
        let mut others = OtherQueues::default();
        for namespace in namespaces {
            let mut after = None;
            loop {
                let page = Query::Queues(namespace.clone(), after, PAGE_QUEUES_MAX);
                let Ok(Reply::Queues(queues)) = ask(page) else {
                    break;
                };
                let is_last = queues.len() < PAGE_QUEUES_MAX;
                after = queues.last().map(|view| view.queue.clone());
                for view in queues.into_iter().filter(|view| view.counts.live() > 0) {
                    let age = view.oldest_ready_for.map_or(0.0, |age| age.as_secs_f64());
                    if snapshot.len() >= queues_max {
                        others.add(&view.counts, age);
                        continue;
                    }
                    snapshot.push((namespace.clone(), view.queue, view.counts, age));
                }
                if is_last {
                    break;
                }
            }
        }
        (snapshot, others)
    }
}

/// Queues that have no gauge of their own, together.
#[derive(Default)]
pub(super) struct OtherQueues {
    queues: u64,
    counts: QueueCounts,
    /// Age of the oldest of their ready jobs in seconds.
    oldest_seconds: f64,
}

impl OtherQueues {
    fn add(&mut self, counts: &QueueCounts, oldest_seconds: f64) {
        self.queues += 1;
        for state in JobState::ALL {
            *self.counts.of_mut(state) += counts.of(state);
        }
        self.oldest_seconds = self.oldest_seconds.max(oldest_seconds);
    }

    /// The gauge of all of them, with the name `other` and an empty namespace, which no queue has; `None` if there are
    /// none.
    fn gauge(self) -> Option<QueueGauge> {
        let namespace = Namespace::new("").ok()?;
        let other = (
            namespace,
            Queue::from_static("other"),
            self.counts,
            self.oldest_seconds,
        );
        (self.queues > 0).then_some(other)
    }
}

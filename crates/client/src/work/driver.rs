//! The task behind a worker's stream.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ganger_proto::convert::{At, job_state};
use ganger_proto::v1;
use tokio::sync::mpsc;

use super::leases::HeldLease;
use super::link::Link;
use super::pending::{Pending, PendingReports};
use super::{Call, LostLease, Shared, WorkEvent, WorkOptions};
use crate::client::Client;
use crate::convert;
use crate::error::{Error, code};
use crate::model::{Delivery, JobState, LeaseRef, LeaseToken, Report, ReportAnswer, ReportResult};
use crate::pause::{Pauses, random_key};

/// Longest interval between messages; the server measures leases from the last one it received.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(4);
/// Silence after which the server counts as gone. It sends a heartbeat every 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Time after which a connection that accepts nothing is dropped.
const SLOW_MAX: Duration = Duration::from_secs(20);
/// Maximum number of reports in one message.
const MESSAGE_REPORTS_MAX: usize = 2_048;
/// Shortest interval between checks of leases; the interval is a twelfth of the shortest lease.
const PACE_MIN: Duration = Duration::from_millis(10);
const PACE_MAX: Duration = Duration::from_millis(250);
/// Delay before a refused report is sent again, unless the server names another.
const SEND_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// The reason why a connection, or the whole stream, ends.
enum StreamEnd {
    Broken(Error),
    Closed,
}

impl From<Error> for StreamEnd {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

/// The task behind a worker's stream.
pub(crate) struct Driver {
    client: Client,
    options: WorkOptions,
    shared: Arc<Shared>,
    events: mpsc::UnboundedSender<WorkEvent>,
    /// Session id, the same over all connections: deliveries lost with one are repeated on the next.
    session: String,
    batches_received: u64,
    credits: u32,
    pending: PendingReports,
    /// Reports that the server could not accept for the moment, with the time of the next try.
    deferred: Vec<(Instant, u64)>,
    /// Deliveries that arrived so late that their lease must be renewed before they may run.
    unconfirmed: HashMap<LeaseToken, Delivery>,
    tick_at: Instant,
    /// Whether the server of this connection is about to stop.
    is_draining: bool,
}

impl Driver {
    pub(crate) fn new(
        client: Client,
        options: WorkOptions,
        shared: Arc<Shared>,
        events: mpsc::UnboundedSender<WorkEvent>,
    ) -> Self {
        Self {
            client,
            options,
            shared,
            events,
            session: random_key(),
            batches_received: 0,
            credits: 0,
            pending: PendingReports::default(),
            deferred: Vec::new(),
            unconfirmed: HashMap::new(),
            tick_at: Instant::now(),
            is_draining: false,
        }
    }

    /// Connects and serves repeatedly, until the stream is closed.
    pub(crate) async fn run(mut self, mut calls: mpsc::Receiver<Call>) {
        let mut pauses = Pauses::new(self.client.options.retry);
        loop {
            let error = match self.connection(&mut calls, &mut pauses).await {
                StreamEnd::Closed => return,
                StreamEnd::Broken(error) => error,
            };
            let retry_in = pauses.next_unbounded();
            self.emit(WorkEvent::Disconnected { error, retry_in });
            if self
                .meanwhile(&mut calls, tokio::time::sleep(retry_in))
                .await
                .is_none()
            {
                return;
            }
        }
    }

    /// Runs one connection, from its first message to its end.
    async fn connection(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
        pauses: &mut Pauses,
    ) -> StreamEnd {
        let first = self.hello();
        let opening = Link::open(self.client.clone(), first);
        let link = match self.meanwhile(calls, opening).await {
            None => return StreamEnd::Closed,
            Some(Err(error)) => return StreamEnd::Broken(error),
            Some(Ok(link)) => link,
        };
        self.is_draining = false;
        let served = self.serve(link, calls).await;
        self.shared.connected.send_replace(false);
        if !self.is_draining {
            // While a server stops, workers reconnect at growing intervals.
            *pauses = Pauses::new(self.client.options.retry);
        }
        match served {
            Ok(()) => StreamEnd::Closed,
            Err(end) => end,
        }
    }

    /// Whether no lease is held and no report waits for an answer.
    fn is_idle(&self) -> bool {
        self.pending.is_empty()
            && self.unconfirmed.is_empty()
            && self.shared.leases.lock().is_empty()
    }

    fn hello(&mut self) -> v1::WorkerMessage {
        self.take_credits();
        let hello = v1::Hello {
            namespace: self.client.namespace(),
            worker: self.options.worker.clone(),
            queues: self
                .options
                .queues
                .iter()
                .cloned()
                .map(Into::into)
                .collect(),
            mode: i32::from(v1::TakeMode::from(self.options.mode)),
            lease_ms: self.options.lease_for.map(convert::ms),
            session: self.session.clone(),
            batches_received: self.batches_received,
        };
        v1::WorkerMessage {
            hello: Some(hello),
            credits_added: self.credits,
            ..v1::WorkerMessage::default()
        }
    }

    /// Takes over the credits that reporters granted or dropped: returns the number added, and whether earlier ones
    /// were dropped.
    fn take_credits(&mut self) -> (u32, bool) {
        let dropped = self
            .shared
            .are_credits_dropped
            .swap(false, Ordering::AcqRel);
        if dropped {
            self.credits = 0;
        }
        let added = self.shared.granted.swap(0, Ordering::AcqRel);
        self.credits = self.credits.saturating_add(added);
        (added, dropped)
    }

    fn is_closed(&self) -> bool {
        self.shared.is_closed.load(Ordering::Acquire) || self.events.is_closed()
    }

    fn emit(&self, event: WorkEvent) {
        // The channel is bounded by the granted credits and the held leases. A closed receiver is noticed elsewhere.
        self.events.send(event).ok();
    }

    /// Waits for a future while there is no connection; leases expire and calls are accepted meanwhile. Returns
    /// `None` if the stream was closed.
    async fn meanwhile<T>(
        &mut self,
        calls: &mut mpsc::Receiver<Call>,
        something: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(something);
        let shared = Arc::clone(&self.shared);
        let events = self.events.clone();
        loop {
            if self.is_closed() {
                return None;
            }
            let has_room = self.pending.has_room();
            tokio::select! {
                result = &mut something => return Some(result),
                call = calls.recv(), if has_room => { self.accept(call?); }
                () = shared.changed.notified() => {}
                () = events.closed() => return None,
                () = tokio::time::sleep_until(self.tick_at.into()) => self.expire(),
            }
        }
    }

    /// Serves one connection until it breaks, or the stream is closed.
    async fn serve(
        &mut self,
        mut link: Link,
        calls: &mut mpsc::Receiver<Call>,
    ) -> Result<(), StreamEnd> {
        self.deferred.clear();
        let again = self.pending.for_a_new_stream(Instant::now());
        self.send_reports(&mut link, &again).await?;
        let shared = Arc::clone(&self.shared);
        let events = self.events.clone();
        let mut silent_until = Instant::now() + SILENCE_MAX;
        loop {
            if self.is_closed() {
                return Ok(());
            }
            if self.is_draining && self.is_idle() {
                return Err(Error::unreachable("the server stops").into());
            }
            let has_room = self.pending.has_room();
            tokio::select! {
                message = link.incoming.message() => {
                    let message = message.map_err(|status| Error::from_status(&status))?;
                    let message = message.ok_or_else(|| Error::unreachable("the server ended the stream"))?;
                    silent_until = Instant::now() + SILENCE_MAX;
                    self.receive(&mut link, message)?;
                }
                call = calls.recv(), if has_room => {
                    let Some(call) = call else { return Ok(()) };
                    let mut numbers = self.accept(call);
                    self.accept_waiting(calls, &mut numbers);
                    self.send_reports(&mut link, &numbers).await?;
                }
                () = shared.changed.notified() => {
                    let mut numbers = Vec::new();
                    self.accept_waiting(calls, &mut numbers);
                    self.send_reports(&mut link, &numbers).await?;
                }
                () = events.closed() => return Ok(()),
                () = tokio::time::sleep_until(self.tick_at.into()) => self.tick(&mut link).await?,
                () = tokio::time::sleep_until(silent_until.into()) => {
                    return Err(Error::timed_out("the server was silent for too long").into());
                }
            }
        }
    }

    /// Accepts a call. From now on only the answers report the end of its attempts.
    fn accept(&mut self, call: Call) -> Vec<u64> {
        let mut leases = self.shared.leases.lock();
        for (lease, report) in &call.reports {
            if ends_attempt(report)
                && let Some(entry) = leases.get_mut(&lease.token)
            {
                entry.is_reported = true;
            }
        }
        drop(leases);
        self.pending.take(call, Instant::now())
    }

    /// Accepts all waiting calls, so that they travel in the same message: the end of a run and the credit for the
    /// next one then reach the same turn of the shard.
    fn accept_waiting(&mut self, calls: &mut mpsc::Receiver<Call>, numbers: &mut Vec<u64>) {
        while self.pending.has_room() {
            let Ok(call) = calls.try_recv() else { return };
            numbers.extend(self.accept(call));
        }
    }

    /// Sends reports by number, and newly granted credits, in messages of bounded size.
    async fn send_reports(&mut self, link: &mut Link, numbers: &[u64]) -> Result<(), StreamEnd> {
        let (added, dropped) = self.take_credits();
        let mut message = v1::WorkerMessage {
            credits_added: added,
            credits_dropped: dropped,
            ..v1::WorkerMessage::default()
        };
        let mut is_empty = added == 0 && !dropped;
        for part in numbers.chunks(MESSAGE_REPORTS_MAX) {
            message.reports.extend(part.iter().filter_map(|number| {
                let pending = self.pending.get(*number)?;
                Some(convert::wire_report(
                    *number,
                    pending.lease.clone(),
                    pending.report.clone(),
                ))
            }));
            self.send(link, std::mem::take(&mut message)).await?;
            is_empty = true;
        }
        if !is_empty {
            self.send(link, message).await?;
        }
        Ok(())
    }

    /// Sends a message. While the connection accepts nothing, leases still expire in time.
    async fn send(&mut self, link: &mut Link, message: v1::WorkerMessage) -> Result<(), StreamEnd> {
        link.note_sending();
        let out = link.out.clone();
        let patience = Instant::now() + SLOW_MAX;
        loop {
            tokio::select! {
                permit = out.reserve() => {
                    let permit = permit.map_err(|_| Error::unreachable("the connection broke"))?;
                    permit.send(message);
                    return Ok(());
                }
                () = tokio::time::sleep_until(self.tick_at.into()) => self.expire(),
                () = tokio::time::sleep_until(patience.into()) => {
                    return Err(Error::timed_out("the server takes no messages").into());
                }
            }
        }
    }

    /// Renews leases that are due, gives up expired ones, and repeats refused reports.
    async fn tick(&mut self, link: &mut Link) -> Result<(), StreamEnd> {
        self.expire();
        let now = Instant::now();
        let mut numbers: Vec<u64> = Vec::new();
        for lease in self.shared.leases.due(now) {
            numbers.push(self.pending.add_renewal(lease, now));
        }
        self.deferred.retain(|(at, number)| {
            let is_due = *at <= now;
            if is_due {
                numbers.push(*number);
            }
            !is_due
        });
        numbers.sort_unstable();
        if !numbers.is_empty() {
            return self.send_reports(link, &numbers).await;
        }
        if link.silent_for() >= HEARTBEAT_INTERVAL {
            return self.send(link, v1::WorkerMessage::default()).await;
        }
        Ok(())
    }

    /// Reports expired leases, and sets the time of the next check.
    fn expire(&mut self) {
        let now = Instant::now();
        for lease in self.shared.leases.expired(now) {
            let reason = "the lease ran out before it could be renewed".to_owned();
            self.emit_lost(lease, None, reason);
        }
        let pace = self
            .shared
            .leases
            .shortest()
            .map_or(PACE_MAX, |lease| lease / 12);
        self.tick_at = now + pace.clamp(PACE_MIN, PACE_MAX);
    }

    /// Handles a lost lease: reports it to the worker, unless the worker never saw the job.
    fn emit_lost(&mut self, lease: LeaseRef, state: Option<JobState>, reason: String) {
        if self.unconfirmed.remove(&lease.token).is_some() {
            // Its credit was not used.
            self.shared.granted.fetch_add(1, Ordering::AcqRel);
            self.shared.changed.notify_one();
            return;
        }
        self.emit(WorkEvent::LeaseLost(LostLease {
            lease,
            state,
            reason,
        }));
    }

    fn receive(&mut self, link: &mut Link, message: v1::ServerMessage) -> Result<(), Error> {
        if let Some(welcome) = message.welcome {
            self.shared.connected.send_replace(true);
            self.emit(WorkEvent::Connected {
                version: welcome.version,
                shard: welcome.shard,
            });
        }
        for number in message.completed {
            let done = ReportAnswer::Ended {
                state: JobState::Succeeded,
                retry_at: None,
                repeat: false,
            };
            self.on_answer(number, Ok(done));
        }
        for wire in message.answers {
            self.on_answer(wire.number, convert::answer(wire));
        }
        for lost in message.lost {
            self.on_lease_lost(lost)?;
        }
        if !message.deliveries.is_empty() {
            let since = link.sent_at(message.heard);
            self.deliver(convert::deliveries(message.deliveries, since), since);
        }
        self.batches_received = self.batches_received.max(message.batch);
        if message.drain {
            self.is_draining = true;
            self.emit(WorkEvent::Draining);
        }
        Ok(())
    }

    fn on_lease_lost(&mut self, lost: v1::LeaseLost) -> Result<(), Error> {
        let lease = LeaseRef {
            job: lost.job,
            token: LeaseToken(lost.token),
        };
        let state = job_state(At::top("state"), lost.state)?;
        // The answer to its report shows the end of a reported attempt.
        if let Some(entry) = self.shared.leases.remove(&lease.token)
            && !entry.is_reported
        {
            self.emit_lost(lease, state, lost.reason);
        }
        Ok(())
    }

    /// Accepts jobs. A job that was delivered before is not passed on again.
    fn deliver(&mut self, deliveries: Vec<Delivery>, since: Instant) {
        let now = Instant::now();
        let mut fresh = Vec::with_capacity(deliveries.len());
        let mut leases = self.shared.leases.lock();
        for delivery in deliveries {
            let token = delivery.lease.token.clone();
            if leases.contains_key(&token) {
                continue;
            }
            self.credits = self.credits.saturating_sub(1);
            let is_late = now >= since + delivery.lease_for * 2 / 3;
            let lease_for = delivery.lease_for;
            leases.insert(
                token.clone(),
                HeldLease {
                    job: delivery.lease.job.clone(),
                    length: lease_for,
                    // The lease of a late one may have expired: the answer to its renewal shows it.
                    expires_at: if is_late {
                        now + lease_for
                    } else {
                        delivery.expires_at
                    },
                    renew_at: if is_late { now } else { since + lease_for / 3 },
                    is_reported: false,
                },
            );
            if is_late {
                self.unconfirmed.insert(token, delivery);
            } else {
                fresh.push(delivery);
            }
        }
        drop(leases);
        if !self.unconfirmed.is_empty() {
            self.tick_at = now;
        }
        if !fresh.is_empty() {
            self.emit(WorkEvent::Jobs(fresh));
        }
    }

    fn on_answer(&mut self, number: u64, result: ReportResult) {
        if let Err(error) = &result
            && error.is_retryable()
        {
            let after = error.retry_after().unwrap_or(SEND_AGAIN_AFTER);
            self.deferred.push((Instant::now() + after, number));
            return;
        }
        let Some(pending) = self.pending.remove(number) else {
            return;
        };
        self.apply_answer(&pending, &result);
        self.pending.answer(&pending, result);
    }

    /// Applies an answer to the lease.
    fn apply_answer(&mut self, pending: &Pending, result: &ReportResult) {
        let token = &pending.lease.token;
        match result {
            Ok(ReportAnswer::Renewed { lease_for }) => {
                self.shared
                    .leases
                    .renewed(token, pending.sent_at, *lease_for);
                if let Some(mut delivery) = self.unconfirmed.remove(token) {
                    delivery.expires_at = pending.sent_at + *lease_for;
                    self.emit(WorkEvent::Jobs(vec![delivery]));
                }
            }
            Ok(ReportAnswer::Ended { .. }) => drop(self.shared.leases.remove(token)),
            Err(error) if error.code() == code::LEASE_LOST => {
                let entry = self.shared.leases.remove(token);
                if entry.is_some_and(|entry| !entry.is_reported) {
                    self.emit_lost(pending.lease.clone(), None, error.message().to_owned());
                }
            }
            // Refused for another reason: the attempt continues, and may be reported otherwise.
            Err(_) if ends_attempt(&pending.report) => {
                if let Some(entry) = self.shared.leases.lock().get_mut(token) {
                    entry.is_reported = false;
                }
            }
            Ok(ReportAnswer::Logged { .. }) | Err(_) => {}
        }
    }
}

fn ends_attempt(report: &Report) -> bool {
    matches!(
        report,
        Report::Complete { .. } | Report::Fail(_) | Report::Release(_)
    )
}

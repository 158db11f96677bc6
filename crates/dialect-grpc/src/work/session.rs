//! One worker's stream.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{FuturesUnordered, StreamExt};
use ganger_access::BytesInProcess;
use ganger_proto::v1;
use ganger_shard::{CallError, Delivery, GatheredRequests};
use ganger_types::command::Lease;
use ganger_types::{JobKey, LeaseToken, RequestId};
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::{Status, Streaming};

use super::holders::{Holder, OpenStream};
use super::outgoing::{Message, give_back};
use super::reports::{Applied, Batch};
use super::{
    ADOPTED_MAX, BATCH_JOBS_MAX, CREDITS_MAX, LEASE_WAIT_MAX, MESSAGE_BYTES_MAX,
    REPORTS_IN_FLIGHT_MAX, REPORTS_MAX, SIGN_OF_LIFE_EVERY, SILENCE_MAX, SLOW_MAX,
};
use crate::ServiceContext;
use crate::decode::StreamSettings;
use crate::encode;
use crate::problem::Problem;

/// Pause before the next lease request after the shard refused one.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// Maximum number of messages that are applied together, so that a flood of empty ones does not keep the stream busy.
const MESSAGES_GATHERED_MAX: usize = 256;
/// Maximum number of reports of several messages that are applied together; a message with more is applied whole.
const REPORTS_GATHERED_MAX: usize = 1_024;
/// Maximum number of lost leases that wait to be reported.
const NOTICES_MAX: usize = 1_024;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Granted = (u64, Result<Vec<Delivery>, CallError>);

/// Why a stream ends: with an error for the worker, or because the worker is gone.
enum End {
    Refused(Problem),
    Gone,
}

impl From<Problem> for End {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

/// State of the stream of one worker.
pub(crate) struct Session {
    context: ServiceContext,
    /// Keeps the watch for lost leases running.
    _open: OpenStream,
    settings: StreamSettings,
    out: mpsc::Sender<Message>,
    /// Number of jobs that the worker can still take.
    credits: u32,
    /// Number of messages received from the worker.
    messages_received: u64,
    /// Number of the last batch of deliveries.
    batch: u64,
    /// The lease request that is waiting, if there are credits.
    asking: Option<Boxed<Granted>>,
    in_flight: FuturesUnordered<Boxed<Applied>>,
    reports_in_flight: usize,
    /// Bytes of the messages whose reports are in flight.
    bytes_in_flight: usize,
    /// Tells the transport the bytes in flight.
    in_process: BytesInProcess,
    held: HashMap<LeaseToken, JobKey>,
    /// Jobs that came on an earlier stream, known by their renewals on this one.
    adopted: HashSet<LeaseToken>,
    notices: mpsc::Receiver<v1::LeaseLost>,
    notices_sender: mpsc::Sender<v1::LeaseLost>,
    draining: watch::Receiver<bool>,
    is_draining: bool,
}

impl Session {
    pub(crate) fn new(
        context: ServiceContext,
        settings: StreamSettings,
        out: mpsc::Sender<Message>,
        in_process: BytesInProcess,
    ) -> Self {
        let (notices_sender, notices) = mpsc::channel(NOTICES_MAX);
        Self {
            draining: context.options.draining.clone(),
            batch: settings.batches_received,
            _open: context.holders.enter(),
            context,
            settings,
            out,
            credits: 0,
            messages_received: 0,
            asking: None,
            in_flight: FuturesUnordered::new(),
            reports_in_flight: 0,
            bytes_in_flight: 0,
            in_process,
            held: HashMap::new(),
            adopted: HashSet::new(),
            notices,
            notices_sender,
            is_draining: false,
        }
    }

    /// Runs until the worker has gone, was silent or slow for too long, or broke the rules.
    pub(crate) async fn run(
        mut self,
        first: v1::WorkerMessage,
        mut incoming: Streaming<v1::WorkerMessage>,
    ) {
        let end = self.serve(first, &mut incoming).await;
        if let Err(End::Refused(problem)) = end {
            let status: Status = problem.into();
            timeout(SLOW_MAX, self.out.send(Err(status))).await.ok();
        }
        let mut map = self.context.holders.lock();
        for key in self.held.values() {
            map.remove(key);
        }
    }

    async fn serve(
        &mut self,
        first: v1::WorkerMessage,
        incoming: &mut Streaming<v1::WorkerMessage>,
    ) -> Result<(), End> {
        self.welcome().await?;
        self.receive(first, incoming)?;
        let mut silent_until = Instant::now() + SILENCE_MAX;
        let mut sign_at = Instant::now() + SIGN_OF_LIFE_EVERY;
        // Made once: a message costs no timer and no registration.
        let mut timer = pin!(sleep_until(sign_at.min(silent_until)));
        let (out, stopping) = (self.out.clone(), self.context.options.stopping.clone());
        let mut closed = pin!(out.closed());
        let mut stopped = pin!(stopping.cancelled());
        loop {
            if self.is_draining && self.is_idle() {
                return Ok(());
            }
            self.ask_alone();
            let may_read = self.reports_in_flight < REPORTS_IN_FLIGHT_MAX;
            tokio::select! {
                biased;
                // Before the answers to reports, so that both go out in one message if both are here.
                granted = waiting(&mut self.asking) => {
                    self.asking = None;
                    let is_alone = granted.1.as_ref().is_ok_and(|jobs| jobs.len() == 1);
                    self.deliver(granted).await?;
                    if is_alone {
                        // It goes out before more are asked for, which wakes the shard. Many are worth no such haste.
                        yield_now().await;
                    }
                }
                Some(applied) = self.in_flight.next() => {
                    let message = self.take_applied(applied);
                    self.send(message).await?;
                }
                message = incoming.message(), if may_read => {
                    let message = message.map_err(|_| End::Gone)?.ok_or(End::Gone)?;
                    silent_until = Instant::now() + SILENCE_MAX;
                    self.receive(message, incoming)?;
                }
                Some(lost) = self.notices.recv() => self.send_lost(lost).await?,
                () = drain_requested(&mut self.draining), if !self.is_draining => self.drain().await?,
                () = timer.as_mut() => {
                    let now = Instant::now();
                    if now >= silent_until {
                        let message = format!("no message came for {SILENCE_MAX:?}: connect again");
                        return Err(Problem::new("stream_silent", message).into());
                    }
                    if now >= sign_at {
                        sign_at = now + SIGN_OF_LIFE_EVERY;
                        self.send(v1::ServerMessage::default()).await?;
                    }
                    timer.as_mut().reset(sign_at.min(silent_until));
                }
                () = closed.as_mut() => return Err(End::Gone),
                () = stopped.as_mut() => return Err(Problem::stopping().into()),
            }
        }
    }

    /// Whether the worker holds no job that this stream knows, and waits for no answer.
    fn is_idle(&self) -> bool {
        self.held.is_empty() && self.adopted.is_empty() && self.in_flight.is_empty()
    }

    /// Takes the answers to reports; returns the message to send them in.
    fn take_applied(&mut self, applied: Applied) -> v1::ServerMessage {
        self.reports_in_flight -= applied.reports;
        self.bytes_in_flight -= applied.bytes;
        self.in_process.set(self.bytes_in_flight);
        self.note_renewed(applied.renewed);
        applied.message
    }

    /// Records from the answers to renewals which jobs the worker holds.
    fn note_renewed(&mut self, renewed: Vec<(LeaseToken, bool)>) {
        for (token, is_held) in renewed {
            if !is_held {
                self.held.remove(&token);
                self.adopted.remove(&token);
            } else if !self.held.contains_key(&token) && self.adopted.len() < ADOPTED_MAX {
                self.adopted.insert(token);
            }
        }
    }

    /// Takes the answers to reports that the shard has given together with a lease: the message to send them in.
    fn answers_ready(&mut self) -> v1::ServerMessage {
        match self.in_flight.next().now_or_never().flatten() {
            Some(applied) => self.take_applied(applied),
            None => v1::ServerMessage::default(),
        }
    }

    async fn welcome(&mut self) -> Result<(), End> {
        let welcome = v1::Welcome {
            version: self.context.options.version.clone(),
            shard: self.context.handle.id().to_string(),
        };
        self.send(v1::ServerMessage {
            welcome: Some(welcome),
            ..v1::ServerMessage::default()
        })
        .await
    }

    /// Takes a message and those that have arrived after it: the reports of all, then their credits.
    fn receive(
        &mut self,
        first: v1::WorkerMessage,
        incoming: &mut Streaming<v1::WorkerMessage>,
    ) -> Result<(), End> {
        let mut reports = Vec::new();
        let bytes_before = self.bytes_in_flight;
        let mut taken = self.take_message(first, &mut reports);
        for _ in 1..MESSAGES_GATHERED_MAX {
            if taken.is_err() || reports.len() >= REPORTS_GATHERED_MAX {
                break;
            }
            // A stream that has ended says so again when it is read next.
            let Some(Ok(Some(message))) = incoming.message().now_or_never() else {
                break;
            };
            taken = self.take_message(message, &mut reports);
        }
        // Together, so that one turn of the shard ends the reported attempts and grants the next ones.
        let mut requests = self.context.handle.gather();
        if reports.is_empty() {
            self.bytes_in_flight = bytes_before;
            self.in_process.set(bytes_before);
        } else {
            let bytes = self.bytes_in_flight - bytes_before;
            self.report(reports, bytes, &mut requests);
        }
        if taken.is_ok() {
            self.ask(&mut requests);
        }
        requests.send();
        taken
    }

    /// Takes the credits of a message, and adds its reports to `reports`.
    fn take_message(
        &mut self,
        message: v1::WorkerMessage,
        reports: &mut Vec<v1::Report>,
    ) -> Result<(), End> {
        self.messages_received += 1;
        self.bytes_in_flight += message.encoded_len();
        self.in_process.set(self.bytes_in_flight);
        if message.hello.is_some() {
            return Err(
                Problem::new("duplicate_field", "hello: this stream has had one already").into(),
            );
        }
        if message.credits_dropped {
            // Dropping a waiting request gives back what it may just have been granted.
            self.asking = None;
            self.credits = 0;
        }
        self.credits = self.credits.saturating_add(message.credits_added);
        if self.credits > CREDITS_MAX {
            let reason = format_args!(
                "{} unused credits, the limit is {CREDITS_MAX}",
                self.credits
            );
            return Err(Problem::invalid("credits_added", reason).into());
        }
        if message.reports.len() > REPORTS_MAX {
            return Err(Problem::too_large("reports", message.reports.len(), REPORTS_MAX).into());
        }
        if reports.is_empty() {
            *reports = message.reports;
        } else {
            reports.extend(message.reports);
        }
        Ok(())
    }

    /// Adds the reports of messages of `bytes` together to the requests.
    fn report(&mut self, reports: Vec<v1::Report>, bytes: usize, requests: &mut GatheredRequests) {
        let batch = Batch::new(
            self.context.handle.id(),
            &self.settings.lease.namespace,
            reports,
            bytes,
        );
        batch.forget(&mut self.held, &mut self.adopted, &self.context.holders);
        self.reports_in_flight += batch.len();
        self.in_flight.push(Box::pin(batch.apply(requests)));
    }

    /// Requests jobs without reports; see [`Session::ask`].
    fn ask_alone(&mut self) {
        let mut requests = self.context.handle.gather();
        self.ask(&mut requests);
        requests.send();
    }

    /// Requests jobs from the shard, unless a request is in progress or the worker can take none.
    fn ask(&mut self, requests: &mut GatheredRequests) {
        if self.asking.is_some() || self.credits == 0 || self.is_draining {
            return;
        }
        let request = (!self.settings.session.is_empty())
            .then(|| RequestId::new(format!("{}/{}", self.settings.session, self.batch + 1)).ok())
            .flatten();
        let lease = Lease {
            jobs_max: self.credits.min(BATCH_JOBS_MAX),
            request,
            ..self.settings.lease.clone()
        };
        let wait = lease
            .lease_for
            .map_or(LEASE_WAIT_MAX, |lease| (lease / 6).min(LEASE_WAIT_MAX));
        let received = self.messages_received;
        let granted = requests.lease(lease, wait);
        self.asking = Some(Box::pin(async move {
            let granted = granted.await;
            if granted.is_err() {
                sleep(ASK_AGAIN_AFTER).await;
            }
            (received, granted)
        }));
    }

    /// Sends a batch, in messages of a bounded size.
    async fn deliver(&mut self, (received, granted): Granted) -> Result<(), End> {
        let deliveries = match granted {
            Ok(deliveries) if deliveries.is_empty() => return Ok(()),
            Ok(deliveries) => deliveries,
            // StreamSettings again after a pause; meanwhile reports go on.
            Err(
                CallError::Overloaded { .. }
                | CallError::Unavailable { .. }
                | CallError::Full { .. },
            ) => {
                return Ok(());
            }
            Err(error) => return Err(Problem::from(error).into()),
        };
        self.batch += 1;
        let count = u32::try_from(deliveries.len()).unwrap_or(u32::MAX);
        self.credits = self.credits.saturating_sub(count);
        let first = self.answers_ready();
        let mut messages = self.messages(first, deliveries);
        if let Some(last) = messages.last_mut() {
            last.batch = self.batch;
        }
        let mut messages = messages.into_iter();
        while let Some(mut message) = messages.next() {
            message.heard = received;
            if let Err(end) = self.send(message).await {
                let unsent: Vec<_> = messages.flat_map(|message| message.deliveries).collect();
                give_back(
                    &self.context.handle,
                    &self.settings.lease.namespace,
                    &unsent,
                );
                return Err(end);
            }
        }
        Ok(())
    }

    /// Makes messages of a bounded size. `first` may have answers already.
    fn messages(
        &mut self,
        first: v1::ServerMessage,
        deliveries: Vec<Delivery>,
    ) -> Vec<v1::ServerMessage> {
        // Answers with errors may be long.
        let mut bytes = if first.answers.is_empty() {
            0
        } else {
            MESSAGE_BYTES_MAX
        };
        let mut messages = vec![first];
        self.note_holders(&deliveries);
        let shard = self.context.handle.id();
        for delivery in deliveries {
            let inputs = delivery.inputs.iter().map(|input| input.len() + 8);
            let size = 256 + delivery.payload.len() + inputs.sum::<usize>();
            if bytes > 0 && bytes + size > MESSAGE_BYTES_MAX {
                messages.push(v1::ServerMessage::default());
                bytes = 0;
            }
            bytes += size;
            messages
                .last_mut()
                .expect("there is always one message")
                .deliveries
                .push(encode::delivery(shard, delivery));
        }
        messages
    }

    /// Registers the jobs of a batch, so that the loss of their leases is reported.
    fn note_holders(&mut self, deliveries: &[Delivery]) {
        let mut map = self.context.holders.lock();
        for Delivery { grant, .. } in deliveries {
            self.held.insert(grant.token, grant.key);
            // All jobs of qless have one key: who holds one of them learns of its end with the next renewal.
            if grant.key != JobKey::OF_QLESS {
                let holder = Holder {
                    attempt: grant.attempt,
                    job: grant.job.clone(),
                    token: grant.token,
                    notices: self.notices_sender.clone(),
                };
                map.insert(grant.key, holder);
            }
        }
    }

    /// Reports a lost lease, together with others that wait.
    async fn send_lost(&mut self, first: v1::LeaseLost) -> Result<(), End> {
        let mut lost = vec![first];
        while let Ok(more) = self.notices.try_recv() {
            lost.push(more);
        }
        for one in &lost {
            if let Some(token) = LeaseToken::from_bytes(&one.token) {
                self.held.remove(&token);
            }
        }
        self.send(v1::ServerMessage {
            lost,
            ..v1::ServerMessage::default()
        })
        .await
    }

    async fn drain(&mut self) -> Result<(), End> {
        self.is_draining = true;
        self.asking = None;
        self.send(v1::ServerMessage {
            drain: true,
            ..v1::ServerMessage::default()
        })
        .await
    }

    /// Sends a message. If the worker is gone or reads nothing for too long, releases the deliveries in it.
    async fn send(&mut self, message: v1::ServerMessage) -> Result<(), End> {
        let refused = match self.out.send_timeout(Ok(message), SLOW_MAX).await {
            Ok(()) => return Ok(()),
            Err(
                mpsc::error::SendTimeoutError::Closed(message)
                | mpsc::error::SendTimeoutError::Timeout(message),
            ) => message,
        };
        if let Ok(message) = refused {
            give_back(
                &self.context.handle,
                &self.settings.lease.namespace,
                &message.deliveries,
            );
        }
        Err(End::Gone)
    }
}

/// Waits for the answer to the lease request; forever, if there is none.
async fn waiting(asking: &mut Option<Boxed<Granted>>) -> Granted {
    match asking {
        Some(asking) => asking.await,
        None => std::future::pending().await,
    }
}

/// Waits until the server is about to stop; forever, if it never announces that.
pub(super) async fn drain_requested(draining: &mut watch::Receiver<bool>) {
    if draining.wait_for(|draining| *draining).await.is_err() {
        std::future::pending::<()>().await;
    }
}

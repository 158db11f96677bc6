//! What a relay remembers of a worker's stream, so that it can go on at another node.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use ganger_proto::v1;
use prost::Message as _;

use super::envelope::{Delivered, ServerEnvelope, WorkerEnvelope, number};
use crate::work::{MESSAGE_BYTES_MAX, REPORTS_IN_FLIGHT_MAX, REPORTS_MAX};

/// Bytes of reports without an answer, beyond which nothing more is read from the worker.
const UNANSWERED_BYTES_MAX: usize = 16 << 20;

/// State of a worker's stream. The worker's side of it goes on; the shard's side, called the inner stream, may end and
/// be opened again.
#[derive(Default)]
pub(super) struct StreamState {
    /// The worker's hello; `None` before it came, or if it cannot be read.
    hello: Option<v1::Hello>,
    /// Number of messages received from the worker.
    received: u64,
    /// Number of jobs that the worker can still take.
    credits: u32,
    /// Reports without an answer, by their numbers; with each its place in the order of all reports.
    unanswered: HashMap<u64, (u64, Bytes)>,
    /// Number of reports received.
    reports: u64,
    /// Bytes of the reports without an answer.
    unanswered_bytes: usize,
    /// Number of the last batch of deliveries that was passed on whole.
    batch: u64,
    /// Tokens of the deliveries of the batch after it that were passed on.
    passed: HashSet<Bytes>,
    /// Tokens among those that came on an earlier inner stream. The session sends them again.
    repeated: HashSet<Bytes>,
    is_welcomed: bool,
    inner: InnerState,
}

/// State of the inner stream that is open.
#[derive(Default)]
struct InnerState {
    /// Number of messages with which it began.
    first_messages: u64,
    /// Number of the worker's messages that these stand for.
    stand_for: u64,
    /// Number of messages passed to it.
    sent: u64,
    /// Number of the last of them that dropped the credits.
    dropped_at: u64,
    /// Credits that the shard has for this stream.
    credits: u32,
    /// Whether further credits are kept back until the first batch is whole. It may have more jobs than the shard has
    /// credits, as the worker has some of them already; how many credits are left then is known only without others on
    /// their way.
    keeps_credits: bool,
}

impl StreamState {
    /// Whether another message of the worker may be read.
    pub(super) fn has_room(&self) -> bool {
        self.unanswered.len() < REPORTS_IN_FLIGHT_MAX
            && self.unanswered_bytes < UNANSWERED_BYTES_MAX
    }

    /// Returns the bytes of reports without an answer.
    pub(super) fn unanswered_bytes(&self) -> usize {
        self.unanswered_bytes
    }

    /// Notes a message of the worker.
    pub(super) fn receive(&mut self, message: &WorkerEnvelope) {
        self.received += 1;
        if let (None, Some(hello)) = (&self.hello, &message.hello) {
            self.hello = v1::Hello::decode(hello.clone()).ok();
            self.batch = self.hello.as_ref().map_or(0, |it| it.batches_received);
        }
        if message.credits_dropped {
            self.credits = 0;
        }
        self.credits = self.credits.saturating_add(message.credits_added);
        for report in &message.reports {
            // The shard refuses one that cannot be read, and the stream ends.
            if let Some(number) = number(report) {
                self.reports += 1;
                self.unanswered_bytes += report.len();
                let kept = (self.reports, report.clone());
                if let Some((_, earlier)) = self.unanswered.insert(number, kept) {
                    self.unanswered_bytes -= earlier.len();
                }
            }
        }
    }

    /// Returns a message of the worker as it is passed to the inner stream. Call [`StreamState::receive`] before.
    pub(super) fn pass_in(&mut self, mut message: WorkerEnvelope) -> WorkerEnvelope {
        let inner = &mut self.inner;
        inner.sent += 1;
        if message.credits_dropped {
            inner.dropped_at = inner.sent;
            inner.credits = 0;
            inner.keeps_credits = false;
        }
        if inner.keeps_credits {
            message.credits_added = 0;
            return message;
        }
        inner.credits = inner.credits.saturating_add(message.credits_added);
        // Jobs that were sent twice have used two credits there and one here, and others were kept back.
        let missing = self.credits.saturating_sub(inner.credits);
        message.credits_added = message.credits_added.saturating_add(missing);
        inner.credits += missing;
        message
    }

    /// Returns the messages with which a new inner stream begins: the hello, the unused credits, and the reports without
    /// an answer in their order. A report that had been accepted is answered as a repeat.
    pub(super) fn resume(&mut self) -> Vec<WorkerEnvelope> {
        let hello = self.hello.as_mut().map(|hello| {
            hello.batches_received = self.batch;
            hello.encode_to_vec().into()
        });
        let mut reports: Vec<_> = self.unanswered.values().cloned().collect();
        reports.sort_unstable_by_key(|(place, _)| *place);
        let mut messages = Vec::new();
        let mut last = WorkerEnvelope {
            hello,
            credits_added: self.credits,
            ..WorkerEnvelope::default()
        };
        let mut bytes = 0;
        for (_, report) in reports {
            let is_full = bytes + report.len() > MESSAGE_BYTES_MAX && !last.reports.is_empty();
            if is_full || last.reports.len() >= REPORTS_MAX {
                messages.push(std::mem::take(&mut last));
                bytes = 0;
            }
            bytes += report.len();
            last.reports.push(report);
        }
        messages.push(last);
        self.repeated.extend(self.passed.drain());
        let count = u64::try_from(messages.len()).unwrap_or(u64::MAX);
        self.inner = InnerState {
            first_messages: count,
            stand_for: self.received,
            sent: count,
            dropped_at: 0,
            credits: self.credits,
            keeps_credits: self.credits > 0 && !self.repeated.is_empty(),
        };
        messages
    }

    /// Returns a message of the inner stream as it is passed to the worker: without a second welcome, without a drain,
    /// which concerns the node of the inner stream, and without deliveries that the worker has already.
    pub(super) fn pass_out(&mut self, mut message: ServerEnvelope) -> ServerEnvelope {
        if std::mem::replace(&mut self.is_welcomed, true) {
            message.welcome = None;
        }
        message.drain = false;
        let answered = message.answers.iter().filter_map(number);
        for number in message.completed.iter().copied().chain(answered) {
            if let Some((_, report)) = self.unanswered.remove(&number) {
                self.unanswered_bytes -= report.len();
            }
        }
        if !message.deliveries.is_empty() {
            self.pass_deliveries(&mut message);
        }
        if message.batch > 0 {
            self.batch = message.batch;
            self.inner.keeps_credits = false;
            self.passed.clear();
            self.repeated.clear();
        }
        message
    }

    /// Whether the shard sends deliveries again that were lost with an inner stream.
    fn has_session(&self) -> bool {
        let hello = self.hello.as_ref();
        hello.is_some_and(|hello| !hello.session.is_empty())
    }

    fn pass_deliveries(&mut self, message: &mut ServerEnvelope) {
        let uses = |credits: &mut u32, count: usize| {
            *credits = credits.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        };
        // Those that were on their way when the credits were dropped have used the dropped ones.
        let uses_credits = message.heard >= self.inner.dropped_at;
        if uses_credits {
            uses(&mut self.inner.credits, message.deliveries.len());
        }
        // Most batches come in one message, whole.
        if self.has_session() && !(message.batch > 0 && self.repeated.is_empty()) {
            let (passed, repeated) = (&mut self.passed, &self.repeated);
            message.deliveries.retain(|delivery| {
                let Some(Delivered { token, .. }) = Delivered::read(delivery) else {
                    return true;
                };
                let is_new = !repeated.contains(&token);
                passed.insert(token);
                is_new
            });
        }
        if uses_credits {
            uses(&mut self.credits, message.deliveries.len());
        }
        let further = message.heard.saturating_sub(self.inner.first_messages);
        message.heard = self.inner.stand_for + further;
    }
}

#[cfg(test)]
mod tests;

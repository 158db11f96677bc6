//! One connection of the stream.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ganger_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::client::Client;
use crate::error::Error;

/// Maximum number of messages queued for the connection.
const QUEUED_MESSAGES_MAX: usize = 32;
/// Maximum number of sending times kept; beyond it every other one is dropped.
const TIMES_MAX: usize = 4_096;

/// One connection of the stream.
pub(crate) struct Link {
    pub(crate) out: mpsc::Sender<v1::WorkerMessage>,
    pub(crate) incoming: tonic::Streaming<v1::ServerMessage>,
    times: SendTimes,
}

impl Link {
    /// Connects; `first` carries the hello.
    pub(crate) async fn open(client: Client, first: v1::WorkerMessage) -> Result<Self, Error> {
        let (out, messages) = mpsc::channel(QUEUED_MESSAGES_MAX);
        let mut times = SendTimes::default();
        times.note(Instant::now());
        // The queue has room for the first message.
        out.try_send(first).ok();
        let mut wire = client.leases_wire();
        let call = wire.work(ReceiverStream::new(messages));
        let incoming = client.in_time(Duration::ZERO, call).await?.into_inner();
        Ok(Self {
            out,
            incoming,
            times,
        })
    }

    /// Records that a message is about to be sent.
    pub(crate) fn note_sending(&mut self) {
        self.times.note(Instant::now());
    }

    /// Returns the time since the last message was sent.
    pub(crate) fn silent_for(&self) -> Duration {
        self.times.last().map_or(Duration::ZERO, |at| at.elapsed())
    }

    /// Returns when the last message that the server had received before a grant was sent: the lease cannot have
    /// begun before that, so counted from there it surely lasts.
    pub(crate) fn sent_at(&mut self, received: u64) -> Instant {
        self.times.sent_at(received)
    }
}

/// Sending time of each message, by its number from 1.
#[derive(Default)]
struct SendTimes {
    count: u64,
    times: VecDeque<(u64, Instant)>,
}

impl SendTimes {
    fn note(&mut self, now: Instant) {
        self.count += 1;
        self.times.push_back((self.count, now));
        if self.times.len() > TIMES_MAX {
            let mut keep = false;
            self.times.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    fn last(&self) -> Option<Instant> {
        self.times.back().map(|(_, at)| *at)
    }

    /// Returns the time of message `received`, or of the nearest earlier one that is still known, which is always safe.
    /// Later grants have received at least as many, so older times are dropped.
    fn sent_at(&mut self, received: u64) -> Instant {
        while self.times.len() > 1 && self.times[1].0 <= received {
            self.times.pop_front();
        }
        self.times.front().map_or_else(Instant::now, |(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_counted_from_a_message_heard_before_it() {
        let start = Instant::now();
        let mut times = SendTimes::default();
        for second in 0..10 {
            times.note(start + Duration::from_secs(second));
        }
        assert_eq!(times.sent_at(1), start);
        assert_eq!(times.sent_at(4), start + Duration::from_secs(3));
        assert_eq!(times.sent_at(10), start + Duration::from_secs(9));
    }

    #[test]
    fn a_forgotten_time_is_replaced_by_an_earlier_one() {
        let start = Instant::now();
        let mut times = SendTimes::default();
        for message in 0..10_000 {
            times.note(start + Duration::from_millis(message));
        }
        assert!(times.times.len() <= TIMES_MAX);
        let received = 7_777;
        let counted = times.sent_at(received);
        assert!(counted <= start + Duration::from_millis(received - 1));
    }
}

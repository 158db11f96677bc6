//! Attempts of a job: to messages from documents, and back.

use std::time::Duration;

use ganger_document::view::attempt::{Attempt, Attempts};

use super::{calendar, us};
use crate::v1;

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl From<Attempts> for v1::AttemptsReply {
    fn from(document: Attempts) -> Self {
        let attempts = document.attempts.into_iter().map(|it| v1::JobAttempt {
            attempt: it.attempt,
            worker: it.worker,
            leased_at_us: us(it.leased_at),
            ended_at_us: it.ended_at.map(us),
            end: it.end,
            group: it.group,
            message: it.message,
            waited_us: micros(it.waited_for),
            ran_us: micros(it.ran_for),
            log_bytes: it.log_bytes,
        });
        Self {
            attempts: attempts.collect(),
            history_dropped: document.history_dropped,
        }
    }
}

impl From<v1::AttemptsReply> for Attempts {
    fn from(wire: v1::AttemptsReply) -> Self {
        let attempts = wire.attempts.into_iter().map(|it| Attempt {
            attempt: it.attempt,
            worker: it.worker,
            leased_at: calendar(it.leased_at_us),
            ended_at: it.ended_at_us.map(calendar),
            end: it.end,
            group: it.group,
            message: it.message,
            waited_for: Duration::from_micros(it.waited_us),
            ran_for: Duration::from_micros(it.ran_us),
            log_bytes: it.log_bytes,
        });
        Self {
            attempts: attempts.collect(),
            history_dropped: wire.history_dropped,
        }
    }
}

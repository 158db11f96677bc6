//! The rate at which a sender sends: one that is silent or slow for too long is cut off.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ganger_access::BodyCut;
use tokio::time::{Instant, Sleep, sleep_until};

/// Longest silence of a sender in the middle of a body or message.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// Minimum rate of a body or message, enforced from [`SILENT_MAX`] after its start.
const BYTES_PER_SECOND_MIN: u64 = 1 << 10;

/// Measures the rate of a body.
#[derive(Default)]
pub(super) struct BodyRate {
    /// Start of the body, or of a stream's current message; `None` before it.
    begun: Option<Instant>,
    bytes: u64,
    last: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl BodyRate {
    pub(super) fn record(&mut self, bytes: usize, now: Instant) {
        self.begun.get_or_insert(now);
        self.last = Some(now);
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
        self.sleep = None;
    }

    /// Ready with the reason once the sender has been silent or slow for too long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, is_rated: bool) -> Poll<BodyCut> {
        loop {
            let at = match self.check_deadline(Instant::now(), is_rated) {
                Ok(at) => at,
                Err(cut) => return Poll::Ready(cut),
            };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(at)));
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
        }
    }

    /// Returns the sender's next deadline; the reason if it has passed.
    fn check_deadline(&mut self, now: Instant, is_rated: bool) -> Result<Instant, BodyCut> {
        let begun = *self.begun.get_or_insert(now);
        let silent_at = *self.last.get_or_insert(now) + SILENT_MAX;
        let paid_for = Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN);
        let slow_at = begun + SILENT_MAX + paid_for;
        if now >= silent_at {
            return Err(BodyCut::Silent(SILENT_MAX));
        }
        if !is_rated {
            return Ok(silent_at);
        }
        if now >= slow_at {
            return Err(BodyCut::Slow(BYTES_PER_SECOND_MIN));
        }
        Ok(silent_at.min(slow_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_silent_or_slow_sender_is_cut() {
        let begun = Instant::now();
        let mut pace = BodyRate::default();
        assert_eq!(pace.check_deadline(begun, true), Ok(begun + SILENT_MAX));
        // One byte every 12 seconds is never silent, and too slow after half a minute.
        for place in 1..=2 {
            pace.record(1, begun + SECOND * 12 * place);
        }
        assert!(pace.check_deadline(begun + SECOND * 29, true).is_ok());
        let slow = pace.check_deadline(begun + SECOND * 30, true);
        assert_eq!(slow, Err(BodyCut::Slow(BYTES_PER_SECOND_MIN)));
        let with_timeouts = pace.check_deadline(begun + SECOND * 30, false);
        assert_eq!(with_timeouts, Ok(begun + SECOND * 54), "lines may be slow");
        let silent = pace.check_deadline(begun + SECOND * 54, false);
        assert_eq!(silent, Err(BodyCut::Silent(SILENT_MAX)));
        let mut fast = BodyRate::default();
        fast.record(1 << 20, begun);
        fast.record(1, begun + SECOND * 900);
        assert!(
            fast.check_deadline(begun + SECOND * 901, true).is_ok(),
            "1 MiB pays for 1,024 s"
        );
    }
}

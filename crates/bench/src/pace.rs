//! A pace: when jobs are due, whatever became of those before, and how long each took.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

/// Whether a producer may send.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A message may be sent now.
    Message,
    /// Not before this time; absent: not before jobs are completed.
    NotYet(Option<Instant>),
    /// All messages of the load have been sent.
    Nothing,
}

/// Until when a job of a pace is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Its producer knows that it is durable.
    Acknowledged,
    /// A consumer has it.
    Started,
}

/// When jobs are due, and how long each one took.
pub(crate) struct Pace {
    begun: Instant,
    interval: Duration,
    jobs: usize,
    next: AtomicUsize,
    payload_bytes: usize,
    until: Until,
    took: mpsc::UnboundedSender<Duration>,
}

impl Pace {
    /// So many jobs, the first one due after a while, whose times go to a channel.
    pub(crate) fn begin(
        after: Duration,
        interval: Duration,
        jobs: usize,
        payload_bytes: usize,
        until: Until,
        took: mpsc::UnboundedSender<Duration>,
    ) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now() + after,
            interval,
            jobs,
            next: AtomicUsize::new(0),
            payload_bytes,
            until,
            took,
        })
    }

    /// The time since the first job was due.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// A job has started that carries this payload.
    pub(crate) fn started(&self, payload: &[u8]) {
        let now = self.begun.elapsed();
        let payload = str::from_utf8(payload).unwrap_or_default();
        let sent = payload.trim_matches('"').trim().parse().unwrap_or(0);
        self.took(now.saturating_sub(Duration::from_nanos(sent)));
    }

    fn took(&self, time: Duration) {
        // Nobody counts any more once all are there.
        let _ = self.took.send(time);
    }
}

/// One producer's share of a pace.
pub(crate) struct Paced {
    pace: Arc<Pace>,
    /// The job that is due next, and whether its time had not come when it was taken.
    waiting: Option<(Instant, bool)>,
    payload: Vec<u8>,
    /// When the messages without acknowledgement were sent or due, if they are timed until then.
    unanswered: VecDeque<Instant>,
}

impl Paced {
    pub(crate) fn new(pace: &Arc<Pace>) -> Self {
        Self {
            pace: Arc::clone(pace),
            waiting: None,
            payload: Vec::new(),
            unanswered: VecDeque::new(),
        }
    }

    pub(crate) fn next(&mut self) -> Next {
        let pace = &self.pace;
        let now = Instant::now();
        let (due, is_early) = match self.waiting {
            Some(waiting) => waiting,
            None => {
                let number = pace.next.fetch_add(1, Ordering::Relaxed);
                if number >= pace.jobs {
                    return Next::Nothing;
                }
                let due = pace.begun + pace.interval * u32::try_from(number).unwrap_or(u32::MAX);
                (due, now < due)
            }
        };
        if now < due {
            self.waiting = Some((due, is_early));
            return Next::NotYet(Some(due));
        }
        self.waiting = None;
        // The timer is coarse, and none of the server's business; being late for want of a connection is.
        let sent = if is_early { now } else { due };
        self.write(sent);
        if self.pace.until == Until::Acknowledged {
            self.unanswered.push_back(sent);
        }
        Next::Message
    }

    /// The oldest messages, so many, are durable.
    pub(crate) fn acknowledged(&mut self, messages: usize) {
        let messages = messages.min(self.unanswered.len());
        for sent in self.unanswered.drain(..messages) {
            self.pace.took(sent.elapsed());
        }
    }

    fn write(&mut self, sent: Instant) {
        let nanos = sent.duration_since(self.pace.begun).as_nanos();
        let mut text = format!("\"{nanos:020}").into_bytes();
        text.resize(self.pace.payload_bytes.max(text.len() + 1) - 1, b' ');
        text.push(b'"');
        self.payload = text;
    }

    /// The payload of the job that may be sent.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_carries_the_moment_its_job_was_sent_or_due() {
        let (took, mut times) = mpsc::unbounded_channel();
        let begun = Instant::now();
        let pace = Arc::new(Pace {
            begun,
            interval: Duration::from_nanos(50),
            jobs: 2,
            next: AtomicUsize::new(1),
            payload_bytes: 40,
            until: Until::Started,
            took,
        });
        while begun.elapsed() < Duration::from_nanos(50) {}
        let mut paced = Paced::new(&pace);
        assert_eq!(paced.next(), Next::Message, "it is due");
        let text = str::from_utf8(paced.payload()).expect("it is text");
        assert_eq!(text.len(), 40);
        let sent: u64 = text
            .trim_matches('"')
            .trim()
            .parse()
            .expect("it is a number");
        assert_eq!(sent, 50, "late jobs count from when they were due");
        pace.started(text.as_bytes());
        assert!(times.try_recv().is_ok());
        assert_eq!(paced.next(), Next::Nothing);
    }

    #[test]
    fn a_job_that_is_not_due_waits_for_its_time() {
        let (took, _times) = mpsc::unbounded_channel();
        let hour = Duration::from_secs(3_600);
        let interval = Duration::from_millis(1);
        let pace = Pace::begin(hour, interval, 1, 0, Until::Started, took);
        let mut paced = Paced::new(&pace);
        assert_eq!(paced.next(), Next::NotYet(Some(pace.begun)));
        assert_eq!(paced.next(), Next::NotYet(Some(pace.begun)));
    }

    #[test]
    fn messages_are_timed_until_they_are_acknowledged() {
        let (took, mut times) = mpsc::unbounded_channel();
        let interval = Duration::from_nanos(1);
        let pace = Pace::begin(Duration::ZERO, interval, 2, 0, Until::Acknowledged, took);
        let mut paced = Paced::new(&pace);
        while paced.next() != Next::Nothing {}
        paced.acknowledged(1);
        assert!(times.try_recv().is_ok() && times.try_recv().is_err());
        paced.acknowledged(2);
        assert!(times.try_recv().is_ok() && times.try_recv().is_err());
    }
}

//! Which stream holds which job, and the watcher that tells streams of leases they have lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ganger_proto::v1;
use ganger_shard::{CallError, Handle, Subscription};
use ganger_types::{Event, Happening, JobId, JobKey, JobState, LeaseToken};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::encode::state;

/// Pause before the watcher subscribes again after the shard was not available.
const RESUBSCRIBE_AFTER: Duration = Duration::from_millis(500);

/// Jobs delivered on open streams and not yet reported.
#[derive(Clone)]
pub(crate) struct Holders(Arc<Registry>);

struct Registry {
    handle: Handle,
    map: Mutex<HashMap<JobKey, Holder>>,
    streams: Mutex<Streams>,
}

/// The streams that are open, and who watches for them: nobody, if there are none, since a watcher is woken by
/// every turn and looks at every event.
#[derive(Default)]
struct Streams {
    open: usize,
    watcher: Option<AbortHandle>,
}

/// An open stream. While there is one, lost leases are reported.
pub(crate) struct OpenStream(Holders);

/// A delivered job, and the channel for the loss of its lease.
pub(crate) struct Holder {
    pub(crate) attempt: u32,
    pub(crate) job: JobId,
    pub(crate) token: LeaseToken,
    /// Bounded; a notice that finds no room is dropped, and the next renewal tells.
    pub(crate) notices: mpsc::Sender<v1::LeaseLost>,
}

impl Holders {
    pub(crate) fn new(handle: &Handle) -> Self {
        Self(Arc::new(Registry {
            handle: handle.clone(),
            map: Mutex::default(),
            streams: Mutex::default(),
        }))
    }

    /// Counts a stream as open until the answer is dropped. Leases that end from now on are reported. To be called within a
    /// Tokio runtime.
    pub(crate) fn enter(&self) -> OpenStream {
        let mut streams = self.streams();
        streams.open += 1;
        if streams.watcher.is_none() {
            // Subscribed before the stream has any lease: the end of none is missed.
            let subscribed = self.0.handle.events(None);
            let task = tokio::spawn(watch(self.clone(), subscribed));
            streams.watcher = Some(task.abort_handle());
        }
        OpenStream(self.clone())
    }

    /// The registry, for a whole batch at a time.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<JobKey, Holder>> {
        self.0.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        let streams = self.0.streams.lock();
        streams.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut streams = self.0.streams();
        streams.open -= 1;
        if streams.open == 0
            && let Some(watcher) = streams.watcher.take()
        {
            watcher.abort();
        }
    }
}

/// Watches until it is aborted.
async fn watch(holders: Holders, mut subscribed: Result<Subscription, CallError>) {
    loop {
        let error = match &mut subscribed {
            Ok(events) => holders.send_lost(events).await,
            Err(error) => error.clone(),
        };
        tracing::debug!(%error, "until then workers learn of lost leases from renewals");
        tokio::time::sleep(RESUBSCRIBE_AFTER).await;
        subscribed = holders.0.handle.events(None);
    }
}

/// The end of an attempt or of a job.
struct Ended {
    key: JobKey,
    /// Number of the attempt; `None` if all attempts of the job have ended.
    attempt: Option<u32>,
    /// State of the job after it, as it is sent; 0 if the job is gone.
    state: i32,
    /// Why, for people; may be empty.
    reason: String,
}

impl Ended {
    /// What an event says about the end of an attempt; `None` if nothing.
    fn of(event: &Event) -> Option<Self> {
        match &event.happening {
            Happening::JobMoved {
                key,
                from: Some(JobState::Running),
                to,
                attempt,
                reason,
                ..
            } if *to != JobState::Running => Some(Self {
                key: *key,
                attempt: Some(*attempt),
                state: state(*to),
                reason: reason.clone(),
            }),
            Happening::JobRemoved { key, .. } => Some(Self {
                key: *key,
                attempt: None,
                state: 0,
                reason: "the job was deleted".to_owned(),
            }),
            _ => None,
        }
    }

    fn notice(self, holder: &Holder) -> v1::LeaseLost {
        let reason = match self.reason.as_str() {
            "" if self.state == state(JobState::Cancelled) => "the job was cancelled".to_owned(),
            "" => "the lease has ended".to_owned(),
            _ => self.reason,
        };
        v1::LeaseLost {
            job: holder.job.to_text().into_owned(),
            token: Bytes::copy_from_slice(&holder.token.to_bytes()),
            state: self.state,
            reason,
        }
    }
}

impl Holders {
    /// Reports every lease that ends, until events come no more; returns why.
    async fn send_lost(&self, events: &mut Subscription) -> CallError {
        loop {
            let ended = match events.pick(Ended::of).await {
                Ok(ended) => ended,
                Err(error) => return error,
            };
            self.notify(ended);
        }
    }

    /// Tells streams that jobs which they hold have ended.
    fn notify(&self, ended: Vec<Ended>) {
        let mut map = self.lock();
        for ended in ended {
            let is_meant = |holder: &Holder| {
                ended
                    .attempt
                    .is_none_or(|attempt| attempt == holder.attempt)
            };
            if map.get(&ended.key).is_some_and(is_meant)
                && let Some(holder) = map.remove(&ended.key)
            {
                // No room: the worker learns of it with its next renewal.
                holder.notices.try_send(ended.notice(&holder)).ok();
            }
        }
    }
}

//! Which stream holds which job, and the watcher that tells streams of leases they have lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ganger_proto::v1;
use ganger_shard::{CallError, Handle, Subscription};
use ganger_types::{Event, Happening, JobKey, JobState};
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
    pub(crate) job: String,
    pub(crate) token: Bytes,
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

/// The lease that an event ends: job, attempt (if known), where the job stands, why.
fn lost(event: &Event) -> Option<(JobKey, Option<u32>, i32, &str)> {
    match &event.happening {
        Happening::JobMoved {
            key,
            from,
            to,
            attempt,
            reason,
            ..
        } if has_left(*from, *to) => Some((*key, Some(*attempt), state(*to), reason)),
        Happening::JobRemoved { key, .. } => Some((*key, None, 0, "the job was deleted")),
        _ => None,
    }
}

impl Holders {
    /// Tells of every lease that ends, until events come no more: why not.
    async fn send_lost(&self, events: &mut Subscription) -> CallError {
        loop {
            match events.next().await {
                Ok(event) => {
                    if let Some((key, attempt, stands, reason)) = lost(&event) {
                        self.tell(key, attempt, stands, reason);
                    }
                }
                Err(error) => return error,
            }
        }
    }

    fn tell(&self, key: JobKey, attempt: Option<u32>, stands: i32, reason: &str) {
        let mut map = self.lock();
        let is_meant = map
            .get(&key)
            .is_some_and(|held| attempt.is_none_or(|attempt| attempt == held.attempt));
        if !is_meant {
            return;
        }
        let Some(holder) = map.remove(&key) else {
            return;
        };
        drop(map);
        let why = match reason {
            "" if stands == state(JobState::Cancelled) => "the job was cancelled",
            "" => "the lease has ended",
            reason => reason,
        };
        let notice = v1::LeaseLost {
            job: holder.job,
            token: holder.token,
            state: stands,
            reason: why.to_owned(),
        };
        // No room: the worker learns of it with its next renewal.
        holder.notices.try_send(notice).ok();
    }
}

/// Whether a job that was leased is leased no longer.
fn has_left(from: Option<JobState>, to: JobState) -> bool {
    from == Some(JobState::Running) && to != JobState::Running
}

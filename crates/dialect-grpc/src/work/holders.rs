//! Which stream holds which job, and the watcher that tells streams of leases they have lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use ganger_proto::v1;
use ganger_shard::{CallError, Handle};
use ganger_types::{Event, Happening, JobKey, JobState};
use tokio::sync::mpsc;

use crate::outward::{has_left, state};

/// Pause before the watcher subscribes again after the shard was not available.
const RESUBSCRIBE_AFTER: Duration = Duration::from_millis(500);

/// Jobs delivered on open streams and not yet reported.
#[derive(Clone)]
pub(crate) struct Holders {
    map: Arc<Mutex<HashMap<JobKey, Holder>>>,
}

/// One delivered job.
pub(crate) struct Holder {
    pub(crate) attempt: u32,
    pub(crate) job: String,
    pub(crate) token: Bytes,
    /// Bounded; a notice that finds no room is dropped, and the next renewal tells.
    pub(crate) notices: mpsc::Sender<v1::LeaseLost>,
}

impl Holders {
    /// Starts the watcher; it ends when nobody uses the registry any more.
    pub(crate) fn new(handle: &Handle) -> Self {
        let holders = Self {
            map: Arc::new(Mutex::new(HashMap::new())),
        };
        tokio::spawn(watch(handle.clone(), Arc::downgrade(&holders.map)));
        holders
    }

    /// The registry, for a whole batch at a time.
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<JobKey, Holder>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn watch(handle: Handle, map: Weak<Mutex<HashMap<JobKey, Holder>>>) {
    while map.strong_count() > 0 {
        if let Err(error) = watch_once(&handle, &map).await {
            tracing::debug!(%error, "lost leases are told by renewals meanwhile");
        }
        tokio::time::sleep(RESUBSCRIBE_AFTER).await;
    }
}

async fn watch_once(
    handle: &Handle,
    map: &Weak<Mutex<HashMap<JobKey, Holder>>>,
) -> Result<(), CallError> {
    let mut events = handle.events(None)?;
    loop {
        let event = events.next().await?;
        let Some(map) = map.upgrade() else {
            return Ok(());
        };
        if let Some((key, attempt, stands, reason)) = lost(&event) {
            let holders = Holders { map };
            holders.tell(key, attempt, stands, reason);
        }
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

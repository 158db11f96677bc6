//! One subscription a shard, however many pages are open: it marks the pages that an event may change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ganger_shard::{Handle, Subscription};
use ganger_types::{Event, ShardId};
use tokio::time::sleep;

use super::hub::Hub;

/// Time between two looks at the events of a shard: far less than between two states of a page.
const REST: Duration = Duration::from_millis(25);

/// The pages that are made again for the events of a shard.
type Watched = Arc<Mutex<Vec<Weak<Hub>>>>;

/// The subscriptions, by shard.
#[derive(Default)]
pub(super) struct Pumps(Mutex<HashMap<ShardId, Watched>>);

impl Pumps {
    /// Marks a page whenever an event of the shard may change it.
    pub(super) fn watch(&self, shard: &Handle, hub: &Arc<Hub>) {
        let mut pumps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = pumps.entry(shard.id().clone()).or_default();
        let mut hubs = watched.lock().unwrap_or_else(PoisonError::into_inner);
        let is_running = !hubs.is_empty();
        hubs.push(Arc::downgrade(hub));
        if !is_running {
            tokio::spawn(run(shard.clone(), Arc::clone(watched)));
        }
    }
}

/// Reads events until no page is open any more: many at a time, without copies, because a busy shard has a hundred
/// thousand of them a second.
async fn run(shard: Handle, watched: Watched) {
    let mut events: Option<Subscription> = None;
    loop {
        let subscription = match &mut events {
            Some(subscription) => subscription,
            none => match shard.events(None) {
                Ok(fresh) => none.insert(fresh),
                Err(error) => {
                    tracing::debug!(%error, "pages follow no events; they are made again at intervals");
                    lock(&watched).clear();
                    return;
                }
            },
        };
        // Looked up once for all events that are there; not before, because a page ends once nobody holds it.
        let open: Mutex<Vec<Arc<Hub>>> = Mutex::default();
        let note = |event: &Event| -> Option<()> {
            let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
            if open.is_empty() {
                *open = alive(&watched);
            }
            for hub in open.iter() {
                hub.note(event);
            }
            None
        };
        if subscription.pick(note).await.is_err() {
            // Too slow, or the shard has ended: what was missed may concern every page.
            events = None;
            for hub in alive(&watched) {
                hub.mark();
            }
            if matches!(shard.health(), ganger_shard::Health::Stopped { .. }) {
                lock(&watched).clear();
                return;
            }
        }
        drop(open);
        {
            let mut hubs = lock(&watched);
            hubs.retain(|hub| hub.strong_count() > 0);
            if hubs.is_empty() {
                return;
            }
        }
        sleep(REST).await;
    }
}

fn lock(watched: &Watched) -> MutexGuard<'_, Vec<Weak<Hub>>> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pages that are open.
fn alive(watched: &Watched) -> Vec<Arc<Hub>> {
    lock(watched).iter().filter_map(Weak::upgrade).collect()
}

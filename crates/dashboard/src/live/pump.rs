//! One subscription a shard, however many pages are open: it marks the pages that an event may change.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ganger_shard::{Handle, Subscription};
use ganger_types::ShardId;

use super::hub::Hub;

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

/// Reads events until no page is open any more.
async fn run(shard: Handle, watched: Watched) {
    let mut events: Option<Subscription> = None;
    loop {
        let subscription = match &mut events {
            Some(subscription) => subscription,
            none => match shard.events(None) {
                Ok(fresh) => none.insert(fresh),
                Err(error) => {
                    tracing::debug!(%error, "pages follow no events; they are made again at intervals");
                    watched
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .clear();
                    return;
                }
            },
        };
        match subscription.next().await {
            Ok(event) => each(&watched, |hub| hub.note(&event)),
            Err(_) => {
                // Too slow, or the shard has ended: what was missed may concern every page.
                events = None;
                each(&watched, Hub::mark);
                if matches!(shard.health(), ganger_shard::Health::Stopped { .. }) {
                    watched
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .clear();
                    return;
                }
            }
        }
        let mut hubs = watched.lock().unwrap_or_else(PoisonError::into_inner);
        hubs.retain(|hub| hub.strong_count() > 0);
        if hubs.is_empty() {
            return;
        }
    }
}

fn each(watched: &Watched, act: impl Fn(&Hub)) {
    let hubs = watched.lock().unwrap_or_else(PoisonError::into_inner);
    for hub in hubs.iter().filter_map(Weak::upgrade) {
        act(&hub);
    }
}

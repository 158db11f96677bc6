//! One page, made again after events while somebody looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ganger_shard::Handle;
use ganger_types::{Event, JobId, Namespace};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::data::events::{job_of, position, queue_of};
use crate::links::ALL_NAMESPACES;
use crate::page::{Page, Stop};
use crate::pages::{Interest, build, interest};
use crate::view::View;

/// A page is made again after so long, even without events: times since then, and workers that fall silent.
const ANYWAY_AFTER: Duration = Duration::from_secs(10);
/// Likewise a page with shards of other servers, whose events this one does not hear.
const ELSEWHERE_AFTER: Duration = Duration::from_secs(2);
/// Making all pages takes at most this part of the time of a processor: jobs come first.
const SHARE: u32 = 25;
/// Longest pause for that.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A part as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) id: &'static str,
    pub(super) print: u64,
    pub(super) html: Arc<str>,
}

/// The newest state of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) parts: Vec<Shown>,
    /// The position of each shard's events before the page was made, as `1=17,2=4`.
    pub(super) positions: String,
    /// Why there is no such page any more.
    pub(super) refusal: Option<String>,
    /// Whether another server may have the page now: the browser connects again, and finds it.
    pub(super) is_elsewhere: bool,
    /// 0 until the page was made for the first time.
    pub(super) number: u64,
}

/// A page that somebody looks at.
pub(crate) struct Hub {
    namespace: Namespace,
    interest: Interest,
    is_dirty: AtomicBool,
    dirty: Notify,
    newest: watch::Sender<Arc<Snapshot>>,
}

impl Hub {
    /// Starts to make a page, until nobody looks any more.
    pub(super) fn start(view: View, path: &str, query: &str) -> Arc<Self> {
        let hub = Arc::new(Self {
            namespace: view.namespace().clone(),
            interest: interest(path, query),
            is_dirty: AtomicBool::new(true),
            dirty: Notify::new(),
            newest: watch::Sender::new(Arc::default()),
        });
        let pace = pace(path, query);
        let task = run(
            Arc::downgrade(&hub),
            view,
            path.to_owned(),
            query.to_owned(),
            pace,
        );
        tokio::spawn(task);
        hub
    }

    pub(super) fn watch(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.newest.subscribe()
    }

    /// Notes an event that may change the page.
    pub(super) fn note(&self, event: &Event) {
        if self.is_dirty.load(Ordering::Relaxed) || !self.concerns(event) {
            return;
        }
        self.mark();
    }

    /// Notes that events were missed, or may have been.
    pub(super) fn mark(&self) {
        self.is_dirty.store(true, Ordering::Relaxed);
        self.dirty.notify_one();
    }

    fn concerns(&self, event: &Event) -> bool {
        let is_of_all = self.namespace.as_bytes() == ALL_NAMESPACES.as_bytes();
        if !is_of_all && event.namespace != self.namespace {
            return false;
        }
        match &self.interest {
            Interest { job: Some(job), .. } => concerns_job(job, event),
            Interest {
                queue: Some(queue), ..
            } => queue_of(&event.happening).is_none_or(|of| of == queue),
            _ => true,
        }
    }
}

/// Whether an event may change the page of a job. Those about its queue or its log say no id.
fn concerns_job(job: &JobId, event: &Event) -> bool {
    match &event.happening {
        ganger_types::Happening::LogAppended { .. }
        | ganger_types::Happening::QueueChanged { .. } => true,
        happening => job_of(happening).is_some_and(|of| of == job),
    }
}

/// The shortest time between two states of a page.
fn pace(path: &str, query: &str) -> Duration {
    let is_log = path == "/job" && query.split('&').any(|pair| pair == "view=log");
    match path {
        _ if is_log => Duration::from_millis(250),
        "/job" => Duration::from_millis(500),
        _ => Duration::from_secs(1),
    }
}

async fn run(
    hub: std::sync::Weak<Hub>,
    mut view: View,
    path: String,
    query: String,
    pace: Duration,
) {
    let stopping = view.site.settings.stopping.clone();
    let mut number = 0;
    loop {
        let Some(alive) = hub.upgrade() else {
            return;
        };
        // Cleared before reading: an event during the read makes the page once more.
        alive.is_dirty.store(false, Ordering::Relaxed);
        let began = Instant::now();
        number += 1;
        let (made, positions) = match view.again() {
            Ok(fresh) => {
                follow(&fresh, &view, &alive);
                view = fresh;
                let positions = positions(&view);
                (build(&view, &path, &query).await, positions)
            }
            Err(fault) => (Err(fault.into()), String::new()),
        };
        alive
            .newest
            .send_replace(Arc::new(snapshot(made, positions, number)));
        let pages = u32::try_from(view.site.hubs.open()).unwrap_or(u32::MAX);
        let share = SHARE.saturating_mul(pages.max(1));
        let pause = began.elapsed().saturating_mul(share).min(PAUSE_MAX);
        let pause = pace.max(pause);
        drop(alive);
        tokio::select! {
            () = stopping.cancelled() => return,
            () = sleep(pause) => {}
        }
        let Some(alive) = hub.upgrade() else {
            return;
        };
        let anyway_after = if view.has_elsewhere() {
            ELSEWHERE_AFTER
        } else {
            ANYWAY_AFTER
        };
        if !alive.is_dirty.load(Ordering::Relaxed) {
            tokio::select! {
                () = stopping.cancelled() => return,
                // Without an event the page is made after a while all the same.
                _ = timeout(anyway_after, alive.dirty.notified()) => {}
            }
        }
    }
}

/// Follows the events of shards that this process has got since the page was made before.
fn follow(view: &View, before: &View, hub: &Arc<Hub>) {
    for shard in view.shards() {
        let is_known = |known: &Handle| known.is_same(shard);
        if !before.shards().iter().any(is_known) {
            view.site.hubs.pumps.watch(shard, hub);
        }
    }
}

/// The positions of the events of all shards, which a page that is read now has in it.
fn positions(view: &View) -> String {
    let shards = view.shards().iter();
    let positions =
        shards.filter_map(|shard| Some(format!("{}={}", shard.id(), position(shard).ok()?.0)));
    positions.collect::<Vec<_>>().join(",")
}

fn snapshot(made: Result<Page, Stop>, positions: String, number: u64) -> Snapshot {
    match made {
        Ok(page) => Snapshot {
            parts: page
                .parts
                .into_iter()
                .map(|part| Shown {
                    id: part.id,
                    print: part.fingerprint(),
                    html: part.html.0.into(),
                })
                .collect(),
            positions,
            refusal: None,
            is_elsewhere: false,
            number,
        },
        Err(stop) => Snapshot {
            parts: Vec::new(),
            positions,
            is_elsewhere: matches!(&stop, Stop::Fault(fault) if fault.code == "shard_unreachable"),
            refusal: Some(match stop {
                Stop::Fault(fault) => fault.heading,
                Stop::Elsewhere(_) => "This page is elsewhere now".to_owned(),
            }),
            number,
        },
    }
}

//! The shards of this process, each with its own store and thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ganger_metrics::Source;
use ganger_shard::{Handle, Hooks, Ownership, Shard, StopCause, SystemClock};
use ganger_store::{Line, MemoryStore, RepeatedWarning, StoreError};
use ganger_store_embedded::EmbeddedStore;
use ganger_types::{Elapsed, ShardId};
use tokio::sync::watch;

use crate::config::Config;
use crate::error::StartError;

/// Interval between attempts to open a store on a full disk.
const FULL_RETRY_EVERY: Duration = Duration::from_secs(1);

/// Reports which shard has ended the process, and why.
pub(crate) type FirstEnded = watch::Sender<Option<(ShardId, StopCause)>>;

/// Called once when a shard has ended, with the reason.
pub(crate) type OnEnded = Arc<dyn Fn(&ShardId, &StopCause) + Send + Sync>;

/// How a shard is opened.
#[derive(Clone)]
pub(crate) struct Opening {
    pub(crate) shard: ShardId,
    pub(crate) on_ended: OnEnded,
    /// Time until which this process surely owns the shard; `None` if no other node can own it.
    pub(crate) ownership: Option<Arc<Ownership>>,
}

/// What the end of a shard means for the process.
struct Endings {
    first: FirstEnded,
    /// Number of shards that have not ended.
    running: AtomicUsize,
}

impl Endings {
    fn new(first: FirstEnded, shards: usize) -> Self {
        Self {
            first,
            running: AtomicUsize::new(shards),
        }
    }

    /// Records that a shard has ended. A shard that another process has taken over ends alone, as long as others run
    /// here; any other end is that of the process. The first one is recorded: the others follow from it.
    fn record(&self, shard: &ShardId, cause: &StopCause) {
        let left = self.running.fetch_sub(1, Ordering::AcqRel) - 1;
        if is_of_shard_alone(cause) && left > 0 {
            tracing::warn!(%shard, left, %cause, "the shard has ended; the other shards are served on");
            return;
        }
        self.first.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert_with(|| (shard.clone(), cause.clone()));
            is_first
        });
    }
}

/// Whether a shard ends alone for this reason, and the other shards of the process are served on.
pub(crate) fn is_of_shard_alone(cause: &StopCause) -> bool {
    matches!(cause, StopCause::Fenced { .. } | StopCause::Rewound { .. })
}

/// Where the shards of this process are stored, if not in files.
#[derive(Clone, Default)]
pub(crate) struct Stores {
    /// The database; `None` if the stores are files.
    #[cfg(feature = "postgres")]
    pub(crate) cluster: Option<crate::postgres::Cluster>,
}

/// Finds the stores; a database says which shards it has.
#[cfg(feature = "postgres")]
pub(crate) async fn find(config: &mut Config, addr: SocketAddr) -> Result<Stores, StartError> {
    Ok(Stores {
        cluster: crate::postgres::connect(config, addr).await?,
    })
}

/// Finds the stores, which are files in this build.
#[cfg(not(feature = "postgres"))]
pub(crate) fn find(
    _: &mut Config,
    _: SocketAddr,
) -> impl Future<Output = Result<Stores, StartError>> {
    std::future::ready(Ok(Stores::default()))
}

impl Stores {
    /// Returns what stands for the default shard while this process has no shard: it is one of several nodes, which own
    /// shards in turn. `None` if it serves all its shards.
    #[cfg(feature = "postgres")]
    pub(crate) fn vacant(&self) -> Option<Handle> {
        let member = self.cluster.as_ref()?.member()?;
        let reason = "this node has no shard: another node serves it";
        Some(Handle::vacant(&member.home, reason, Arc::new(SystemClock)))
    }

    /// [`Stores::vacant`] in a build without clusters.
    #[cfg(not(feature = "postgres"))]
    #[expect(clippy::unused_self, reason = "as in a build with clusters")]
    pub(crate) fn vacant(&self) -> Option<Handle> {
        None
    }

    /// Returns what is known of the confirmed commits of all shards, if this process is a node of a cluster.
    #[cfg(feature = "postgres")]
    pub(crate) fn marks(&self) -> Option<Arc<crate::node::marks::Marks>> {
        let member = self.cluster.as_ref()?.member()?;
        Some(Arc::clone(&member.marks))
    }

    /// Returns the metrics of the node, if this process is one of a cluster.
    #[cfg(feature = "postgres")]
    pub(crate) fn metrics(&self) -> Option<Source> {
        let member = self.cluster.as_ref()?.member()?;
        Some(member.counters.source(&member.owners, &member.marks))
    }

    /// [`Stores::metrics`] in a build without clusters.
    #[cfg(not(feature = "postgres"))]
    #[expect(clippy::unused_self, reason = "as in a build with clusters")]
    pub(crate) fn metrics(&self) -> Option<Source> {
        None
    }
}

/// Opens all shards, or none.
pub(crate) async fn open_all(
    config: &Config,
    stores: &Stores,
    ended: &FirstEnded,
) -> Result<Vec<Handle>, StartError> {
    config.check_stores()?;
    let mut opened: Vec<Handle> = Vec::new();
    let shards = config.shard_ids();
    let endings = Endings::new(ended.clone(), shards.len());
    let on_ended: OnEnded = Arc::new(move |shard, cause| endings.record(shard, cause));
    for shard in shards {
        let opening = Opening {
            shard,
            on_ended: Arc::clone(&on_ended),
            ownership: None,
        };
        match open(config, stores, opening).await {
            Ok(handle) => opened.push(handle),
            Err(error) => {
                stop_all(&opened).await;
                return Err(error);
            }
        }
    }
    Ok(opened)
}

/// Stops all shards and waits until they have stopped.
pub(crate) async fn stop_all(shards: &[Handle]) {
    for shard in shards {
        shard.stop().await;
    }
}

/// Opens a shard. A full disk is waited out: systemd and others would give up before an operator makes room.
pub(crate) async fn open(
    config: &Config,
    stores: &Stores,
    opening: Opening,
) -> Result<Handle, StartError> {
    let shard = &opening.shard;
    let began = Instant::now();
    let mut warning = RepeatedWarning::default();
    loop {
        let opened = try_open(config, stores, opening.clone()).await;
        let Err(StartError::Store(error @ StoreError::Full { .. })) = opened else {
            return opened;
        };
        match warning.occur(Elapsed::default().after(began.elapsed())) {
            Some(Line::First) => {
                tracing::error!(%shard, %error, "the server starts as soon as there is room");
            }
            Some(Line::Again { times }) => {
                tracing::error!(%shard, %error, times, "the server still waits for room");
            }
            None => {}
        }
        tokio::time::sleep(FULL_RETRY_EVERY).await;
    }
}

async fn try_open(
    config: &Config,
    stores: &Stores,
    opening: Opening,
) -> Result<Handle, StartError> {
    let Opening {
        shard,
        on_ended,
        ownership,
    } = opening;
    let settings = ganger_shard::Settings {
        shard: shard.clone(),
        inbox_commands_max: config.limits.inbox_commands,
        waiters_max: config.limits.waiters,
        reserve_bytes: config.reserve_bytes,
        key_upkeep: config.key_upkeep,
        ownership,
        ..ganger_shard::Settings::default()
    };
    let id = shard.clone();
    let hooks = Hooks {
        on_stopped: Some(Arc::new(move |cause| on_ended(&id, cause))),
        at_point: None,
    };
    let db = (!config.is_in_memory()).then(|| config.db_of(&shard));
    #[cfg(feature = "postgres")]
    let cluster = stores.cluster.clone();
    #[cfg(not(feature = "postgres"))]
    let Stores {} = stores;
    // Opening blocks on files, so it runs on a separate thread.
    let started = tokio::task::spawn_blocking(move || -> Result<Handle, StoreError> {
        let clock = Arc::new(SystemClock);
        #[cfg(feature = "postgres")]
        if let Some(cluster) = cluster {
            return cluster.start(&shard, settings, clock, hooks);
        }
        let Some(db) = db else {
            return Shard::start(MemoryStore::new(), settings, clock, hooks);
        };
        let is_new = !db.exists();
        let store = EmbeddedStore::create_or_open(&db, &shard)?;
        let store = store.with_reserve(settings.reserve_taken());
        if is_new {
            tracing::info!(%shard, store = %db.display(), "new store");
        }
        Shard::start(store, settings, clock, hooks)
    });
    let started = started.await.map_err(|error| StartError::System {
        doing: "open the store",
        reason: error.to_string(),
    })?;
    let shard = started?;
    // It ends with the shard.
    tokio::spawn(shard.clone().work_operations());
    Ok(shard)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fenced() -> StopCause {
        StopCause::Fenced {
            reason: "another process owns it".to_owned(),
        }
    }

    #[test]
    fn a_shard_that_moved_ends_the_process_only_if_it_was_the_last() {
        let (first, ended) = watch::channel(None);
        let endings = Endings::new(first, 2);
        let (one, two) = (ShardId::default(), ShardId::new("2").expect("it is a name"));
        endings.record(&one, &fenced());
        assert_eq!(*ended.borrow(), None);
        endings.record(&two, &fenced());
        assert_eq!(*ended.borrow(), Some((two, fenced())));
    }

    #[test]
    fn a_lost_store_ends_the_process_and_the_first_end_is_its_reason() {
        let (first, ended) = watch::channel(None);
        let endings = Endings::new(first, 2);
        let lost = StopCause::StoreLost {
            reason: "the device is gone".to_owned(),
            is_damaged: false,
        };
        endings.record(&ShardId::default(), &lost);
        endings.record(
            &ShardId::new("2").expect("it is a name"),
            &StopCause::Requested,
        );
        assert_eq!(*ended.borrow(), Some((ShardId::default(), lost)));
    }
}

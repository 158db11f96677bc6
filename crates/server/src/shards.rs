//! The shards of this process, each with its own store and thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ganger_shard::{Handle, Hooks, Shard, StopCause, SystemClock};
use ganger_store::{Line, MemoryStore, RepeatedWarning, StoreError};
use ganger_store_embedded::EmbeddedStore;
use ganger_types::{Elapsed, ShardId};
use tokio::sync::watch;

use crate::config::Config;
use crate::error::StartError;

/// Interval between attempts to open a store on a full disk.
const FULL_RETRY_EVERY: Duration = Duration::from_secs(1);

/// Reports which shard has ended first, and why.
pub(crate) type FirstEnded = watch::Sender<Option<(ShardId, StopCause)>>;

/// Opens all shards, or none.
pub(crate) async fn open_all(
    config: &Config,
    ended: &FirstEnded,
) -> Result<Vec<Handle>, StartError> {
    config.check_stores()?;
    let mut opened: Vec<Handle> = Vec::new();
    for shard in config.shard_ids() {
        match open(config, shard, ended.clone()).await {
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
async fn open(config: &Config, shard: ShardId, ended: FirstEnded) -> Result<Handle, StartError> {
    let began = Instant::now();
    let mut warning = RepeatedWarning::default();
    loop {
        let opened = try_open(config, shard.clone(), ended.clone()).await;
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
    shard: ShardId,
    ended: FirstEnded,
) -> Result<Handle, StartError> {
    let settings = ganger_shard::Settings {
        shard: shard.clone(),
        inbox_commands_max: config.limits.inbox_commands,
        waiters_max: config.limits.waiters,
        reserve_bytes: config.reserve_bytes,
        key_upkeep: config.key_upkeep,
        ..ganger_shard::Settings::default()
    };
    let id = shard.clone();
    let hooks = Hooks {
        on_stopped: Some(Arc::new(move |cause| {
            // The first end is recorded: the others follow from it.
            ended.send_if_modified(|first| {
                let is_first = first.is_none();
                first.get_or_insert_with(|| (id.clone(), cause.clone()));
                is_first
            });
        })),
        at_point: None,
    };
    let db = (!config.is_in_memory()).then(|| config.db_of(&shard));
    // Opening blocks on files, so it runs on a separate thread.
    let started = tokio::task::spawn_blocking(move || -> Result<Handle, StoreError> {
        let clock = Arc::new(SystemClock);
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
    Ok(started?)
}

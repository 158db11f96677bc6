//! Passes the records of the audit log to the store of the first shard, which keeps the newest of them.

use std::time::{Duration, Instant};

use ganger_access::Audit;
use ganger_shard::{CallError, Handle, ShardSet};
use ganger_store::RepeatedWarning;
use ganger_types::command::KeepAudit;
use ganger_types::{Command, Elapsed};
use tokio_util::sync::CancellationToken;

/// Pause between two looks for new records: those of the pause are one command.
const EVERY: Duration = Duration::from_millis(500);

/// Passes records on until `stopping` is cancelled.
pub(crate) async fn run(audit: Audit, shards: ShardSet, stopping: CancellationToken) {
    let began = Instant::now();
    let mut warning = RepeatedWarning::default();
    let mut lost = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stopping.cancelled() => return,
        }
        // Without a shard the records wait.
        let Some(shard) = shards.now().first().cloned() else {
            continue;
        };
        let Err((error, count)) = pass_on(&audit, &shard).await else {
            continue;
        };
        lost += count;
        if warning
            .occur(Elapsed::default().after(began.elapsed()))
            .is_some()
        {
            tracing::warn!(%error, records = lost, "records of the audit log are not in the store");
            lost = 0;
        }
    }
}

/// Passes on the records that wait. Those that the shard does not take are in the log of the server alone: the error has
/// their number.
pub(crate) async fn pass_on(audit: &Audit, shard: &Handle) -> Result<(), (CallError, usize)> {
    let records = audit.take_kept();
    if records.is_empty() {
        return Ok(());
    }
    let count = records.len();
    let kept = shard.call(Command::KeepAudit(KeepAudit { records })).await;
    kept.map(|_| ()).map_err(|error| (error, count))
}

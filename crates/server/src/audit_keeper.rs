//! Passes the records of the audit log to the store of the first shard, which keeps the newest of them.

use std::time::Duration;

use ganger_access::Audit;
use ganger_shard::Handle;
use ganger_types::Command;
use ganger_types::command::KeepAudit;
use tokio_util::sync::CancellationToken;

/// Pause between two looks for new records: those of the pause are one command.
const EVERY: Duration = Duration::from_millis(500);

/// Passes records on until `stopping` is cancelled.
pub(crate) async fn run(audit: Audit, shard: Handle, stopping: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = stopping.cancelled() => return,
        }
        pass_on(&audit, &shard).await;
    }
}

/// Passes on the records that wait. Those that the shard does not take are in the log of the server alone.
pub(crate) async fn pass_on(audit: &Audit, shard: &Handle) {
    let records = audit.take_kept();
    if records.is_empty() {
        return;
    }
    let count = records.len();
    let kept = shard.call(Command::KeepAudit(KeepAudit { records })).await;
    if let Err(error) = kept {
        tracing::warn!(%error, count, "records of the audit log are not in the store");
    }
}

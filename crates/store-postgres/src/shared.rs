//! State shared by the writer, the readers and the thread that writes rows, so that a reader never misses an
//! acknowledged commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, TryLockError};

use ganger_store::waiting::CommitQueue;
use ganger_store::{LogState, StoreError};
use ganger_types::{Change, Commit, InputState};

use crate::backend::{Backend, RowTables};
use crate::fault::Fault;
use crate::limits::Limits;
use crate::log::{self, Log, Target};
use crate::postgres::Postgres;
use crate::rows::Rows;

/// Servers that may take each other's place during one read.
const SERVERS_MAX: u32 = 3;
/// Bytes of a change besides its payload, about.
const CHANGE_BYTES: u64 = 256;

/// The open shard, for threads that write or wait for writes.
pub struct Shared<B: Backend = Postgres> {
    pub(crate) backend: B,
    pub(crate) limits: Limits,
    /// Commits in the log whose rows are not written.
    pub(crate) queue: CommitQueue,
    /// Where the log ends; `None` before the shard is opened, and after a commit with unknown outcome.
    log: Mutex<Option<Log>>,
    /// The connection that writes rows; `None` likewise. Who needs both locks takes this one first.
    rows: Mutex<Option<Rows<B>>>,
    /// Read while a search for expired jobs runs, which reads the tables of all ranges. One that is taken to drop a table
    /// comes before that of the rows.
    searches: RwLock<()>,
    /// Reason why no further commit is accepted; `None` while the store works.
    failure: Mutex<Option<String>>,
    /// Number of the server on which the rows were last seen.
    seen_on: AtomicU64,
    /// How often a log table was in use when it should be emptied.
    times_busy: AtomicU64,
    /// Commits, those of claims included, whose wait for a standby was cancelled.
    waits_cancelled: AtomicU64,
    /// Commits that waited because too many were in the log and not in the rows.
    times_blocked: AtomicU64,
    /// Commits that were too large for the log.
    times_too_large: AtomicU64,
}

impl<B: Backend> Shared<B> {
    pub(crate) fn new(backend: B) -> Self {
        Self {
            limits: backend.limits(),
            backend,
            queue: CommitQueue::default(),
            log: Mutex::new(None),
            rows: Mutex::new(None),
            searches: RwLock::new(()),
            failure: Mutex::new(None),
            seen_on: AtomicU64::new(0),
            times_busy: AtomicU64::new(0),
            waits_cancelled: AtomicU64::new(0),
            times_blocked: AtomicU64::new(0),
            times_too_large: AtomicU64::new(0),
        }
    }

    /// Locks the end of the log, for a moment.
    pub(crate) fn log(&self) -> MutexGuard<'_, Option<Log>> {
        let log = self.log.lock();
        log.expect("no thread panics while it holds this lock")
    }

    /// Locks the connection that writes rows. Everybody else who needs rows written waits.
    pub(crate) fn rows(&self) -> MutexGuard<'_, Option<Rows<B>>> {
        self.backend.lock(&self.rows)
    }

    /// Returns the reason why no further commit is accepted.
    pub(crate) fn failure(&self) -> MutexGuard<'_, Option<String>> {
        let failure = self.failure.lock();
        failure.expect("no thread panics while it holds this lock")
    }

    /// Notes that the database has warned in a commit: its wait for a standby was cancelled.
    pub(crate) fn wait_cancelled(&self) {
        self.waits_cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a commit waits because too many are not in the rows.
    pub(crate) fn is_blocked(&self) {
        self.times_blocked.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a commit is too large for the log.
    pub(crate) fn is_too_large(&self) {
        self.times_too_large.fetch_add(1, Ordering::Relaxed);
    }

    /// The log, in numbers; what a commit survives is the store's to say.
    pub(crate) fn log_state(&self) -> LogState {
        LogState {
            bytes: self.log().as_ref().map_or(0, Log::bytes),
            commits_behind: self.queue.commits_behind(),
            bytes_behind: self.queue.bytes_behind(),
            times_blocked: self.times_blocked.load(Ordering::Relaxed),
            times_too_large: self.times_too_large.load(Ordering::Relaxed),
            times_busy: self.times_busy.load(Ordering::Relaxed),
            waits_cancelled: self.waits_cancelled.load(Ordering::Relaxed),
            durability: None,
        }
    }

    /// Ends the use of the shard until it is opened again. The log has what is not in the rows.
    pub(crate) fn close(&self) {
        *self.log() = None;
        *self.rows() = None;
    }

    /// The backend, for what reads beside the rules.
    pub fn backend(&self) -> &B {
        &self.backend
    }

    /// Waits until the rows have everything acknowledged before the call.
    ///
    /// # Errors
    /// If the rows cannot be written.
    pub fn settle(&self) -> Result<(), Fault> {
        if !self.queue.is_behind() && self.has_seen_rows() {
            return Ok(());
        }
        match &mut *self.rows() {
            Some(rows) => {
                self.see_rows(rows)?;
                self.settle_in(rows)
            }
            None => Err(self.not_open()),
        }
    }

    /// Reads something from the rows, again if another server takes the place of the one that was read.
    ///
    /// # Errors
    /// Those of `read`; and if the rows cannot be written that the other server lacks.
    pub fn read_rows<T>(&self, mut read: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
        for _ in 0..SERVERS_MAX {
            let server = self.backend.server();
            if !self.has_seen_rows() {
                self.settle()?;
            }
            let found = read()?;
            if self.backend.server() == server {
                return Ok(found);
            }
        }
        Err(Fault::Lost(
            "one server after the other has taken the place of the database".to_owned(),
        ))
    }

    /// Whether the rows were seen on the server that is used now.
    fn has_seen_rows(&self) -> bool {
        self.seen_on.load(Ordering::Acquire) == self.backend.server()
    }

    /// Notes that the rows are on the server that is used now.
    pub(crate) fn saw_rows(&self, server: u64) {
        self.seen_on.store(server, Ordering::Release);
    }

    /// Looks, on a server that has taken the place of another, whether it has the rows that were written. Those that it
    /// lacks are written again from the log.
    pub(crate) fn see_rows(&self, rows: &mut Rows<B>) -> Result<(), Fault> {
        if self.has_seen_rows() {
            return Ok(());
        }
        let server = self.backend.server();
        let seen = match rows.verify(&self.backend) {
            Err(Fault::Rewound(reason)) => self.write_lost_rows(rows, &reason),
            seen => seen.and_then(|_| self.compare_log(rows)),
        };
        match seen {
            Ok(()) => {
                self.saw_rows(server);
                Ok(())
            }
            Err(fault) => {
                self.record_failure(&fault);
                Err(fault)
            }
        }
    }

    /// Checks that another server has the last record of the log, so that no rows are written that the log lacks.
    fn compare_log(&self, rows: &mut Rows<B>) -> Result<(), Fault> {
        let last = self.log().as_ref().map(|log| log.last);
        let last = last.ok_or_else(|| self.not_open())?;
        let tables = rows.tables(&self.backend)?;
        if let Some(before) = last.checked_sub(1) {
            let found = tables.records(before)?;
            if found.first().is_none_or(|record| record.sequence != last) {
                return Err(Fault::lost_record(last));
            }
        }
        Ok(())
    }

    /// Writes the rows again that a failover has lost. Their commits were acknowledged, so the log has them. What fails here is
    /// begun again, as long as not all of them are written.
    fn write_lost_rows(&self, rows: &mut Rows<B>, reason: &str) -> Result<(), Fault> {
        let Some(log) = self.log().clone() else {
            return Err(self.not_open());
        };
        let slot = log.target(u64::MAX).before;
        let tables = rows.start_over(&self.backend)?;
        let written = tables.written()?.unwrap_or_default();
        let tail = match log::tail(tables, &log, written) {
            // It has lost commits too, so the shard has gone back in time.
            Err(Fault::Damaged(_)) => return Err(Fault::Rewound(reason.to_owned())),
            tail => tail?,
        };
        tracing::warn!(
            store = self.backend.label(),
            reason,
            commits = tail.len(),
            "rows that the database has lost are written again from the log"
        );
        let tail: Vec<_> = tail.into_iter().map(Arc::new).collect();
        for commits in parts(&tail, self.limits.checkpoint_bytes) {
            rows.write_behind(&self.backend, commits, slot)
                .map_err(|fault| match fault {
                    // A new connection does not find all rows either: the next look at the log tells whether it has them.
                    Fault::Rewound(reason) => Fault::Lost(reason),
                    fault => fault,
                })?;
        }
        Ok(())
    }

    /// Writes the rows of all waiting commits, in transactions of bounded size.
    pub(crate) fn settle_in(&self, rows: &mut Rows<B>) -> Result<(), Fault> {
        if let Some(reason) = &*self.failure() {
            // Only taking the shard back tells what has become of it.
            return Err(Fault::Rewound(reason.clone()));
        }
        let slot = match &*self.log() {
            Some(log) => log.target(u64::MAX).before,
            None => return Err(self.not_open()),
        };
        let waiting = self.queue.take_for_writing();
        for commits in parts(&waiting, self.limits.checkpoint_bytes) {
            if let Err(fault) = rows.write_behind(&self.backend, commits, slot) {
                self.record_failure(&fault);
                return Err(fault);
            }
        }
        self.queue.remove_written();
        Ok(())
    }

    /// Writes waiting rows, and empties log tables that are not needed any more.
    ///
    /// # Errors
    /// If the rows cannot be written.
    pub fn tend(&self) -> Result<(), Fault> {
        let mut rows = self.rows();
        let Some(rows) = &mut *rows else {
            return Ok(());
        };
        self.see_rows(rows)?;
        self.settle_in(rows)?;
        self.empty_logs(rows)
    }

    fn empty_logs(&self, rows: &mut Rows<B>) -> Result<(), Fault> {
        let sequence = rows.header.sequence;
        loop {
            let obsolete = self.log().as_ref().and_then(|log| log.obsolete(sequence));
            let Some(slot) = obsolete else {
                return Ok(());
            };
            match rows.tables(&self.backend)?.empty(slot) {
                Ok(true) => {
                    if let Some(log) = &mut *self.log() {
                        log.emptied(slot);
                    }
                }
                // A dump holds the table, or another owner the shard.
                Ok(false) => return Ok(()),
                Err(fault) if fault.is_lock_timeout() => {
                    self.times_busy.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(slot, "a log table is in use and is emptied later");
                    return Ok(());
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Notes a search for expired jobs until the result is dropped.
    pub(crate) fn searching(&self) -> RwLockReadGuard<'_, ()> {
        self.searches.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the oldest tables of jobs that are gone, unless a search runs, which reads all tables: then nothing is done, and
    /// it returns false. The next search waits for this.
    pub(crate) fn drop_old_parts(&self) -> Result<bool, Fault> {
        let _alone = match self.searches.try_write() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(false),
        };
        let dropped = match &mut *self.rows() {
            Some(rows) => rows.tables(&self.backend)?.drop_oldest_part(),
            None => Ok(()),
        };
        match dropped {
            Err(fault) if fault.is_lock_timeout() => {
                tracing::debug!(
                    "the tables of a range of old jobs are in use and are dropped later"
                );
                Ok(true)
            }
            dropped => dropped.map(|()| true),
        }
    }

    /// Returns where the next record of the log goes.
    pub(crate) fn target(&self, log: &Log) -> Target {
        log.target(self.limits.slot_bytes)
    }

    /// Records a failure after which the shard must be opened again: another owner, rows that are gone, or rows that
    /// contradict the log.
    /// A lost connection is made again.
    pub(crate) fn record_failure(&self, fault: &Fault) {
        let is_final = matches!(
            fault,
            Fault::Fenced { .. } | Fault::Rewound(_) | Fault::Damaged(_)
        );
        if !is_final {
            return;
        }
        let mut failure = self.failure();
        if failure.is_none() {
            tracing::error!(
                ?fault,
                store = self.backend.label(),
                "the rows cannot be written"
            );
            *failure = Some(format!("{fault:?}"));
        }
    }

    pub(crate) fn not_open(&self) -> Fault {
        Fault::Store(StoreError::Io {
            path: self.backend.label().to_owned(),
            doing: "read",
            reason: "it has to be opened again first".to_owned(),
        })
    }
}

/// Splits commits into runs of about so many bytes, each with at least one.
fn parts(commits: &[Arc<Commit>], bytes_max: u64) -> impl Iterator<Item = &[Arc<Commit>]> {
    let mut rest = commits;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let mut bytes = 0;
        let fitting = rest.iter().take_while(|commit| {
            bytes += weight(commit);
            bytes <= bytes_max
        });
        let (part, later) = rest.split_at(fitting.count().max(1));
        rest = later;
        Some(part)
    })
}

/// Bytes that the rows of a commit have, about.
fn weight(commit: &Commit) -> u64 {
    let of_change = |change: &Change| {
        let large = match change {
            Change::PutPayload { payload, .. } => payload.len(),
            Change::FinishJob {
                result: Some(result),
                ..
            } => result.len(),
            Change::AppendLog { bytes, .. } => bytes.len(),
            Change::PutInput(row) => match &row.state {
                InputState::Value(value) => value.len(),
                _ => 0,
            },
            _ => 0,
        };
        CHANGE_BYTES + u64::try_from(large).unwrap_or(u64::MAX)
    };
    commit.changes.iter().map(of_change).sum()
}

#[cfg(test)]
mod tests {
    use ganger_types::{Bytes, Epoch, JobKey, Meta};

    use super::*;

    #[test]
    fn rows_are_written_in_transactions_of_bounded_size() {
        let commit = |sequence, bytes| {
            Arc::new(Commit {
                epoch: Epoch(1),
                sequence,
                meta: Meta::default(),
                changes: vec![Change::PutPayload {
                    key: JobKey(sequence),
                    payload: Bytes::from(vec![0; bytes]),
                }],
            })
        };
        let commits = [
            commit(1, 400),
            commit(2, 400),
            commit(3, 5_000),
            commit(4, 0),
        ];
        let sizes: Vec<_> = parts(&commits, 1_500).map(<[_]>::len).collect();
        assert_eq!(sizes, [2, 1, 1]);
        assert_eq!(parts(&[], 1_500).count(), 0);
    }
}

//! The writer: taking the shard over, committing, upkeep.

use std::sync::Arc;
use std::time::Duration;

use ganger_store::waiting::RowWork;
use ganger_store::{CommitError, Loaded, LogState, Opened, Store, StoreError, StoreHold};
use ganger_types::{Commit, Epoch, ShardId};

use crate::backend::{Backend, LogTables, RowTables, RowWrite};
use crate::claim;
use crate::database::Database;
use crate::durability::Durability;
use crate::fault::Fault;
use crate::fence::{Claimant, Ownership};
use crate::header::Header;
use crate::log::{self, Log};
use crate::mark::{KnownMark, Mark};
use crate::postgres::Postgres;
use crate::record::RecordBuilder;
use crate::row_thread::RowThread;
use crate::rows::Rows;
use crate::shared::Shared;

/// One shard in PostgreSQL.
pub type PostgresStore = ShardStore<Postgres>;

/// The rules of one shard's owner over the statements of its database.
pub struct ShardStore<B: Backend> {
    shared: Arc<Shared<B>>,
    shard: ShardId,
    /// Name of this store and of no other; `None` before the first claim.
    owner: Option<Arc<str>>,
    /// The connection that appends to the log; `None` until it is needed.
    appending: Option<B::Appending>,
    /// Number of its server.
    appending_to: u64,
    builder: RecordBuilder,
    durability: Option<Durability>,
    /// Time since the last record at the last claim, by the clock of the database.
    away: Option<Duration>,
    /// What is known to be confirmed, here and by other nodes.
    known: Arc<KnownMark>,
    /// The thread that writes rows; `None` before the shard is opened, and if it has none.
    row_thread: Option<RowThread<B>>,
}

impl PostgresStore {
    /// Names a shard of a database by its number there; `shard` is who it must be. Nothing is done before
    /// [`Store::open`].
    pub fn new(database: &Arc<Database>, number: u32, shard: &ShardId, node: &str) -> Self {
        Self::over(Postgres::new(database, number, node), shard)
    }

    #[cfg(test)]
    pub(crate) fn shared_for_test(&self) -> &Arc<Shared> {
        &self.shared
    }
}

impl<B: Backend> ShardStore<B> {
    /// Names a shard behind a backend; `shard` is who it must be. Nothing is done before [`Store::open`].
    pub fn over(backend: B, shard: &ShardId) -> Self {
        Self {
            shared: Arc::new(Shared::new(backend)),
            shard: shard.clone(),
            owner: None,
            appending: None,
            appending_to: 0,
            builder: RecordBuilder::default(),
            durability: None,
            away: None,
            known: Arc::default(),
            row_thread: None,
        }
    }

    /// Shares what is known to be confirmed. A shard that has lost some of it is closed for all, until an operator
    /// accepts the loss.
    #[must_use]
    pub fn with_known(self, known: &Arc<KnownMark>) -> Self {
        let known = Arc::clone(known);
        Self { known, ..self }
    }

    /// Returns what an acknowledged commit survives, as the settings of the database said at the last connection;
    /// `None` before the shard was opened.
    pub fn durability(&self) -> Option<Durability> {
        self.durability
    }

    /// What this store shares with its readers and the thread that writes rows.
    pub fn shared(&self) -> &Arc<Shared<B>> {
        &self.shared
    }

    /// Takes the shard over, from anybody or only back from ourselves, and writes the rows of the log's tail.
    fn take(&mut self, back: Option<Epoch>) -> Result<Opened, StoreError> {
        self.appending = None;
        self.shared.close();
        let shared = Arc::clone(&self.shared);
        let taken = match back {
            None => self.try_take(back),
            Some(_) => shared.backend.outlast(|| self.try_take(back)),
        };
        taken.map_err(|fault| self.explain(fault, back, "opened"))
    }

    /// Notes a confirmed commit. It counts as unknown if commits before it are lost, as others know: the shard is then
    /// closed when it is taken back.
    fn note_confirmed(&self, epoch: u64, sequence: u64) -> Result<(), CommitError> {
        let known = self.known.learn(Mark { epoch, sequence });
        if known.is_missing_from(epoch, sequence) {
            let reason = "another node knows of later commits: the database went back in time";
            return Err(CommitError::Unknown(reason.to_owned()));
        }
        Ok(())
    }

    /// Notes what an acknowledged commit survives from now on. An operator who relies on more, or has changed the settings,
    /// reads in the log that it is something else than before.
    fn note_durability(&mut self, found: Durability) {
        let before = self.durability.replace(found).map(|before| before.mode);
        if let Some(before) = before.filter(|before| *before != found.mode) {
            tracing::warn!(
                store = self.shared.backend.label(),
                before = %before,
                now = %found.mode,
                "what an acknowledged commit survives has changed"
            );
        }
    }

    /// Our claim with this epoch.
    fn ownership(&self, epoch: u64) -> Ownership {
        Ownership {
            epoch,
            owner: self.owner.clone().unwrap_or_default(),
        }
    }

    /// Converts the fault of an operation in the epoch `ours`.
    fn explain(&self, fault: Fault, ours: Option<Epoch>, doing: &'static str) -> StoreError {
        let path = self.shared.backend.label();
        match (fault, ours) {
            (Fault::Fenced { theirs }, Some(ours)) => StoreError::Fenced {
                path: path.to_owned(),
                ours,
                theirs: theirs.unwrap_or_default(),
            },
            (fault, _) => fault.at(path, doing),
        }
    }

    /// Takes the shard over and starts the thread that writes rows.
    fn take_and_serve(&mut self, back: Option<Epoch>) -> Result<Opened, StoreError> {
        let opened = self.take(back)?;
        if self.shared.limits.has_row_thread && self.row_thread.is_none() {
            self.row_thread = Some(RowThread::start(&self.shared)?);
        }
        Ok(opened)
    }

    fn try_take(&mut self, back: Option<Epoch>) -> Result<Opened, Fault> {
        let shared = Arc::clone(&self.shared);
        let backend = &shared.backend;
        let owner = match &self.owner {
            Some(owner) => owner.clone(),
            None => backend.new_owner()?.into(),
        };
        let claimant = Claimant {
            owner: &owner,
            back,
            mark: self.known.now(),
        };
        let claim = claim::claim(&self.shared, &self.shard, claimant)?;
        let epoch = Epoch(claim.log.epoch);
        // Clients that get an answer from now on rely on these commits: on those of another owner, and on one of this
        // owner whose outcome was unknown.
        self.known.learn(Mark::of_claim(epoch.0, claim.log.last));
        tracing::info!(
            store = backend.label(),
            epoch = epoch.0,
            durability = %claim.durability.mode,
            away_seconds = claim.away.as_secs_f64(),
            "the shard is taken over"
        );
        self.owner = Some(Arc::clone(&owner));
        let ours = Ownership {
            epoch: epoch.0,
            owner,
        };
        self.note_durability(claim.durability);
        self.away = Some(claim.away);
        let server = backend.server();
        let mut rows = Rows::new(ours.clone(), claim.header.clone());
        let tables = rows.tables(backend)?;
        let mut tail = log::tail(tables, &claim.log, claim.header.sequence);
        if let Err(Fault::Damaged(_)) = &tail
            && let Some(fence) = tables.fence()?
            && !fence.is_held_by(&ours)
        {
            // A later owner has gone on with the log, while this process stood still.
            let theirs = Some(Epoch(fence.epoch));
            tail = Err(Fault::Fenced { theirs });
        }
        if backend.server() != server {
            let reason =
                "another server has taken the place of the one where the shard was taken over";
            return Err(Fault::Lost(reason.to_owned()));
        }
        let tail = tail?;
        let meta = tail.last().map_or(claim.header.meta, |commit| commit.meta);
        let sequence = claim.log.last;
        self.adopt(claim.log, rows, tail, server)?;
        Ok(Opened {
            epoch,
            sequence,
            meta,
            away: self.away,
        })
    }

    /// Writes the rows of the log's tail, and makes the shard ready for commits and reads. The rows before were seen on the
    /// server with this number; another one may have taken its place since.
    fn adopt(
        &self,
        log: Log,
        mut rows: Rows<B>,
        tail: Vec<Commit>,
        server: u64,
    ) -> Result<(), Fault> {
        let shared = &self.shared;
        // No reader sees the queue without its rows: until the end of this nothing is open.
        let mut open = shared.rows();
        shared.queue.clear();
        *shared.failure() = None;
        *shared.log() = Some(log);
        for commit in tail {
            let bytes = 0;
            shared
                .queue
                .push(&Arc::new(commit), bytes, &shared.limits.queue());
        }
        let settled = shared.settle_in(&mut rows);
        if let Err(fault) = settled {
            *shared.log() = None;
            return Err(fault);
        }
        shared.saw_rows(server);
        *open = Some(rows);
        Ok(())
    }

    /// Makes the connection that appends to the log again if it has ended, or another server has taken the place of its
    /// own. What was sent on the last one was answered; but its end may be that of the database, which may have lost
    /// rows.
    fn connect(&mut self, epoch: u64) -> Result<(), Fault> {
        let is_newest = self.appending_to == self.shared.backend.server();
        if !is_newest || !self.appending.as_mut().is_some_and(LogTables::is_alive) {
            self.appending = None;
            let shared = Arc::clone(&self.shared);
            let backend = &shared.backend;
            // Another node may tell of a newer server meanwhile: then this connection is made once more.
            let server = backend.server();
            let appending = backend.appending(&self.ownership(epoch))?;
            self.appending_to = server;
            self.note_durability(appending.durability());
            if let Some(rows) = &mut *shared.rows() {
                rows.verify(backend)?;
                shared.see_rows(rows)?;
            }
            self.appending = Some(appending);
        }
        Ok(())
    }

    fn try_commit(&mut self, log: &Log, commit: &Arc<Commit>) -> Result<(), CommitError> {
        let ours = commit.epoch;
        if self.shared.queue.is_over(&self.shared.limits.backlog()) {
            self.shared.is_blocked();
            self.shared
                .settle()
                .map_err(|fault| not_applied(fault, ours))?;
        }
        let limits = self.shared.limits;
        let length = self.builder.encode(commit);
        if length > limits.record_bytes || commit.changes.len() > limits.record_changes {
            self.shared.is_too_large();
            return self.write_at_once(log, commit);
        }
        self.connect(log.epoch).map_err(|fault| match fault {
            Fault::Rewound(_) => fault.into_commit_error(ours),
            fault => not_applied(fault, ours),
        })?;
        let bytes = self
            .append(log, commit)
            .map_err(|fault| fault.into_commit_error(ours))?;
        self.shared
            .queue
            .push(commit, bytes, &self.shared.limits.queue());
        Ok(())
    }

    /// Returns the state of the rows, which the database still has.
    fn verified_header(&self) -> Result<Header, Fault> {
        let last = self.shared.log().as_ref().map(|log| log.last);
        let mut rows = self.shared.rows();
        let rows = rows.as_mut().ok_or_else(|| self.shared.not_open())?;
        let found = rows.verify(&self.shared.backend)?;
        // Everything in the log was written before.
        if Some(found) != last {
            return Err(Fault::Lost(format!(
                "the rows go up to commit {found}, and another owner has written them"
            )));
        }
        Ok(rows.header.clone())
    }

    /// Appends a commit to the log; returns the bytes of its record.
    fn append(&mut self, log: &Log, commit: &Commit) -> Result<u64, Fault> {
        let target = self.shared.target(log);
        let place = log.place(commit.sequence);
        let compressed_from = self.shared.limits.compressed_from;
        let body = self.builder.seal(place, compressed_from);
        let tables = self.appending.as_mut().expect("the caller has connected");
        tables.take_warning();
        let appended = tables.append(target, place, body)?;
        // The wait for a standby was cancelled: the record is visible, and nobody has a copy.
        if let Some(warning) = tables.take_warning() {
            self.shared.wait_cancelled();
            return Err(Fault::Lost(warning));
        }
        if appended == 0 {
            let fence = tables.fence()?;
            return Err(log::refusal(fence.as_ref(), &self.ownership(log.epoch)));
        }
        let bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        if let Some(log) = &mut *self.shared.log() {
            log.appended(target, bytes);
        }
        Ok(bytes)
    }

    /// Writes the rows of a large commit, after those of all waiting ones; only an empty record of it gets into the log.
    fn write_at_once(&mut self, log: &Log, commit: &Arc<Commit>) -> Result<(), CommitError> {
        let ours = commit.epoch;
        let mut rows = self.shared.rows();
        let Some(rows) = &mut *rows else {
            return Err(self.shared.not_open().into_commit_error(ours));
        };
        let settled = self.shared.settle_in(rows);
        settled.map_err(|fault| not_applied(fault, ours))?;
        let target = self.shared.target(log);
        let place = log.place(commit.sequence);
        let write = RowWrite::AtOnce { target, place };
        let written = rows.write_at_once(&self.shared.backend, commit, write);
        if let Some(warning) = written.map_err(|fault| fault.into_commit_error(ours))? {
            self.shared.wait_cancelled();
            return Err(CommitError::Unknown(warning));
        }
        if let Some(log) = &mut *self.shared.log() {
            log.appended(target, 0);
        }
        Ok(())
    }
}

/// Converts a fault before anything of the commit was sent.
fn not_applied(fault: Fault, ours: Epoch) -> CommitError {
    match fault.into_commit_error(ours) {
        CommitError::Unknown(reason) => CommitError::NotApplied {
            reason,
            is_full: false,
        },
        other => other,
    }
}

impl<B: Backend> Store for ShardStore<B> {
    type Reader = B::Reader;

    /// Takes the shard over, from anybody.
    fn open(&mut self) -> Result<Opened, StoreError> {
        self.take_and_serve(None)
    }

    fn take_back(&mut self, ours: Epoch) -> Result<Opened, StoreError> {
        self.take_and_serve(Some(ours))
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn hold(&self) -> Option<StoreHold> {
        self.shared.backend.hold()
    }

    fn log_state(&self) -> LogState {
        LogState {
            durability: self.durability.map(|found| found.mode),
            ..self.shared.log_state()
        }
    }

    fn load(&mut self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        let backend = &self.shared.backend;
        let settled = backend.outlast(|| self.shared.settle());
        let header = settled.and_then(|()| backend.outlast(|| self.verified_header()));
        let loaded = header.and_then(|header| {
            let server = backend.server();
            let loaded = backend.load(&header, each);
            // Rows that another owner writes meanwhile look damaged, or as if all were well.
            if self.verified_header()?.sequence != header.sequence || backend.server() != server {
                let reason = "the rows have changed while they were read";
                return Err(Fault::Lost(reason.to_owned()));
            }
            loaded
        });
        let ours = self.shared.log().as_ref().map(|log| Epoch(log.epoch));
        loaded.map_err(|fault| self.explain(fault, ours, "read"))
    }

    fn commit(&mut self, commit: &Arc<Commit>) -> Result<(), CommitError> {
        if let Some(reason) = &*self.shared.failure() {
            return Err(CommitError::Unknown(reason.clone()));
        }
        let Some(log) = self.shared.log().clone() else {
            let reason = "the store has to be opened again first";
            return Err(CommitError::Unknown(reason.to_owned()));
        };
        log.check(commit)?;
        let mut committed = self.try_commit(&log, commit);
        if committed.is_ok() {
            committed = self.note_confirmed(log.epoch, commit.sequence);
        }
        if let Err(CommitError::Unknown(_) | CommitError::Fenced { .. }) = &committed {
            self.appending = None;
            self.shared.close();
        }
        committed
    }

    fn reader(&self) -> Result<B::Reader, StoreError> {
        B::reader(&self.shared).map_err(|fault| self.explain(fault, None, "read"))
    }

    fn idle(&mut self) -> Result<(), StoreError> {
        let label = self.shared.backend.label();
        if self.row_thread.is_none() {
            let tended = self.shared.tend();
            return tended.map_err(|fault| fault.at(label, "written"));
        }
        self.shared.queue.ask(RowWork::WriteIdle);
        match &*self.shared.failure() {
            None => Ok(()),
            Some(reason) => Err(StoreError::Io {
                path: label.to_owned(),
                doing: "written",
                reason: reason.clone(),
            }),
        }
    }
}

//! The model of the database behind the product's rules: each statement goes to the world, and its thread waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use ganger_store::memory::MemoryReader;
use ganger_store::{Loaded, Store as _};
use ganger_store_postgres::rules::{
    Backend, ClaimTables, Fault, Fence, FenceRow, Header, LockWait, LogRecord, LogTables,
    Ownership, Place, RowTables, RowWrite, Shared, SlotEnd, Target,
};
use ganger_store_postgres::{Durability, Limits, NewestServer};
use ganger_types::Commit;

use super::planted::PlantedBug;
use super::server::{MILLI, SECOND};
use super::statement::{FenceUse, Reply, Statement};
use super::thread::{Answer, Ask, ask};

/// Longest outage that a shard outlasts.
const OUTAGE_MAX: u64 = 30 * SECOND;
/// Attempts to reach the newest server.
const HOST_ATTEMPTS: u32 = 4;
/// Time between two attempts.
const OUTAGE_PAUSE: u64 = 500 * MILLI;
/// Time between two looks at what another thread of the process holds.
const HELD_PAUSE: u64 = 3 * MILLI;

/// One process as the backend of the shard.
pub(crate) struct ModelBackend {
    /// Name of this process and of no other.
    pub(crate) owner: String,
    pub(crate) limits: Limits,
    pub(crate) planted: PlantedBug,
    /// The server that this process has used last.
    pub(crate) newest: NewestServer,
}

fn lost(reason: &str) -> Fault {
    Fault::Lost(reason.to_owned())
}

/// A connection of a process.
pub(crate) struct ModelConnection {
    number: u64,
    durability: Durability,
    warning: Option<String>,
    is_open: bool,
    epoch: u64,
    planted: PlantedBug,
    /// Name of the process.
    owner: String,
    /// Planted: what was read before the lock.
    early: Option<Vec<SlotEnd>>,
    /// Planted: whether the claim is really a look.
    is_look: bool,
}

impl ModelConnection {
    fn connect(backend: &ModelBackend, application: &str, epoch: u64) -> Result<Self, Fault> {
        let mut attempt = 1;
        loop {
            let (number, durability) = match ask(Ask::Connect(application.to_owned())) {
                Answer::Connected(connected) => connected?,
                _ => return Err(lost("the process is dead")),
            };
            match backend.newest.admit(&durability) {
                Err(fault) if !backend.planted.is(411) => {
                    ask(Ask::Close(number));
                    if attempt == HOST_ATTEMPTS {
                        return Err(fault);
                    }
                }
                _ => {
                    return Ok(Self {
                        number,
                        durability,
                        warning: None,
                        is_open: true,
                        epoch,
                        planted: backend.planted,
                        owner: backend.owner.clone(),
                        early: None,
                        is_look: false,
                    });
                }
            }
            attempt += 1;
        }
    }

    fn run(&mut self, statement: Statement) -> Result<Reply, Fault> {
        if !self.is_open {
            return Err(lost("the connection has ended"));
        }
        let result = match ask(Ask::Run(self.number, Box::new(statement))) {
            Answer::Ran(result, warning) => {
                if !self.planted.is(406) && self.warning.is_none() {
                    self.warning = warning;
                }
                result
            }
            _ => Err(lost("the process is dead")),
        };
        if result.as_ref().is_err_and(Fault::is_lost) {
            self.is_open = false;
        }
        result
    }

    fn is_alive(&mut self) -> bool {
        self.is_open = self.is_open && matches!(ask(Ask::IsAlive(self.number)), Answer::Is(true));
        self.is_open
    }

    fn read_fence(&mut self, locks: bool) -> Result<Fence, Fault> {
        match self.run(Statement::ReadFence { locks })? {
            Reply::Fence(fence) => Ok(fence),
            other => unreachable!("the fence was asked for: {other:?}"),
        }
    }

    fn read_checkpoint(&mut self) -> Result<(u64, Vec<u8>), Fault> {
        match self.run(Statement::ReadCheckpoint)? {
            Reply::Checkpoint(sequence, sealed) => Ok((sequence, sealed)),
            other => unreachable!("the checkpoint was asked for: {other:?}"),
        }
    }

    fn read_ends(&mut self) -> Result<Vec<SlotEnd>, Fault> {
        let stops_at_gap = self.planted.is(409);
        match self.run(Statement::ReadEnds { stops_at_gap })? {
            Reply::Ends(ends) => Ok(ends),
            other => unreachable!("the ends were asked for: {other:?}"),
        }
    }
}

impl Drop for ModelConnection {
    fn drop(&mut self) {
        ask(Ask::Close(self.number));
    }
}

impl Backend for ModelBackend {
    type Claiming = ModelConnection;
    type Appending = ModelConnection;
    type Writing = ModelConnection;
    type Reader = MemoryReader;

    fn label(&self) -> &'static str {
        "the model"
    }

    fn number(&self) -> u32 {
        0
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn server(&self) -> u64 {
        if self.planted.is(424) {
            return 0;
        }
        self.newest.number()
    }

    fn new_owner(&self) -> Result<String, Fault> {
        Ok(self.owner.clone())
    }

    fn claiming(&self) -> Result<ModelConnection, Fault> {
        ModelConnection::connect(self, "ganger/0/claim", 0)
    }

    fn appending(&self, ours: &Ownership) -> Result<ModelConnection, Fault> {
        let epoch = ours.epoch;
        ModelConnection::connect(self, &format!("ganger/0/{epoch}"), epoch)
    }

    fn writing(&self, ours: &Ownership) -> Result<ModelConnection, Fault> {
        let epoch = ours.epoch;
        ModelConnection::connect(self, &format!("ganger/0/{epoch}"), epoch)
    }

    fn outlast<T>(&self, mut attempt: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
        let Answer::Time(began) = ask(Ask::Time) else {
            return attempt();
        };
        loop {
            let done = attempt();
            let is_again = done.as_ref().is_err_and(Fault::is_lost)
                && matches!(ask(Ask::Time), Answer::Time(now) if now < began + OUTAGE_MAX)
                && !matches!(ask(Ask::Sleep(OUTAGE_PAUSE)), Answer::Gone);
            if !is_again {
                return done;
            }
        }
    }

    /// Another thread of the process may hold it while the world goes on.
    fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        loop {
            match mutex.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    if matches!(ask(Ask::Sleep(HELD_PAUSE)), Answer::Gone) {
                        // All threads of the process end now.
                        return mutex.lock().unwrap_or_else(PoisonError::into_inner);
                    }
                }
            }
        }
    }

    fn load(&self, header: &Header, each: &mut dyn FnMut(Loaded)) -> Result<(), Fault> {
        let mut rows = ModelConnection::connect(self, "ganger/reader", 0)?;
        let Reply::Rows(mut rows) = rows.run(Statement::ReadRows)? else {
            unreachable!("the rows were asked for");
        };
        let (found, wanted) = (rows.sequence(), header.sequence);
        if found != wanted {
            return Err(Fault::Damaged(format!(
                "the rows go up to commit {found}, and were written up to {wanted}"
            )));
        }
        let loaded = rows.load(each);
        loaded.map_err(|error| lost(&error.to_string()))
    }

    fn reader(shared: &Arc<Shared<Self>>) -> Result<MemoryReader, Fault> {
        shared.read_rows(|| {
            shared.settle()?;
            let mut rows = ModelConnection::connect(shared.backend(), "ganger/reader", 0)?;
            let Reply::Rows(rows) = rows.run(Statement::ReadRows)? else {
                unreachable!("the rows were asked for");
            };
            rows.reader().map_err(|error| lost(&error.to_string()))
        })
    }
}

impl ClaimTables for ModelConnection {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn begin(&mut self, wait: LockWait) -> Result<(), Fault> {
        if self.planted.is(417) {
            self.early = Some(self.read_ends()?);
        }
        let wait = match wait {
            LockWait::Owner => 2 * SECOND,
            LockWait::Last => 5 * SECOND,
        };
        self.run(Statement::Begin(wait)).map(|_| ())
    }

    fn lock_fence(&mut self) -> Result<Option<Fence>, Fault> {
        if self.planted.is(402) {
            let mut fence = self.read_fence(false)?;
            if fence.owner == self.owner {
                self.is_look = true;
                fence.epoch -= 1;
                return Ok(Some(fence));
            }
        }
        let mut fence = self.read_fence(true)?;
        if self.planted.is(403) {
            fence.owner.clone_from(&self.owner);
        }
        if self.planted.is(404) && fence.owner == self.owner {
            fence.epoch -= 1;
        }
        Ok(Some(fence))
    }

    fn write_fence(&mut self, row: FenceRow, epoch: u64, owner: &str) -> Result<u64, Fault> {
        if self.is_look {
            return Ok(1);
        }
        let owner = owner.to_owned();
        match self.run(Statement::WriteFence { row, epoch, owner })? {
            Reply::Count(count) => Ok(count),
            other => unreachable!("a row was written: {other:?}"),
        }
    }

    fn write_state(&mut self, state: &str) -> Result<(), Fault> {
        let state = Statement::WriteState(state.to_owned());
        self.run(state).map(|_| ())
    }

    fn checkpoint(&mut self) -> Result<Option<(u64, Vec<u8>)>, Fault> {
        self.read_checkpoint().map(Some)
    }

    fn ends(&mut self) -> Result<Vec<SlotEnd>, Fault> {
        match self.early.take() {
            Some(early) => Ok(early),
            None => self.read_ends(),
        }
    }

    fn commit(&mut self) -> Result<(), Fault> {
        if self.planted.is(405) {
            ask(Ask::Send(self.number, Box::new(Statement::Commit)));
            return Ok(());
        }
        self.run(Statement::Commit).map(|_| ())
    }

    fn rollback(&mut self) -> Result<(), Fault> {
        self.run(Statement::Rollback).map(|_| ())
    }

    fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }

    fn end_owner(&mut self) -> Result<(), Fault> {
        self.run(Statement::EndOwner).map(|_| ())
    }
}

impl ModelConnection {
    fn append_once(&mut self, target: Target, place: Place, body: &[u8]) -> Result<u64, Fault> {
        let fence = if self.planted.is(401) {
            if self.read_fence(false)?.epoch != place.epoch {
                return Ok(0);
            }
            FenceUse::Apart
        } else if self.planted.is(422) {
            FenceUse::Weak
        } else {
            FenceUse::Locked
        };
        let statement = Statement::Append {
            target,
            place,
            owner: self.owner.clone(),
            body: body.to_vec(),
            fence,
        };
        match self.run(statement)? {
            Reply::Count(count) => Ok(count),
            other => unreachable!("a record was appended: {other:?}"),
        }
    }

    /// Planted: sends the record again on another connection.
    fn append_again(&mut self, target: Target, place: Place, body: &[u8]) -> Result<u64, Fault> {
        let application = format!("ganger/0/{}", self.epoch);
        match ask(Ask::Connect(application)) {
            Answer::Connected(Ok((number, _))) => {
                ask(Ask::Close(self.number));
                (self.number, self.is_open) = (number, true);
            }
            Answer::Connected(Err(fault)) => return Err(fault),
            _ => return Err(lost("the process is dead")),
        }
        match self.append_once(target, place, body) {
            Err(Fault::Refused { .. }) => Ok(1),
            done => done,
        }
    }
}

impl LogTables for ModelConnection {
    fn durability(&self) -> Durability {
        self.durability
    }

    fn is_alive(&mut self) -> bool {
        ModelConnection::is_alive(self)
    }

    fn append(&mut self, target: Target, place: Place, body: &[u8]) -> Result<u64, Fault> {
        match self.append_once(target, place, body) {
            Err(fault) if fault.is_lost() && self.planted.is(414) => {
                self.append_again(target, place, body)
            }
            Err(fault) if fault.is_lost() && self.planted.is(416) => {
                Err(Fault::refused("57014", "no answer came"))
            }
            done => done,
        }
    }

    fn fence(&mut self) -> Result<Option<Fence>, Fault> {
        self.read_fence(false).map(Some)
    }

    fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }
}

impl RowTables for ModelConnection {
    fn is_alive(&mut self) -> bool {
        ModelConnection::is_alive(self)
    }

    fn read_tables(&mut self) -> Result<Option<(u64, Vec<u8>)>, Fault> {
        self.read_checkpoint().map(Some)
    }

    fn fence(&mut self) -> Result<Option<Fence>, Fault> {
        self.read_fence(false).map(Some)
    }

    fn written(&mut self) -> Result<Option<u64>, Fault> {
        let (sequence, _) = self.read_checkpoint()?;
        Ok(Some(sequence))
    }

    fn write(
        &mut self,
        commits: &[Arc<Commit>],
        write: RowWrite,
        before: &Header,
    ) -> Result<Header, Fault> {
        if let RowWrite::Behind { slot } = write
            && self.planted.is(410)
        {
            self.empty_early(slot)?;
        }
        let statement = Statement::WriteRows {
            epoch: self.epoch,
            owner: self.owner.clone(),
            commits: commits.to_vec(),
            write,
            before: before.clone(),
            compares: !self.planted.is(412),
            looks: !self.planted.is(425),
        };
        match self.run(statement)? {
            Reply::Header(header) => Ok(header),
            other => unreachable!("rows were written: {other:?}"),
        }
    }

    fn records(&mut self, after: u64) -> Result<Vec<LogRecord>, Fault> {
        match self.run(Statement::ReadRecords(after))? {
            Reply::Records(records) => Ok(records),
            other => unreachable!("records were asked for: {other:?}"),
        }
    }

    fn empty(&mut self, slot: usize) -> Result<bool, Fault> {
        self.empty_slot(slot, true)
    }

    fn drop_oldest_part(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn take_warning(&mut self) -> Option<String> {
        self.warning.take()
    }
}

impl ModelConnection {
    fn empty_slot(&mut self, slot: usize, looks: bool) -> Result<bool, Fault> {
        let statement = Statement::Empty {
            epoch: self.epoch,
            owner: self.owner.clone(),
            slot,
            looks,
        };
        match self.run(statement)? {
            Reply::Emptied(is_empty) => Ok(is_empty),
            other => unreachable!("a table was emptied: {other:?}"),
        }
    }

    /// Planted: empties all tables but the newest.
    fn empty_early(&mut self, newest: usize) -> Result<(), Fault> {
        for slot in (0..super::tables::SLOTS).filter(|slot| *slot != newest) {
            match self.empty_slot(slot, false) {
                Err(fault) if !fault.is_lock_timeout() => return Err(fault),
                _ => {}
            }
        }
        Ok(())
    }
}

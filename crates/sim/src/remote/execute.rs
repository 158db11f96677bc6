//! How the servers of the model execute statements, step by step. Other sessions run between two steps.

use ganger_store_postgres::rules::{
    Fault, FenceRow, Header, Ownership, Place, RowWrite, Target, in_rows,
};
use ganger_types::Commit;

use super::locks::{Mode, Resource};
use super::server::{MILLI, Running, Servers, Step};
use super::statement::{FenceUse, Reply, Statement};
use super::tables::{Op, Record, Tables};

/// Time that a statement which empties a table waits for its lock.
const EMPTY_WAIT: u64 = 50 * MILLI;

impl Servers {
    fn tables(&self, session: u64) -> &Tables {
        &self.all[self.sessions[&session].server].tables
    }

    fn push(&mut self, session: u64, op: Op) {
        self.transaction(session, true).ops.push(op);
    }

    fn set_lock_wait(&mut self, session: u64, wait: u64) {
        let state = self.sessions.get_mut(&session).expect("it executes");
        state.lock_wait = wait;
    }

    /// Executes one step of a statement.
    pub(crate) fn execute(&mut self, now: u64, session: u64, running: &mut Running) -> Step {
        let step = running.step;
        match &running.statement {
            Statement::Begin(wait) => {
                let wait = *wait;
                self.set_lock_wait(session, wait);
                self.transaction(session, false);
                Step::Done(Reply::Done)
            }
            Statement::Commit => match step {
                0 => Step::Later(self.rng.within(300, 3 * MILLI)),
                _ => Step::Commit(Reply::Done),
            },
            Statement::Rollback => {
                self.end(session);
                Step::Done(Reply::Done)
            }
            Statement::ReadFence { locks: true } if step == 0 => {
                Step::Lock(Resource::FenceLog, Mode::Exclusive)
            }
            Statement::ReadFence { .. } => Step::Done(Reply::Fence(self.tables(session).fence())),
            Statement::WriteFence { row, epoch, owner } => match step {
                0 => Step::Lock((*row).into(), Mode::Exclusive),
                _ => {
                    let (row, epoch, owner) = (*row, *epoch, owner.clone());
                    self.push(session, Op::Fence { row, epoch, owner });
                    Step::Done(Reply::Count(1))
                }
            },
            Statement::WriteState(state) => match step {
                0 => Step::Lock(Resource::FenceLog, Mode::Exclusive),
                1 => Step::Lock(Resource::FenceRows, Mode::Exclusive),
                _ => {
                    self.push(session, Op::State(state.clone()));
                    Step::Done(Reply::Done)
                }
            },
            Statement::ReadCheckpoint => {
                let header = &self.tables(session).header;
                Step::Done(Reply::Checkpoint(header.sequence, header.seal()))
            }
            Statement::ReadEnds { stops_at_gap } => {
                let ends = self.tables(session).ends(now, *stops_at_gap);
                Step::Done(Reply::Ends(ends))
            }
            Statement::EndOwner => {
                self.end_owner(session);
                Step::Done(Reply::Done)
            }
            Statement::ReadRecords(after) => {
                Step::Done(Reply::Records(self.tables(session).records(*after)))
            }
            Statement::ReadRows => Step::Done(Reply::Rows(self.tables(session).rows.clone())),
            Statement::Append { .. } => self.append(now, session, running),
            Statement::WriteRows { .. } => self.write_rows(now, session, running),
            Statement::Empty { .. } => self.empty(session, running),
        }
    }

    /// Ends the sessions that have the name of the owner in the fence.
    fn end_owner(&mut self, session: u64) {
        let server = self.sessions[&session].server;
        let epoch = self.all[server].tables.epoch(FenceRow::Log);
        let name = format!("ganger/0/{epoch}");
        let theirs = self.sessions.iter().filter(|(number, other)| {
            other.server == server && other.application == name && **number != session
        });
        let theirs: Vec<u64> = theirs.map(|(session, _)| *session).collect();
        for session in theirs {
            self.terminate(session);
        }
    }

    fn nothing(&mut self, session: u64) -> Step {
        self.end(session);
        Step::Done(Reply::Count(0))
    }

    fn append(&mut self, now: u64, session: u64, running: &mut Running) -> Step {
        let Statement::Append {
            target,
            place,
            owner,
            body,
            fence,
        } = &running.statement
        else {
            unreachable!("the caller has looked");
        };
        let (target, place, fence) = (*target, *place, *fence);
        match running.step {
            0 => {
                self.transaction(session, true);
                Step::Lock(Resource::Slot(target.slot), Mode::Shared)
            }
            1 => Step::Lock(Resource::Slot(target.before), Mode::Shared),
            // The snapshot: what it sees without having locked anything.
            2 => {
                let tables = self.tables(session);
                let before = place.sequence.wrapping_sub(1);
                let has_before = tables.slots[target.before].contains_key(&before);
                let is_owner =
                    fence == FenceUse::Apart || tables.is_owned(FenceRow::Log, place.epoch, owner);
                if !is_owner || !has_before {
                    return self.nothing(session);
                }
                Step::Later(self.rng.below(3 * MILLI))
            }
            3 if fence == FenceUse::Locked => Step::Lock(Resource::FenceLog, Mode::Shared),
            3 => Step::Later(0),
            // The newest version of the row, which nobody changes any more.
            4 => {
                let tables = self.tables(session);
                let is_owner = tables.is_owned(FenceRow::Log, place.epoch, owner);
                if fence != FenceUse::Apart && !is_owner {
                    return self.nothing(session);
                }
                Step::Later(self.rng.below(MILLI))
            }
            5 => Step::Lock(Resource::Key(target.slot, place.sequence), Mode::Exclusive),
            6 => {
                let record = Record {
                    epoch: place.epoch,
                    body: body.clone(),
                    at: now,
                };
                self.insert(session, target, place, record)
                    .unwrap_or_else(|| Step::Later(self.rng.within(300, 6 * MILLI)))
            }
            _ => Step::Commit(Reply::Count(1)),
        }
    }

    fn insert(
        &mut self,
        session: u64,
        target: Target,
        place: Place,
        record: Record,
    ) -> Option<Step> {
        let sequence = place.sequence;
        if self.tables(session).slots[target.slot].contains_key(&sequence) {
            let message = "duplicate key value violates unique constraint";
            return Some(Step::Refused(Fault::refused("23505", message)));
        }
        let slot = target.slot;
        self.push(
            session,
            Op::Insert {
                slot,
                sequence,
                record,
            },
        );
        None
    }

    fn write_rows(&mut self, now: u64, session: u64, running: &mut Running) -> Step {
        let Statement::WriteRows {
            epoch,
            owner,
            commits,
            write,
            before,
            compares,
            looks,
        } = &running.statement
        else {
            unreachable!("the caller has looked");
        };
        let (epoch, write, compares, looks) = (*epoch, *write, *compares, *looks);
        match (running.step, write) {
            (0, RowWrite::Behind { .. }) => {
                self.transaction(session, true);
                Step::Later(0)
            }
            (0, RowWrite::AtOnce { .. }) => {
                self.transaction(session, true);
                Step::Lock(Resource::FenceLog, Mode::Shared)
            }
            (1, _) => Step::Lock(Resource::FenceRows, Mode::Shared),
            (2, _) => {
                let tables = self.tables(session);
                if !tables.is_owned(FenceRow::Rows, epoch, owner) {
                    return Step::Refused(refusal(tables, epoch, owner));
                }
                Step::Later(self.rng.within(2 * MILLI, 60 * MILLI))
            }
            (3, RowWrite::AtOnce { target, place }) => {
                let tables = self.tables(session);
                let before = place.sequence.wrapping_sub(1);
                if !tables.slots[target.before].contains_key(&before) {
                    return Step::Refused(refusal(tables, epoch, owner));
                }
                let record = Record {
                    epoch,
                    body: in_rows(place),
                    at: now,
                };
                self.insert(session, target, place, record)
                    .unwrap_or(Step::Later(0))
            }
            (3, RowWrite::Behind { .. }) => Step::Later(0),
            (4, _) => Step::Lock(Resource::Checkpoint, Mode::Exclusive),
            (5, _) => {
                if compares && self.tables(session).header.sequence != before.sequence {
                    let reason = "the rows were written by an earlier attempt".to_owned();
                    return Step::Refused(Fault::Lost(reason));
                }
                let last = commits.last().map_or(0, |commit| commit.sequence);
                let mut slots = self.tables(session).slots.iter();
                let is_in_log = slots.any(|slot| slot.contains_key(&last));
                // The transaction itself appends the record of a commit that is written at once.
                if looks && matches!(write, RowWrite::Behind { .. }) && !is_in_log {
                    return Step::Refused(Fault::Rewound(format!("commit {last} is lost")));
                }
                let (commits, header) = (commits.clone(), header_after(before, commits));
                self.push(session, Op::Rows { commits, header });
                Step::Later(self.rng.within(300, 3 * MILLI))
            }
            (_, RowWrite::Behind { .. }) => {
                Step::CommitHere(Reply::Header(header_after(before, commits)))
            }
            (_, RowWrite::AtOnce { .. }) => {
                Step::Commit(Reply::Header(header_after(before, commits)))
            }
        }
    }

    fn empty(&mut self, session: u64, running: &mut Running) -> Step {
        let Statement::Empty {
            epoch,
            owner,
            slot,
            looks,
        } = &running.statement
        else {
            unreachable!("the caller has looked");
        };
        let (epoch, slot, looks) = (*epoch, *slot, *looks);
        match running.step {
            0 => {
                self.set_lock_wait(session, EMPTY_WAIT);
                self.transaction(session, true);
                Step::Lock(Resource::FenceRows, Mode::Shared)
            }
            1 => {
                if !self.tables(session).is_owned(FenceRow::Rows, epoch, owner) {
                    let is_empty = self.tables(session).slots[slot].is_empty();
                    self.end(session);
                    return Step::Done(Reply::Emptied(is_empty));
                }
                Step::Later(self.rng.below(MILLI))
            }
            2 => Step::Lock(Resource::Slot(slot), Mode::Exclusive),
            _ => {
                let tables = self.tables(session);
                let written = tables.header.sequence;
                let is_needed = looks && tables.slots[slot].range(written..).next().is_some();
                if !is_needed {
                    self.push(session, Op::Truncate(slot));
                }
                let is_empty = !is_needed || self.tables(session).slots[slot].is_empty();
                Step::CommitHere(Reply::Emptied(is_empty))
            }
        }
    }
}

/// Why a statement of an owner did nothing.
fn refusal(tables: &Tables, epoch: u64, owner: &str) -> Fault {
    let owner = owner.into();
    tables.fence().refusal(&Ownership { epoch, owner })
}

fn header_after(before: &Header, commits: &[std::sync::Arc<Commit>]) -> Header {
    let mut header = before.clone();
    if let Some(last) = commits.last() {
        (header.sequence, header.meta) = (last.sequence, last.meta);
    }
    header
}

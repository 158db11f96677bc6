//! The model of PostgreSQL: servers, the sessions on them, and what becomes of their transactions.
//!
//! A transaction holds its locks until it is visible to others: after its record is in the log of the server (the WAL)
//! and, if commits are replicated, a standby has it. A session lives on without its client, and what it was doing goes
//! on. A server that crashes has everything that was in its WAL; a standby that takes its place has what it received.

mod backup;

use std::collections::BTreeMap;

use ganger_store_postgres::ServerRun;
use ganger_store_postgres::rules::{Fault, FenceRow, epoch_after_rewind};
use ganger_types::ShardId;

use super::locks::{Locks, Mode, Resource};
use super::statement::{Reply, Statement};
use super::tables::{Op, Tables};
use crate::rng::Rng;

pub(crate) const MILLI: u64 = 1_000;
pub(crate) const SECOND: u64 = 1_000_000;
/// Time that a statement waits for a lock unless it says so itself.
const LOCK_WAIT: u64 = 5 * SECOND;
/// Time that a transaction may be open without a statement.
pub(crate) const IDLE_MAX: u64 = 10 * SECOND;

/// What the world does next for a server.
#[derive(Debug)]
pub(crate) enum Effect {
    /// A session goes on after a time.
    Step { session: u64, after: u64 },
    /// A session may have waited too long for a lock.
    LockWaited {
        session: u64,
        call: u64,
        step: u32,
        after: u64,
    },
    /// A session may have been idle in a transaction for too long.
    Idled { session: u64, statements: u64 },
    /// The client gets an answer.
    Answer {
        session: u64,
        call: u64,
        result: Result<Reply, Fault>,
        warning: Option<String>,
    },
    /// The server has ended the connection of a session.
    Closed { session: u64 },
    /// The standby receives what it can.
    Replicate { server: usize },
}

/// A transaction of a session, with what it will change.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    /// Whether it ends with its statement.
    is_short: bool,
    pub(crate) ops: Vec<Op>,
    /// Place in the WAL, once it is there.
    place: Option<usize>,
}

/// A statement that is executed.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) call: u64,
    pub(crate) statement: Statement,
    pub(crate) step: u32,
    /// The lock that it waits for.
    waits: Option<(Resource, Mode)>,
    /// The reply, once nothing but the commit is left.
    pub(crate) reply: Option<Reply>,
}

/// A session on a server.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) server: usize,
    pub(crate) application: String,
    pub(crate) transaction: Option<Transaction>,
    running: Option<Running>,
    pub(crate) lock_wait: u64,
    /// Number of statements so far.
    statements: u64,
    has_client: bool,
}

/// The standby of a server.
#[derive(Debug)]
pub(crate) struct Standby {
    tables: Tables,
    received: usize,
    /// Time until which it receives nothing.
    pub(crate) stalled_until: u64,
}

/// A server with its tables, its locks and its standby.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) is_up: bool,
    pub(crate) timeline: u32,
    pub(crate) run: ServerRun,
    pub(crate) tables: Tables,
    /// A backup, until it is restored.
    backup: Option<Tables>,
    pub(crate) locks: Locks,
    wal: Vec<Vec<Op>>,
    /// `None` once it has taken the server's place.
    pub(crate) standby: Option<Standby>,
    is_replicating: bool,
}

impl Server {
    fn new(tables: Tables, timeline: u32) -> Self {
        Self {
            is_up: true,
            timeline,
            run: ServerRun::default(),
            backup: None,
            locks: Locks::default(),
            wal: Vec::new(),
            standby: Some(Standby {
                tables: tables.copy(),
                received: 0,
                stalled_until: 0,
            }),
            tables,
            is_replicating: false,
        }
    }
}

/// How a step of a statement went.
pub(crate) enum Step {
    /// The next step follows after a time.
    Later(u64),
    /// It waits for a lock; the step is tried again.
    Lock(Resource, Mode),
    /// The transaction is committed, and then the client gets this.
    Commit(Reply),
    /// As before, but no standby is waited for.
    CommitHere(Reply),
    /// The statement is done; its transaction goes on, if it is a longer one.
    Done(Reply),
    /// The statement is refused.
    Refused(Fault),
}

/// All servers, oldest first, and the sessions on them.
pub(crate) struct Servers {
    pub(crate) all: Vec<Server>,
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// Whether a commit waits for the standby.
    pub(crate) is_synchronous: bool,
    pub(crate) effects: Vec<Effect>,
    pub(crate) rng: Rng,
    /// Tables of which a backup has taken the place.
    pub(crate) replaced: Vec<Tables>,
    /// What the tables refused.
    pub(crate) broken: Option<String>,
    next_session: u64,
}

impl Servers {
    pub(crate) fn new(shard: &ShardId, is_synchronous: bool, rng: Rng) -> Self {
        Self {
            all: vec![Server::new(Tables::new(shard), 1)],
            sessions: BTreeMap::new(),
            is_synchronous,
            effects: Vec::new(),
            rng,
            replaced: Vec::new(),
            broken: None,
            next_session: 0,
        }
    }

    /// The server that the last promotion made.
    pub(crate) fn newest(&self) -> usize {
        self.all.len() - 1
    }

    pub(crate) fn connect(&mut self, server: usize, application: &str) -> u64 {
        self.next_session += 1;
        let session = Session {
            server,
            application: application.to_owned(),
            transaction: None,
            running: None,
            lock_wait: LOCK_WAIT,
            statements: 0,
            has_client: true,
        };
        self.sessions.insert(self.next_session, session);
        self.next_session
    }

    /// Begins a statement that has arrived.
    pub(crate) fn begin(&mut self, now: u64, session: u64, call: u64, statement: Statement) {
        let Some(state) = self.sessions.get_mut(&session) else {
            self.effects.push(Effect::Closed { session });
            return;
        };
        state.statements += 1;
        if state.transaction.is_none() {
            state.lock_wait = LOCK_WAIT;
        }
        state.running = Some(Running {
            call,
            statement,
            step: 0,
            waits: None,
            reply: None,
        });
        self.step(now, session);
    }

    /// Lets a session go on.
    pub(crate) fn step(&mut self, now: u64, session: u64) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let is_committing = state
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.place.is_some());
        if is_committing {
            return;
        }
        let Some(mut running) = state.running.take() else {
            return;
        };
        if let Some((resource, mode)) = running.waits {
            let server = state.server;
            if !self.all[server].locks.take(session, resource, mode) {
                self.put_back(session, running);
                return;
            }
            running.waits = None;
        }
        let step = self.execute(now, session, &mut running);
        running.step += 1;
        self.follow(session, running, step);
    }

    fn put_back(&mut self, session: u64, running: Running) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.running = Some(running);
        }
    }

    fn follow(&mut self, session: u64, mut running: Running, step: Step) {
        match step {
            Step::Later(after) => {
                self.effects.push(Effect::Step { session, after });
                self.put_back(session, running);
            }
            Step::Lock(resource, mode) => {
                let server = self.sessions[&session].server;
                if self.all[server].locks.take(session, resource, mode) {
                    self.effects.push(Effect::Step { session, after: 0 });
                } else {
                    running.waits = Some((resource, mode));
                    self.effects.push(Effect::LockWaited {
                        session,
                        call: running.call,
                        step: running.step,
                        after: self.sessions[&session].lock_wait,
                    });
                }
                self.put_back(session, running);
            }
            Step::Commit(reply) => self.commit(session, running, reply, self.is_synchronous),
            Step::CommitHere(reply) => self.commit(session, running, reply, false),
            Step::Done(reply) => self.answer(session, running.call, Ok(reply), None),
            Step::Refused(fault) => {
                let is_short = self.sessions[&session]
                    .transaction
                    .as_ref()
                    .is_none_or(|transaction| transaction.is_short);
                if is_short {
                    self.roll_back(session);
                }
                self.answer(session, running.call, Err(fault), None);
            }
        }
    }

    fn commit(&mut self, session: u64, mut running: Running, reply: Reply, waits: bool) {
        let state = self.sessions.get_mut(&session).expect("it executes");
        let number = state.server;
        let transaction = state.transaction.get_or_insert_default();
        let server = &mut self.all[number];
        server.wal.push(transaction.ops.clone());
        transaction.place = Some(server.wal.len() - 1);
        running.reply = Some(reply);
        self.put_back(session, running);
        if waits {
            self.replicate_soon(number);
        } else {
            self.complete(session, None);
            self.replicate_soon(number);
        }
    }

    fn replicate_soon(&mut self, server: usize) {
        if !self.all[server].is_replicating && self.all[server].standby.is_some() {
            self.all[server].is_replicating = true;
            self.effects.push(Effect::Replicate { server });
        }
    }

    /// Makes a committed transaction visible, and answers.
    fn complete(&mut self, session: u64, warning: Option<String>) {
        self.make_visible(session);
        let state = self.sessions.get_mut(&session).expect("it commits");
        let running = state.running.take().expect("it commits");
        let reply = running.reply.expect("it was given with the commit");
        self.answer(session, running.call, Ok(reply), warning);
    }

    fn make_visible(&mut self, session: u64) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let Some(transaction) = state.transaction.take() else {
            return;
        };
        let server = &mut self.all[state.server];
        for op in &transaction.ops {
            if let Err(why) = server.tables.apply(op) {
                self.broken.get_or_insert(why);
            }
        }
        self.release(session);
    }

    fn roll_back(&mut self, session: u64) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.transaction = None;
            self.release(session);
        }
    }

    /// Releases the locks of a session, and lets those go on that wait for a lock.
    fn release(&mut self, session: u64) {
        let server = self.sessions[&session].server;
        self.all[server].locks.release(session);
        let waiting = self.sessions.iter().filter(|(_, other)| {
            let running = other.running.as_ref();
            other.server == server && running.is_some_and(|running| running.waits.is_some())
        });
        let waiting: Vec<u64> = waiting.map(|(session, _)| *session).collect();
        for session in waiting {
            self.effects.push(Effect::Step { session, after: 0 });
        }
    }

    fn answer(
        &mut self,
        session: u64,
        call: u64,
        result: Result<Reply, Fault>,
        warning: Option<String>,
    ) {
        let Some(state) = self.sessions.get(&session) else {
            return;
        };
        if !state.has_client {
            return self.terminate(session);
        }
        if state.transaction.is_some() {
            self.effects.push(Effect::Idled {
                session,
                statements: state.statements,
            });
        }
        self.effects.push(Effect::Answer {
            session,
            call,
            result,
            warning,
        });
    }

    /// Refuses a statement that still waits for the same lock.
    pub(crate) fn lock_waited(&mut self, session: u64, call: u64, step: u32) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        let is_same = state.running.as_ref().is_some_and(|running| {
            running.waits.is_some() && running.call == call && running.step == step
        });
        if let Some(running) = state.running.take_if(|_| is_same) {
            let fault = Fault::refused("55P03", "canceling statement due to lock timeout");
            self.follow(session, running, Step::Refused(fault));
        }
    }

    /// Ends a session that has done nothing in its transaction since.
    pub(crate) fn idled(&mut self, session: u64, statements: u64) {
        let is_idle = self.sessions.get(&session).is_some_and(|state| {
            state.statements == statements && state.running.is_none() && state.transaction.is_some()
        });
        if is_idle {
            self.terminate(session);
        }
    }

    /// Notices that a client has gone: what it asked for goes on, and then the session ends.
    pub(crate) fn client_is_gone(&mut self, session: u64) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        state.has_client = false;
        if state.running.is_none() {
            self.terminate(session);
        }
    }

    /// Ends a session. A commit that waits for its standby becomes visible without one.
    pub(crate) fn terminate(&mut self, session: u64) {
        let Some(state) = self.sessions.get_mut(&session) else {
            return;
        };
        state.running = None;
        let is_committed = state
            .transaction
            .as_ref()
            .is_some_and(|transaction| transaction.place.is_some());
        if is_committed {
            self.make_visible(session);
        } else {
            self.roll_back(session);
        }
        self.sessions.remove(&session);
        self.effects.push(Effect::Closed { session });
    }

    /// Sessions whose commits wait for a standby, in the order of the WAL.
    fn committing(&self, server: usize) -> Vec<(usize, u64)> {
        let waiting = self.sessions.iter().filter(|(_, one)| one.server == server);
        let mut waiting: Vec<(usize, u64)> = waiting
            .filter_map(|(session, one)| Some((one.transaction.as_ref()?.place?, *session)))
            .collect();
        waiting.sort_unstable();
        waiting
    }

    /// Cancels the wait of a commit for its standby; false if none waits.
    pub(crate) fn cancel_a_wait(&mut self, server: usize) -> bool {
        let waiting = self.committing(server);
        let Some((_, session)) = self.rng.maybe(&waiting).copied() else {
            return false;
        };
        let warning = "canceling wait for synchronous replication due to user request";
        self.complete(session, Some(warning.to_owned()));
        true
    }

    /// Lets the standby receive what is in the WAL. Returns false if it must be tried again later.
    pub(crate) fn replicate(&mut self, now: u64, number: usize) -> bool {
        let server = &mut self.all[number];
        let Some(standby) = &mut server.standby else {
            server.is_replicating = false;
            return true;
        };
        if standby.stalled_until > now || !server.is_up {
            return false;
        }
        server.is_replicating = false;
        for ops in &server.wal[standby.received..] {
            for op in ops {
                if let Err(why) = standby.tables.apply(op) {
                    self.broken.get_or_insert(why);
                }
            }
        }
        standby.received = server.wal.len();
        for (_, session) in self.committing(number) {
            self.complete(session, None);
        }
        true
    }

    /// Crashes a server: everything in its WAL is there when it starts again.
    pub(crate) fn crash(&mut self, number: usize) {
        self.all[number].is_up = false;
        for (_, session) in self.committing(number) {
            self.make_visible(session);
        }
        let on_it = self.sessions.iter();
        let on_it = on_it.filter(|(_, session)| session.server == number);
        let on_it: Vec<u64> = on_it.map(|(session, _)| *session).collect();
        for session in on_it {
            self.terminate(session);
        }
    }

    /// Lets the standby take the place of the newest server. Returns the number of transactions that it never received.
    pub(crate) fn promote(&mut self) -> usize {
        let number = self.newest();
        let server = &mut self.all[number];
        let Some(standby) = server.standby.take() else {
            return 0;
        };
        let lost = server.wal.len() - standby.received;
        let promoted = Server::new(standby.tables, server.timeline + 1);
        self.all.push(promoted);
        lost
    }

    /// Starts a server again that has crashed.
    pub(crate) fn start(&mut self, number: usize) {
        let server = &mut self.all[number];
        server.is_up = true;
        server.run.started_at_us += 1;
    }

    /// Opens a shard again that was closed because it has lost commits; false if it is not closed.
    pub(crate) fn accept_rewind(&mut self) -> bool {
        let number = self.newest();
        let server = &mut self.all[number];
        let fence = server.tables.fence();
        if !server.is_up || fence.state != "rewound" {
            return false;
        }
        let write = |row| Op::Fence {
            row,
            epoch: epoch_after_rewind(fence.epoch),
            owner: fence.owner.clone(),
        };
        let state = Op::State("open".to_owned());
        let ops = vec![write(FenceRow::Log), write(FenceRow::Rows), state];
        for op in &ops {
            if let Err(why) = server.tables.apply(op) {
                self.broken.get_or_insert(why);
            }
        }
        server.wal.push(ops);
        self.replicate_soon(number);
        true
    }

    /// Removes a record from the tables of a server and its standby, as damage does.
    pub(crate) fn damage(&mut self, number: usize, sequence: u64) {
        let server = &mut self.all[number];
        let standby = server.standby.as_mut().map(|standby| &mut standby.tables);
        for tables in std::iter::once(&mut server.tables).chain(standby) {
            for slot in &mut tables.slots {
                slot.remove(&sequence);
            }
        }
    }

    /// The last commit that both a server and its standby have.
    pub(crate) fn last_with_copy(&self, number: usize) -> u64 {
        let server = &self.all[number];
        let standby = server.standby.as_ref();
        let copied = standby.map_or(0, |standby| standby.tables.last());
        copied.min(server.tables.last())
    }

    /// Whether a standby has a commit.
    pub(crate) fn has_copy(&self, number: usize, sequence: u64) -> bool {
        let standby = self.all[number].standby.as_ref();
        standby.is_none_or(|standby| standby.tables.history.contains_key(&sequence))
    }

    /// The transaction of a session, which is begun if there is none.
    pub(crate) fn transaction(&mut self, session: u64, is_short: bool) -> &mut Transaction {
        let state = self.sessions.get_mut(&session).expect("it executes");
        state.transaction.get_or_insert_with(|| Transaction {
            is_short,
            ..Transaction::default()
        })
    }

    /// Ends a transaction without an effect, after a statement that found nothing to do.
    pub(crate) fn end(&mut self, session: u64) {
        self.roll_back(session);
    }
}

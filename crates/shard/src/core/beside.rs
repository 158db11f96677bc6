//! Reads of a remote store beside the shard: what needs rows of the store waits, and the shard goes on.
//!
//! A request whose rows are not in memory is put aside, together with the queries that it asked. Once they are answered
//! it is applied as if it had just come. The rows were read at some commit, and turns were released since. Those are kept
//! until then, and looked through before the rows, like turns that are not durable yet. Deliveries wait likewise: the
//! grant of a job is part of its turn, its payload is read while the turn is committed, and the answer goes out when both
//! are there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ganger_store::Reader;
use ganger_types::{Commit, JobId, JobRecord, Namespace, Now};

use super::deliver::UnreadJob;
use super::request::{CallReply, Output, Request, Ticket};
use super::row_query::{RowRead, RowSource, RowsBeside, RowsRead};
use super::turn::{EndedRow, PendingRows, TurnRows, UnreadAnswer, WaitingLease};
use super::waiters::LeaseWaiter;
use super::{Core, StoreTask};
use crate::{CallError, Delivery};

/// Number of reads one after the other for one request; what is still missing then is read on the shard's thread. Each
/// read follows the edges of finished jobs by one step, so only a command for a chain that is longer comes here.
const ROUNDS_MAX: u32 = 100;

/// Everything that waits for rows.
pub(super) struct BesideReads<T> {
    last_round: u64,
    reads: BTreeMap<u64, BesideRead<T>>,
    /// What has its rows and was not resumed, in the order of the answers.
    resumed: VecDeque<BesideRead<T>>,
    /// Reads that were not ordered yet.
    wanted: Vec<RowRead>,
    /// Durable turns that were released since the oldest of these reads began, oldest first.
    kept: VecDeque<KeptTurn>,
}

/// One read, and what waits for it.
struct BesideRead<T> {
    /// Sequence of the last durable commit when the first of its rows were read.
    since: u64,
    rounds: u32,
    rows: RowsBeside,
    is_answered: bool,
    waits: RowWaiter<T>,
}

/// What waits for rows.
enum RowWaiter<T> {
    /// A request that was not applied.
    Request(Request<T>),
    /// Jobs of a turn that was not released.
    Turn(Vec<UnreadJob>),
    /// Jobs whose grants are durable.
    Deliveries(Box<GrantedJobs<T>>),
}

/// Jobs whose grants are durable, and which are not complete.
struct GrantedJobs<T> {
    ticket: T,
    deliveries: Vec<Delivery>,
    unread: Vec<UnreadJob>,
    /// The request, to wait again if no delivery can be read; `None` if it does not wait.
    request: Option<WaitingLease>,
}

/// A durable turn that was released.
pub(super) struct KeptTurn {
    sequence: u64,
    pub(super) commit: Arc<Commit>,
    pub(super) rows: TurnRows,
}

impl<T> Default for BesideReads<T> {
    fn default() -> Self {
        Self {
            last_round: 0,
            reads: BTreeMap::new(),
            resumed: VecDeque::new(),
            wanted: Vec::new(),
            kept: VecDeque::new(),
        }
    }
}

impl<T> BesideReads<T> {
    /// Whether nothing waits for rows.
    pub(super) fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.resumed.is_empty()
    }

    /// Whether something has its rows and can go on.
    pub(super) fn has_resumed(&self) -> bool {
        !self.resumed.is_empty()
    }

    /// The turns that are kept, oldest first.
    pub(super) fn kept_mut(&mut self) -> &mut VecDeque<KeptTurn> {
        &mut self.kept
    }

    /// Keeps a released turn, if rows were read before it.
    pub(super) fn keep(&mut self, commit: &Arc<Commit>, rows: TurnRows) {
        if self.is_empty() {
            return;
        }
        self.kept.push_back(KeptTurn {
            sequence: commit.sequence,
            commit: Arc::clone(commit),
            rows,
        });
    }

    /// Drops the kept turns that are older than all rows.
    fn prune(&mut self) {
        let reads = self.reads.values().chain(&self.resumed);
        let Some(oldest) = reads.map(|read| read.since).min() else {
            return self.kept.clear();
        };
        while self
            .kept
            .front()
            .is_some_and(|turn| turn.sequence <= oldest)
        {
            self.kept.pop_front();
        }
    }

    fn order(&mut self, mut read: BesideRead<T>) -> u64 {
        self.last_round += 1;
        let round = self.last_round;
        let queries = read.rows.take_missing();
        self.wanted.push(RowRead { round, queries });
        read.rounds += 1;
        read.is_answered = false;
        self.reads.insert(round, read);
        round
    }

    /// Drops the read for a turn that has failed.
    pub(super) fn forget(&mut self, round: u64) {
        self.reads.remove(&round);
        self.prune();
    }

    /// Takes everybody who waits for an answer.
    fn take_all(&mut self) -> Vec<RowWaiter<T>> {
        let reads = std::mem::take(&mut self.reads).into_values();
        let all = std::mem::take(&mut self.resumed).into_iter().chain(reads);
        let waiting = all.map(|read| read.waits).collect();
        self.wanted.clear();
        self.kept.clear();
        waiting
    }
}

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Lets all reads of the store run beside this core, by [`StoreTask::Read`], as a store on another machine needs it.
    #[must_use]
    pub fn reading_beside(mut self) -> Self {
        self.rows_beside = Some(RowsBeside::default());
        self
    }

    /// Where rows of the store are found.
    pub(super) fn rows(&mut self) -> RowSource<'_, R> {
        let live = self
            .live
            .as_mut()
            .expect("rows are read only while an engine is in service");
        RowSource {
            reader: &mut live.reader,
            beside: self.rows_beside.as_mut(),
        }
    }

    /// Whether rows were asked for that must be read beside the shard first.
    pub(super) fn lacks_rows(&self) -> bool {
        self.rows_beside
            .as_ref()
            .is_some_and(RowsBeside::is_incomplete)
    }

    /// Number of rows that were asked for and are not in memory.
    pub(super) fn rows_lacking(&self) -> usize {
        self.rows_beside.as_ref().map_or(0, RowsBeside::lacking)
    }

    /// Puts a request aside if rows that it needs are not in memory; else returns it, and its rows are in place until
    /// [`Core::drop_rows`].
    pub(super) fn put_aside(&mut self, request: Request<T>, now: Now) -> Option<Request<T>> {
        if self.rows_beside.is_none() {
            return Some(request);
        }
        if let Request::Call { command, at, .. } = &request {
            self.settle_callers_clock(now, command, *at);
        }
        let (since, rounds) = (self.durable, 0);
        self.put_aside_again(request, RowsBeside::default(), since, rounds)
    }

    fn put_aside_again(
        &mut self,
        request: Request<T>,
        rows: RowsBeside,
        since: u64,
        rounds: u32,
    ) -> Option<Request<T>> {
        self.rows_beside = Some(rows);
        match &request {
            Request::Call { command, .. } => drop(self.prefetch(command)),
            Request::CallAll { commands, .. } => {
                for command in commands {
                    drop(self.prefetch(command));
                }
            }
            Request::AwaitEnd { namespace, id, .. } => drop(self.rows().find(namespace, id)),
            _ => {}
        }
        if !self.lacks_rows() {
            return Some(request);
        }
        if rounds >= ROUNDS_MAX {
            self.rows_beside = None;
            return Some(request);
        }
        let rows = self.rows_beside.take().expect("it was just set");
        self.rows_beside = Some(RowsBeside::default());
        self.beside.order(BesideRead {
            since,
            rounds,
            rows,
            is_answered: false,
            waits: RowWaiter::Request(request),
        });
        None
    }

    /// Forgets the rows of the request that was just applied.
    pub(super) fn drop_rows(&mut self, is_beside: bool) {
        if is_beside {
            self.rows_beside = Some(RowsBeside::default());
        }
    }

    /// Orders the reads for jobs that were granted in the open turn, by the queries that they asked; returns the number
    /// of the read.
    pub(super) fn read_for_turn(&mut self, unread: Vec<UnreadJob>) -> u64 {
        let rows = self.rows_beside.replace(RowsBeside::default());
        self.beside.order(BesideRead {
            since: self.durable,
            rounds: 0,
            rows: rows.unwrap_or_default(),
            is_answered: false,
            waits: RowWaiter::Turn(unread),
        })
    }

    /// Lets an answer wait for its read: the grants of these deliveries are durable now.
    pub(super) fn await_rows(
        &mut self,
        answer: UnreadAnswer,
        ticket: T,
        deliveries: Vec<Delivery>,
    ) {
        let UnreadAnswer { round, request } = answer;
        let Some(mut read) = self.beside.reads.remove(&round) else {
            // Only a core that has ended has forgotten it.
            let refusal = self.unavailable("its payload could not be read");
            self.outputs.push(Output::Answer(ticket, Err(refusal)));
            return;
        };
        let RowWaiter::Turn(unread) = read.waits else {
            unreachable!("a turn is released once");
        };
        read.waits = RowWaiter::Deliveries(Box::new(GrantedJobs {
            ticket,
            deliveries,
            unread,
            request,
        }));
        if read.is_answered {
            self.beside.resumed.push_back(read);
        } else {
            self.beside.reads.insert(round, read);
        }
    }

    /// Takes the store's answers.
    pub(super) fn rows_read(&mut self, all: Vec<RowsRead>) {
        for rows in all {
            let round = rows.round;
            let Some(mut read) = self.beside.reads.remove(&round) else {
                continue;
            };
            read.rows.add(rows);
            read.is_answered = true;
            if matches!(read.waits, RowWaiter::Turn(_)) {
                self.beside.reads.insert(round, read);
            } else {
                self.beside.resumed.push_back(read);
            }
        }
    }

    /// Goes on with what has its rows, as far as the open turn has room.
    pub(super) fn resume_reads(&mut self, now: Now) {
        while self.has_room() {
            let Some(read) = self.beside.resumed.pop_front() else {
                break;
            };
            match read.waits {
                RowWaiter::Request(request) => {
                    let (since, rounds) = (read.since, read.rounds);
                    // The turns since then count until the request is applied.
                    if let Some(request) = self.put_aside_again(request, read.rows, since, rounds) {
                        self.take_prepared(request, now);
                        self.drop_rows(true);
                    }
                }
                RowWaiter::Deliveries(granted) => {
                    self.rows_beside = Some(read.rows);
                    self.finish_deliveries(now, (read.since, read.rounds), *granted);
                    self.drop_rows(true);
                }
                RowWaiter::Turn(_) => unreachable!("only released turns are resumed"),
            }
        }
        self.beside.prune();
    }

    /// Completes deliveries with what was read, and answers.
    fn finish_deliveries(
        &mut self,
        now: Now,
        (since, rounds): (u64, u32),
        mut granted: GrantedJobs<T>,
    ) {
        let read = self.read_unread(&granted.deliveries, &granted.unread);
        if self.lacks_rows() {
            let rows = self.rows_beside.replace(RowsBeside::default());
            self.beside.order(BesideRead {
                since,
                rounds,
                rows: rows.unwrap_or_default(),
                is_answered: false,
                waits: RowWaiter::Deliveries(Box::new(granted)),
            });
            return;
        }
        let count = granted.deliveries.len();
        let trouble = self.complete(now, &mut granted.deliveries, &granted.unread, read);
        let GrantedJobs {
            ticket,
            deliveries,
            request,
            ..
        } = granted;
        if deliveries.len() == count {
            let answer = Ok(CallReply::Deliveries(deliveries));
            self.outputs.push(Output::Answer(ticket, answer));
            return;
        }
        // What is done with the jobs that are missing must be durable before the answer goes out.
        match (trouble, request) {
            (_, Some(request)) if deliveries.is_empty() => {
                self.delivery.holds_back |= !self.may_deliver(now);
                let WaitingLease {
                    id,
                    lease,
                    deadline,
                } = request;
                self.waiters.wait_for_job(
                    id,
                    LeaseWaiter {
                        lease,
                        deadline,
                        ticket,
                    },
                );
            }
            (Some(error), None) if deliveries.is_empty() => self.answer(now, ticket, Err(error)),
            _ => self.answer(now, ticket, Ok(CallReply::Deliveries(deliveries))),
        }
    }

    /// Orders the reads that came up since the last call, as one task.
    pub(super) fn order_reads(&mut self) {
        if !self.beside.wanted.is_empty() {
            let reads = std::mem::take(&mut self.beside.wanted);
            self.store_tasks.push(StoreTask::Read { reads });
        }
    }

    /// Refuses the deliveries that wait for rows, and puts the requests back to be refused. Leases that were not handed
    /// out expire.
    pub(super) fn refuse_reads(&mut self, refusal: &CallError) {
        for waiting in self.beside.take_all() {
            match waiting {
                RowWaiter::Request(request) => self.inbox.push_back(request),
                RowWaiter::Deliveries(granted) => {
                    let answer = Err(refusal.clone());
                    self.outputs.push(Output::Answer(granted.ticket, answer));
                }
                RowWaiter::Turn(_) => {}
            }
        }
    }

    /// What the turns that were released since rows were read say about a job: that it has ended, with its record, or
    /// that it is not there any more (`Some(None)`). `None` if they say nothing.
    pub(super) fn released_since(
        &mut self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Option<Option<JobRecord>> {
        let mut released = PendingRows::<T> {
            open: None,
            turns_in_flight: None,
            kept: self.beside.kept_mut(),
        };
        match released.ended_by_id(namespace, id) {
            EndedRow::Record(record) => Some(Some(record.clone())),
            EndedRow::Gone => Some(None),
            EndedRow::Unknown => None,
        }
    }
}

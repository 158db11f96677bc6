//! Turns: the open one, those in flight, and lookups of rows in them that no reader can see yet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ganger_engine::Effects;
use ganger_store::NumberMap;
use ganger_types::command::Lease;
use ganger_types::query::Query;
use ganger_types::{
    Bytes, Change, Commit, Elapsed, InputRow, InputState, JobId, JobKey, JobRecord, Namespace, Now,
    Timestamp,
};

use super::beside::KeptTurn;
use super::external::TouchedKeys;
use super::request::{CallReply, QueueGauge, Request, WaiterId};
use crate::CallError;

/// A reply that waits until its turn is durable.
pub(super) struct PendingAnswer<T> {
    pub(super) ticket: T,
    pub(super) answer: Result<CallReply, CallError>,
    /// The query that this answers, and its time; `None` for every other request. If the turn fails, the query is
    /// repeated: the write that failed is another client's.
    pub(super) query: Option<(Box<Query>, Option<Timestamp>)>,
    /// The read that the deliveries in the answer wait for; `None` if they are complete.
    pub(super) unread: Option<UnreadAnswer>,
}

/// An answer to a lease request whose deliveries are not complete.
pub(super) struct UnreadAnswer {
    /// Number of the read that completes them.
    pub(super) round: u64,
    /// The request, to wait again if no delivery can be read; `None` if it does not wait.
    pub(super) request: Option<WaitingLease>,
}

/// A lease request that waits for jobs, without its ticket.
pub(super) struct WaitingLease {
    pub(super) id: WaiterId,
    pub(super) lease: Box<Lease>,
    pub(super) deadline: Elapsed,
}

/// The turn that commands are applied to.
pub(super) struct Turn<T> {
    /// Time of its first command.
    pub(super) opened: Now,
    /// Number of commands applied in the turn.
    pub(super) commands: usize,
    /// Changes and events that the commands caused.
    pub(super) effects: Effects,
    /// Replies to send once the turn is durable.
    pub(super) answers: Vec<PendingAnswer<T>>,
    /// Requests of this turn that give leases back; repeated if the turn fails.
    pub(super) returns: Vec<Request<T>>,
    /// Counts of the queues for the series, with the time at which they were taken; `None` in most turns.
    pub(super) sample: Option<(Timestamp, Vec<QueueGauge>)>,
    rows: TurnRows,
}

impl<T> Turn<T> {
    pub(super) fn new(opened: Now) -> Self {
        Self {
            opened,
            commands: 0,
            effects: Effects::default(),
            answers: Vec::new(),
            returns: Vec::new(),
            sample: None,
            rows: TurnRows::default(),
        }
    }

    /// Counts a command; with the first one reserves memory by the size of the last turn.
    pub(super) fn begin_command(&mut self, expected: TurnSizeHint) {
        if self.commands == 0 {
            self.effects.changes.reserve(expected.changes);
            self.effects.events.reserve(expected.events);
        }
        self.commands += 1;
    }

    /// Whether nothing has happened in the turn.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
            && !self.has_written()
            && self.effects.messages.is_empty()
            && self.sample.is_none()
    }

    /// Whether the turn must be flushed before its effects become visible.
    pub(super) fn has_written(&self) -> bool {
        !self.effects.changes.is_empty() || !self.effects.events.is_empty()
    }
}

/// Expected size of a turn, for reserving memory.
#[derive(Clone, Copy, Default)]
pub(super) struct TurnSizeHint {
    changes: usize,
    events: usize,
}

impl TurnSizeHint {
    /// Returns the size of another turn.
    pub(super) fn like(effects: &Effects) -> Self {
        Self {
            changes: effects.changes.len(),
            events: effects.events.len(),
        }
    }
}

/// A closed turn: submitted to the store, or waiting behind submitted ones.
pub(super) struct TurnInFlight<T> {
    /// The commit submitted to the store; `None` if the turn wrote nothing.
    pub(super) commit: Option<Arc<Commit>>,
    pub(super) commands: usize,
    /// Other effects; the changes have become the commit.
    pub(super) effects: Effects,
    pub(super) answers: Vec<PendingAnswer<T>>,
    pub(super) returns: Vec<Request<T>>,
    /// Counts of the queues for the series.
    pub(super) sample: Option<(Timestamp, Vec<QueueGauge>)>,
    /// Time at which the turn was closed.
    pub(super) closed_at: Elapsed,
    /// Whether the store has confirmed the commit.
    pub(super) is_durable: bool,
    pub(super) rows: TurnRows,
}

impl<T> TurnInFlight<T> {
    /// Closes a turn at `closed_at` whose changes have become `commit`.
    pub(super) fn new(turn: Turn<T>, commit: Option<Arc<Commit>>, closed_at: Elapsed) -> Self {
        Self {
            closed_at,
            is_durable: commit.is_none(),
            commit,
            commands: turn.commands,
            effects: turn.effects,
            answers: turn.answers,
            returns: turn.returns,
            sample: turn.sample,
            rows: turn.rows,
        }
    }
}

/// Index of a turn's rows by key, built at the first lookup.
#[derive(Default)]
pub(super) struct TurnRows {
    /// Number of changes that `jobs` and `touched_keys` cover.
    indexed: usize,
    jobs: NumberMap<JobKey, JobRowIndex>,
    /// Number of changes that `ids` covers: few commands look jobs up by their ids.
    ids_indexed: usize,
    ids: BTreeMap<(Namespace, JobId), JobKey>,
    touched_keys: TouchedKeys,
}

#[derive(Default)]
struct JobRowIndex {
    /// The last `FinishJob` or `PutFinished` change; `Gone` if the job was removed or retried since.
    ended: Option<ChangeIndex>,
    payload: Option<usize>,
    result: Option<usize>,
    inputs: Vec<usize>,
}

#[derive(Clone, Copy)]
enum ChangeIndex {
    At(usize),
    Gone,
}

impl TurnRows {
    /// Returns the record of a job that ended in the turn of this commit and still exists at the end of the turn.
    pub(super) fn ended_record(
        &mut self,
        commit: Option<&Arc<Commit>>,
        key: JobKey,
    ) -> Option<JobRecord> {
        let changes = &commit?.changes;
        self.index(changes);
        let ChangeIndex::At(place) = self.jobs.get(&key)?.ended? else {
            return None;
        };
        match &changes[place] {
            Change::FinishJob { record, .. } | Change::PutFinished(record) => {
                Some(JobRecord::clone(record))
            }
            _ => None,
        }
    }

    pub(super) fn index(&mut self, changes: &[Change]) {
        for (place, change) in changes.iter().enumerate().skip(self.indexed) {
            self.note(place, change);
        }
        self.indexed = changes.len();
    }

    /// Returns the number of the job with this id that ended in the turn.
    fn ended_id(&mut self, changes: &[Change], name: &(Namespace, JobId)) -> Option<JobKey> {
        for change in changes.iter().skip(self.ids_indexed) {
            if let Change::FinishJob { record, .. } | Change::PutFinished(record) = change {
                let name = (record.namespace.clone(), record.id.clone());
                self.ids.insert(name, record.key);
            }
        }
        self.ids_indexed = changes.len();
        self.ids.get(name).copied()
    }

    fn note(&mut self, place: usize, change: &Change) {
        match change {
            Change::FinishJob { record, .. } => {
                let rows = self.jobs.entry(record.key).or_default();
                rows.ended = Some(ChangeIndex::At(place));
                rows.result = Some(place);
            }
            Change::PutFinished(record) => {
                self.jobs.entry(record.key).or_default().ended = Some(ChangeIndex::At(place));
            }
            Change::RetryJob(key) => {
                let rows = self.jobs.entry(*key).or_default();
                rows.ended = Some(ChangeIndex::Gone);
                rows.result = None;
            }
            Change::RemoveJob(key) => {
                let gone = JobRowIndex {
                    ended: Some(ChangeIndex::Gone),
                    ..JobRowIndex::default()
                };
                self.jobs.insert(*key, gone);
            }
            Change::PutPayload { key, .. } => {
                self.jobs.entry(*key).or_default().payload = Some(place);
            }
            Change::PutInput(InputRow { job, .. }) | Change::RemoveInput { job, .. } => {
                self.jobs.entry(*job).or_default().inputs.push(place);
            }
            Change::External(change) => self.touched_keys.add(change),
            _ => {}
        }
    }
}

/// Looks rows up in uncommitted turns, newest first, and then in those that were released just now.
pub(super) struct PendingRows<'a, T> {
    pub(super) open: Option<&'a mut Turn<T>>,
    pub(super) turns_in_flight: Option<&'a mut VecDeque<TurnInFlight<T>>>,
    /// Turns that were released since rows were read that have not been used yet, oldest first.
    pub(super) kept: &'a mut VecDeque<KeptTurn>,
}

/// What the uncommitted turns say about a finished job.
pub(super) enum EndedRow<'a> {
    /// Nothing; the store decides.
    Unknown,
    /// The job is no longer finished.
    Gone,
    /// The record of the finished job.
    Record(&'a JobRecord),
}

impl<T> PendingRows<'_, T> {
    /// Returns each turn's rows with its changes, newest first.
    fn newest_first(&mut self) -> impl Iterator<Item = (&TurnRows, &[Change])> {
        self.unindexed_newest_first().map(|(rows, changes)| {
            rows.index(changes);
            (&*rows, changes)
        })
    }

    fn unindexed_newest_first(&mut self) -> impl Iterator<Item = (&mut TurnRows, &[Change])> {
        let open = self.open.as_deref_mut();
        let open = open.map(|turn| (&mut turn.rows, &turn.effects.changes[..]));
        let turns_in_flight = self.turns_in_flight.as_deref_mut();
        let turns_in_flight = turns_in_flight.into_iter().flatten().rev();
        let turns_in_flight = turns_in_flight.map(|turn_in_flight| {
            let changes = turn_in_flight
                .commit
                .as_ref()
                .map_or(&[][..], |commit| &commit.changes);
            (&mut turn_in_flight.rows, changes)
        });
        let kept = self.kept.iter_mut().rev();
        let kept = kept.map(|turn| (&mut turn.rows, &turn.commit.changes[..]));
        open.into_iter().chain(turns_in_flight).chain(kept)
    }

    /// Looks up the finished job with this id.
    pub(super) fn ended_by_id(&mut self, namespace: &Namespace, id: &JobId) -> EndedRow<'_> {
        let name = (namespace.clone(), id.clone());
        let key = self
            .unindexed_newest_first()
            .find_map(|(rows, changes)| rows.ended_id(changes, &name));
        key.map_or(EndedRow::Unknown, |key| self.ended(key))
    }

    /// Looks up the finished job with this number.
    pub(super) fn ended(&mut self, key: JobKey) -> EndedRow<'_> {
        for (rows, changes) in self.newest_first() {
            let Some(place) = rows.jobs.get(&key).and_then(|rows| rows.ended) else {
                continue;
            };
            return match place {
                ChangeIndex::Gone => EndedRow::Gone,
                ChangeIndex::At(place) => match &changes[place] {
                    Change::FinishJob { record, .. } | Change::PutFinished(record) => {
                        EndedRow::Record(record)
                    }
                    _ => EndedRow::Unknown,
                },
            };
        }
        EndedRow::Unknown
    }

    /// Whether any row of this job is uncommitted.
    pub(super) fn knows(&mut self, key: JobKey) -> bool {
        self.newest_first()
            .any(|(rows, _)| rows.jobs.contains_key(&key))
    }

    /// Whether an uncommitted turn has touched keys of which `is_touched` is true.
    pub(super) fn any_touched_keys(&mut self, is_touched: impl Fn(&TouchedKeys) -> bool) -> bool {
        self.newest_first()
            .any(|(rows, _)| is_touched(&rows.touched_keys))
    }

    /// Returns the payload if it is uncommitted.
    pub(super) fn payload(&mut self, key: JobKey) -> Option<Bytes> {
        self.newest_first().find_map(|(rows, changes)| {
            match &changes[rows.jobs.get(&key)?.payload?] {
                Change::PutPayload { payload, .. } => Some(payload.clone()),
                _ => None,
            }
        })
    }

    /// Returns the result if it is uncommitted: `Some(None)` if the job ended without one.
    pub(super) fn result(&mut self, key: JobKey) -> Option<Option<Bytes>> {
        self.newest_first().find_map(|(rows, changes)| {
            match &changes[rows.jobs.get(&key)?.result?] {
                Change::FinishJob { result, .. } => Some(result.clone()),
                _ => None,
            }
        })
    }

    /// Returns uncommitted dependents by the jobs they wait for.
    pub(super) fn dependents(&mut self) -> BTreeMap<JobKey, Vec<JobKey>> {
        let mut found: BTreeMap<JobKey, Vec<JobKey>> = BTreeMap::new();
        for (_, changes) in self.newest_first() {
            for change in changes {
                if let Change::PutInput(InputRow {
                    job,
                    state: InputState::Missing { dependency, .. },
                    ..
                }) = change
                {
                    found.entry(*dependency).or_default().push(*job);
                }
            }
        }
        found
    }

    /// Returns uncommitted changes of inputs, oldest first: written, or removed (`Err` with the slot).
    pub(super) fn inputs(&mut self, key: JobKey) -> Vec<Result<InputRow, u32>> {
        let mut found: Vec<_> = self
            .newest_first()
            .filter_map(|(rows, changes)| Some((rows.jobs.get(&key)?, changes)))
            .flat_map(|(rows, changes)| {
                rows.inputs
                    .iter()
                    .rev()
                    .filter_map(|place| match &changes[*place] {
                        Change::PutInput(row) => Some(Ok(row.clone())),
                        Change::RemoveInput { slot, .. } => Some(Err(*slot)),
                        _ => None,
                    })
            })
            .collect();
        found.reverse();
        found
    }
}

//! Level 1: the engine over the model store, one short turn at a time, everything in memory.

use std::collections::BTreeSet;

use ganger_engine::{Effects, Engine, Loader, Members, PrefetchedRows, Start};
use ganger_store::Loaded;
use ganger_types::command::Retire;
use ganger_types::{
    Change, Command, Epoch, Event, InputRow, InputState, JobId, JobKey, JobRecord, Meta, Namespace,
    Now, Outcome,
};

use crate::actor::names;
use crate::oracle::Applied;
use crate::planted::Planted;
use crate::rng::Rng;
use crate::rows::Rows;

/// Candidates that retention may send to the engine at once.
const RETIREES_MAX: usize = 50;
/// Members of a graph that are read at once; few, so that small graphs take several pages.
const MEMBERS_MAX: usize = 3;
/// Timers fired in one call; small, so that the rest is fired in further calls.
const TIMERS_MAX: usize = 7;

/// What one turn did.
pub(crate) struct TurnResult {
    pub(crate) now: Now,
    pub(crate) applied: Vec<Applied>,
    pub(crate) effects: Effects,
    pub(crate) meta: Meta,
}

/// An engine in service, and what it may be wrong about on purpose.
pub(crate) struct Direct {
    engine: Engine,
    pub(crate) planted: Planted,
}

/// Hands the rows of a store to a new engine.
pub(crate) fn load(rows: &Rows, start: Start, planted: &mut Planted) -> Engine {
    let mut loader = Loader::new(start);
    rows.load(&mut |row| {
        let Some(row) = planted.loads(row) else {
            return;
        };
        match row {
            Loaded::Namespace(record) => loader.namespace(*record),
            Loaded::Queue(record) => loader.queue(*record),
            Loaded::Schedule(record) => loader.schedule(*record),
            Loaded::Job(record) => loader.job(&record),
            Loaded::Input(row) => loader.input(&row),
            Loaded::Lease(record) => loader.lease(*record),
            Loaded::Unique(record) => loader.unique(*record),
            Loaded::IdempotencyRecord(record) => loader.idempotency_record(*record),
            Loaded::TagCount(namespace, tag, count) => loader.tag_count(&namespace, tag, count),
            Loaded::GroupCount(namespace, group, count) => {
                loader.group_count(&namespace, group, count);
            }
            Loaded::Tracked(namespace, id, since) => loader.tracked(&namespace, id, since),
            Loaded::Statistics(record) => loader.statistics(*record),
            Loaded::Peer(record) => loader.peer(*record),
            Loaded::Outbox(record) => loader.outbox(*record),
            Loaded::Part(record) => loader.part(*record),
            Loaded::Dependent(dependency, dependent) => loader.dependent(dependency, *dependent),
            Loaded::Key(record) => loader.key(*record),
            Loaded::Element(record) => loader.element(*record),
            Loaded::Qless(namespace, row) => loader.qless(namespace, *row),
        }
    });
    loader.finish()
}

impl Direct {
    pub(crate) fn start(
        rows: &Rows,
        epoch: Epoch,
        now: Now,
        rng: &mut Rng,
        planted: Planted,
    ) -> Self {
        let mut planted = planted;
        let start = Start {
            shard: ganger_types::ShardId::default(),
            epoch: planted.epoch(epoch),
            seed: planted.seed(rng),
            meta: rows.meta,
            now,
        };
        let engine = load(rows, start, &mut planted);
        Self { engine, planted }
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Applies commands at `now`: timers first, then each command, then what is stored once a turn.
    ///
    /// In a namespace on its callers' clocks a command is applied at `callers_now`.
    pub(crate) fn turn(
        &mut self,
        now: Now,
        callers_now: Now,
        commands: Vec<(u64, Command)>,
        rows: &Rows,
    ) -> TurnResult {
        let mut effects = Effects::default();
        let engine_now = self.planted.time(now);
        while self.planted.advances() && self.engine.advance(engine_now, TIMERS_MAX, &mut effects) {
        }
        let mut applied = Vec::new();
        for (op, command) in commands {
            let is_callers = names::namespace_of(&command)
                .is_some_and(|name| self.engine.runs_on_callers_clock(name));
            let moment = if is_callers {
                self.planted.callers_time(callers_now, now)
            } else {
                engine_now
            };
            let answer = self.apply(moment, &command, rows, &mut effects);
            applied.push(Applied {
                op,
                command,
                answer,
            });
        }
        self.engine.end_turn(engine_now, &mut effects);
        self.planted.effects(&mut effects);
        TurnResult {
            now,
            applied,
            effects,
            meta: self.engine.meta(),
        }
    }

    fn apply(
        &mut self,
        now: Now,
        command: &Command,
        rows: &Rows,
        effects: &mut Effects,
    ) -> ganger_types::Answer {
        let command = self.planted.command(command.clone());
        self.engine.settle_callers_clock(now, &command, effects);
        let known = known(&self.engine, &command, rows, effects);
        let before = effects.changes.len();
        let mut answer = self.engine.apply(now, command.clone(), &known, effects);
        if answer.is_err() {
            assert_eq!(
                effects.changes.len(),
                before,
                "a rejection changes nothing (rel P6)"
            );
        }
        self.planted.answer(&command, &mut answer);
        answer
    }

    /// What retention would remove now.
    pub(crate) fn retire(&mut self, now: Now, rows: &Rows) -> Option<Command> {
        let queries = self.engine.retention_due(now);
        let jobs: Vec<_> = queries
            .iter()
            .flat_map(|query| rows.expired_jobs(query, RETIREES_MAX))
            .collect();
        let mut seen = BTreeSet::new();
        let jobs: Vec<_> = jobs
            .into_iter()
            .filter(|expired| seen.insert(expired.record.key))
            .collect();
        (!jobs.is_empty()).then(|| Command::Retire(Retire { jobs }))
    }
}

/// Looks up what a command needs to know of finished jobs: in the turn so far, then in the rows.
pub(crate) fn known(
    engine: &Engine,
    command: &Command,
    rows: &Rows,
    effects: &Effects,
) -> PrefetchedRows {
    let mut known = PrefetchedRows::default();
    let mut seen = BTreeSet::new();
    for (namespace, id) in engine.prefetch(command) {
        if let Some(record) = find(&namespace, &id, rows, effects)
            && seen.insert(record.key)
        {
            known.jobs.push(record);
        }
    }
    if let Some(followed) = engine.prefetch_followers(command) {
        let mut archive = Archived { rows, effects };
        let read = ganger_engine::read_followers(&mut archive, &followed, &mut known);
        read.expect("memory does not fail");
        seen.extend(known.jobs.iter().map(|record| record.key));
    }
    if !engine.prefetch_inputs(command) {
        return known;
    }
    let found: Vec<JobKey> = known.jobs.iter().map(|record| record.key).collect();
    for key in found {
        for row in inputs_of(key, rows, effects) {
            if let InputState::Missing { dependency, .. } | InputState::Delivered { dependency, .. } =
                &row.state
                && let Some(record) = ended(*dependency, rows, effects)
                && seen.insert(record.key)
            {
                known.jobs.push(record);
            }
            known.inputs.push(row);
        }
    }
    known
}

/// Finished jobs in the turn so far and in the rows.
struct Archived<'a> {
    rows: &'a Rows,
    effects: &'a Effects,
}

impl ganger_engine::Archive for Archived<'_> {
    type Error = std::convert::Infallible;

    fn dependents(&mut self, key: JobKey) -> Result<Vec<JobKey>, Self::Error> {
        let waits = |state: &InputState| matches!(state, InputState::Missing { dependency, .. } if *dependency == key);
        let stored = self.rows.inputs.iter();
        let stored = stored.filter_map(|((job, _), state)| waits(state).then_some(*job));
        let in_turn = self
            .effects
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::PutInput(row) if waits(&row.state) => Some(row.job),
                _ => None,
            });
        Ok(stored.chain(in_turn).collect())
    }

    fn ended(&mut self, key: JobKey) -> Result<Option<JobRecord>, Self::Error> {
        Ok(ended(key, self.rows, self.effects))
    }

    fn inputs(&mut self, key: JobKey) -> Result<Vec<InputRow>, Self::Error> {
        Ok(inputs_of(key, self.rows, self.effects))
    }

    fn members(&mut self, asked: &Members) -> Result<(Vec<JobKey>, Option<JobKey>), Self::Error> {
        let stored = self.rows.finished.values().map(|row| &row.record);
        let is_meant = |job: &&JobRecord| {
            let end = job.finished.as_ref();
            job.namespace == asked.namespace
                && job.graph.as_ref() == Some(&asked.graph)
                && Some(job.key) > asked.after
                && end.is_some_and(|end| end.outcome != Outcome::Succeeded)
        };
        let keys: Vec<JobKey> = stored
            .filter(is_meant)
            .map(|job| job.key)
            .take(asked.limit.min(MEMBERS_MAX))
            .collect();
        let up_to = keys.last().copied();
        let up_to = up_to.filter(|_| keys.len() == asked.limit.min(MEMBERS_MAX));
        Ok((keys, up_to))
    }
}

fn find(namespace: &Namespace, id: &JobId, rows: &Rows, effects: &Effects) -> Option<JobRecord> {
    let in_turn = effects
        .changes
        .iter()
        .rev()
        .find_map(|change| match change {
            Change::FinishJob { record, .. } | Change::PutFinished(record)
                if record.namespace == *namespace && record.id == *id =>
            {
                Some(record.key)
            }
            _ => None,
        });
    let key = in_turn.or_else(|| rows.find(namespace, id).map(|record| record.key))?;
    ended(key, rows, effects)
}

/// The record of a finished job, as the turn so far has left it.
fn ended(key: JobKey, rows: &Rows, effects: &Effects) -> Option<JobRecord> {
    for change in effects.changes.iter().rev() {
        match change {
            Change::FinishJob { record, .. } | Change::PutFinished(record) if record.key == key => {
                return Some(JobRecord::clone(record));
            }
            Change::RemoveJob(gone) | Change::RetryJob(gone) if *gone == key => return None,
            _ => {}
        }
    }
    rows.finished.get(&key).map(|row| row.record.clone())
}

fn inputs_of(key: JobKey, rows: &Rows, effects: &Effects) -> Vec<InputRow> {
    let stored = rows.inputs.range((key, 0)..=(key, u32::MAX));
    let mut inputs: std::collections::BTreeMap<u32, InputState> = stored
        .map(|((_, slot), state)| (*slot, state.clone()))
        .collect();
    for change in &effects.changes {
        match change {
            Change::PutInput(row) if row.job == key => {
                inputs.insert(row.slot, row.state.clone());
            }
            Change::RemoveInput { job, slot } if *job == key => {
                inputs.remove(slot);
            }
            _ => {}
        }
    }
    inputs
        .into_iter()
        .map(|(slot, state)| InputRow {
            job: key,
            slot,
            state,
        })
        .collect()
}

/// The jobs that changes touch.
pub(crate) fn touched(changes: &[Change]) -> BTreeSet<JobKey> {
    changes
        .iter()
        .filter_map(|change| match change {
            Change::PutJob(record)
            | Change::PutFinished(record)
            | Change::FinishJob { record, .. } => Some(record.key),
            Change::PutPayload { key, .. }
            | Change::RemoveLease(key)
            | Change::RetryJob(key)
            | Change::RemoveJob(key)
            | Change::AppendLog { key, .. } => Some(*key),
            Change::PutInput(row) => Some(row.job),
            Change::RemoveInput { job, .. } => Some(*job),
            Change::PutLease(lease) => Some(lease.key),
            _ => None,
        })
        .collect()
}

/// Checks that events have consecutive places and tell only allowed moves.
pub(crate) fn check_events(events: &[Event], from: u64) -> Result<u64, String> {
    let mut next = from;
    for event in events {
        if event.position.0 != next {
            return Err(format!(
                "event {} follows {next} (rel P5)",
                event.position.0
            ));
        }
        next += 1;
        if let ganger_types::Happening::JobMoved {
            from: Some(from),
            to,
            job,
            ..
        } = &event.happening
            && from.is_terminal()
            && (to.is_terminal() || from == to)
        {
            return Err(format!("job {job} moved from {from} to {to} (rel A2)"));
        }
    }
    Ok(next)
}

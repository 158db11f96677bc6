//! The oracle: a plain model of the queue that checks every answer and every stored row.
//!
//! It shares only types with the engine. Its input is each durable turn: the times, the commands in order, the
//! answers, and the rows after the turn. Where the specification leaves a choice, the oracle keeps several possible
//! states of a job and narrows them by what it sees. If none is left, it reports a violation with the events that
//! contradict each other.

mod admission;
mod cascade;
mod compare;
mod dependencies;
mod ending;
mod enqueue;
mod import;
pub(crate) mod job;
mod lease;
mod operate;
mod operation;
mod read;
mod report;
mod retention;
mod retry;
mod schedule;
mod settings;
mod time;

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::Enqueue;
use ganger_types::{
    Answer, Command, Elapsed, ExternalCall, IdempotencyKey, JobId, JobKey, JobRecord, JobState,
    LeaseToken, Namespace, NamespaceSettings, Now, Queue, QueueSettings, RequestId, ScheduleId,
    Timestamp, UniqueKey,
};
use ganger_types::{OperationNumber, OperationRecord};

use crate::actor::names;
use crate::goals::Goals;
use crate::rows::Rows;
use job::{ModelJob, Note};

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Number of the invariant in `docs/reliability.md`.
    pub rule: &'static str,
    /// Description of what is wrong.
    pub what: String,
    /// Earlier events that contradict it.
    pub earlier: Vec<String>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rel {}: {}", self.rule, self.what)?;
        for line in &self.earlier {
            write!(f, "\n  against {line}")?;
        }
        Ok(())
    }
}

pub(crate) type CheckResult = Result<(), Violation>;

/// A command that the engine applied, with its answer.
#[derive(Clone, Debug)]
pub(crate) struct AppliedCommand {
    pub(crate) op: u64,
    pub(crate) command: Command,
    pub(crate) answer: Answer,
    /// Reading of the caller's clock, which applies in the namespace on its callers' clocks.
    pub(crate) callers_now: Now,
    /// Maximum number of lease requests, with this one, among which the shard divided the ready jobs; 1 if this
    /// request had not waited.
    pub(crate) sharers: usize,
}

/// The commands that were applied at one time, after the timers due then.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Now,
    pub(crate) applied: Vec<AppliedCommand>,
}

impl Moment {
    /// Whether the command carries no caller's time, like changes of settings.
    fn brings_no_time(&self) -> bool {
        !self.applied.is_empty() && self.applied.iter().all(|one| one.command.is_setting())
    }
}

/// An engine that was loaded again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Restart {
    /// Time at which the load was ordered: the engine's first moment.
    pub(crate) began: Now,
    /// Time at which the engine was taken into service: leases have their full length from then on.
    pub(crate) served: Now,
}

/// What the commit of a turn has made durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Turn {
    pub(crate) moments: Vec<Moment>,
    /// Jobs whose rows were written.
    pub(crate) touched: BTreeSet<JobKey>,
    /// Records of removed jobs, before their removal.
    pub(crate) removed: Vec<JobRecord>,
}

impl Turn {
    /// Splits the turn into the part of namespaces on the shard's clock and the part of the one on its callers'
    /// clocks.
    pub(crate) fn parted(self, rows: &Rows) -> (Self, Self) {
        let callers = names::callers();
        let (mut ours, mut theirs) = (Self::default(), Self::default());
        for moment in self.moments {
            let is_theirs =
                |one: &AppliedCommand| names::namespace_of(&one.command) == Some(&callers);
            let (of_callers, of_ours) = moment.applied.into_iter().partition(is_theirs);
            let at_ours = Moment {
                now: moment.now,
                applied: of_ours,
            };
            ours.moments.push(at_ours);
            let of_callers: Vec<AppliedCommand> = of_callers;
            // Nothing happens in that namespace between calls.
            theirs
                .moments
                .extend(of_callers.into_iter().map(|one| Moment {
                    now: one.callers_now,
                    applied: vec![one],
                }));
        }
        for record in self.removed {
            let is_theirs = record.namespace == callers;
            let of = if is_theirs { &mut theirs } else { &mut ours };
            of.touched.insert(record.key);
            of.removed.push(record);
        }
        for key in self.touched {
            if let Some(record) = rows.record(key) {
                let is_theirs = record.namespace == callers;
                let of = if is_theirs { &mut theirs } else { &mut ours };
                of.touched.insert(key);
            }
        }
        (ours, theirs)
    }
}

struct IdempotencyModel {
    submission: Enqueue,
    jobs: Vec<(JobKey, JobId)>,
    until: Timestamp,
}

#[derive(Clone, Copy)]
struct UniqueHolder {
    job: JobKey,
    until: Option<Timestamp>,
}

/// The model of the shard, built from commands and answers.
#[derive(Default)]
pub(crate) struct Oracle {
    pub(crate) jobs: BTreeMap<JobKey, ModelJob>,
    pub(crate) live: BTreeSet<JobKey>,
    ids: BTreeMap<(Namespace, JobId), JobKey>,
    removed: BTreeSet<JobKey>,
    touched: BTreeSet<JobKey>,
    queues: BTreeMap<(Namespace, Queue), QueueSettings>,
    namespaces: BTreeMap<Namespace, NamespaceSettings>,
    uniques: BTreeMap<(Namespace, UniqueKey), UniqueHolder>,
    idempotency_records: BTreeMap<(Namespace, IdempotencyKey), IdempotencyModel>,
    /// Time until which an imported job is not imported again.
    marks: BTreeMap<(Namespace, JobId), Elapsed>,
    schedules: BTreeMap<(Namespace, ScheduleId), schedule::Plan>,
    /// Jobs of schedules that commands enqueued in this turn.
    run_by_hand: BTreeSet<JobId>,
    tokens: BTreeMap<LeaseToken, JobKey>,
    requests: BTreeMap<(Namespace, RequestId), Vec<LeaseToken>>,
    /// Jobs with a timer due in the present step; which of two such ends comes first is not determined.
    due_now: BTreeSet<JobKey>,
    /// Number of schedules due in the present step that cancel their earlier run.
    replacing: usize,
    /// Records of the jobs that the present turn removed.
    leaving: Vec<JobRecord>,
    /// Last reading of the wall clock.
    looked: Now,
    /// Time of the last jump forward of the wall clock; a start counts as a jump.
    wall_jumped: Option<Elapsed>,
    jumps: u32,
    /// Start without a commit yet: a process killed before its first commit leaves no trace, and the next one may
    /// begin at an earlier reading.
    started: Option<Restart>,
    now: Now,
    /// Reading before the present turn.
    before: Now,
    /// Reading as of which earlier timers fire: the last one applied, or the last start.
    settled: Elapsed,
    op: u64,
    /// See [`AppliedCommand::sharers`], for the command that is being checked.
    sharers: usize,
    /// Whether this oracle checks only the namespace on its callers' clocks.
    is_of_callers: bool,
    /// Reading of the shard's clock for retention, if the rest uses callers' clocks.
    pub(crate) retention_now: Option<Now>,
    key_max: Option<JobKey>,
    /// Next job number before the present turn.
    key_before: Option<JobKey>,
    /// Operations that have not been forgotten, as of their last answers.
    operations: BTreeMap<OperationNumber, OperationRecord>,
    pub(crate) goals: Goals,
}

impl Oracle {
    /// The oracle of the namespace on its callers' clocks.
    pub(crate) fn of_callers() -> Self {
        Self {
            is_of_callers: true,
            ..Self::default()
        }
    }

    /// Whether the oracle checks this namespace.
    fn covers(&self, namespace: &Namespace) -> bool {
        self.is_of_callers == (*namespace == names::callers())
    }

    /// Whether a worker may hold a job.
    pub(crate) fn holds_anything(&self) -> bool {
        self.live_jobs().any(|(_, job)| job.hold.is_some())
    }

    /// Checks a durable turn: its commands in order, and the rows after it.
    pub(crate) fn turn(&mut self, turn: &Turn, rows: &Rows) -> CheckResult {
        if let Some(restart) = self.started.take() {
            self.starts_over(restart);
        }
        self.before = self.now;
        self.key_before = self.key_max;
        self.leaving.clone_from(&turn.removed);
        self.run_by_hand = schedule::run_by_hand(turn);
        for moment in &turn.moments {
            if !(self.is_of_callers && moment.brings_no_time()) {
                self.step_to(moment.now)?;
                self.schedules_fire(rows)?;
            }
            for one in &moment.applied {
                self.op = one.op;
                self.sharers = one.sharers;
                self.check_command(&one.command, &one.answer, rows)?;
            }
            self.op = 0;
        }
        self.removed_by_retention(&turn.removed, rows)?;
        self.touched.extend(turn.touched.iter().copied());
        self.compare_operations(rows)?;
        self.compare(rows)
    }

    /// Handles a start at `now`: leases get their full length again (`rel T6`).
    pub(crate) fn restarted(&mut self, restart: Restart) {
        self.started = Some(restart);
    }

    fn starts_over(&mut self, restart: Restart) {
        let Restart { began, served: now } = restart;
        self.wall_jumps(began);
        self.settled = self.settled.max(began.elapsed);
        for key in &self.live {
            let job = self.jobs.get_mut(key).expect("live jobs are known");
            if let Some(hold) = &mut job.hold {
                let least = now.elapsed.after(hold.full);
                let most = now.elapsed.after(hold.full.max(hold.granted_for));
                hold.ends = (hold.ends.0.max(least), hold.ends.1.max(most));
                if let (Some((_, last)), Some(timeout)) = (&mut hold.times_out, job.spec.timeout) {
                    // The lease may last longer than what was left of the timeout.
                    let longest = timeout.max(hold.granted_for).max(hold.full);
                    *last = (*last).max(now.elapsed.after(longest));
                }
            }
        }
    }

    fn check_command(&mut self, command: &Command, answer: &Answer, rows: &Rows) -> CheckResult {
        match command {
            Command::Enqueue(cmd) => self.enqueue(cmd, answer),
            Command::Lease(cmd) => self.lease(cmd, answer, rows),
            Command::Renew(cmd) => self.renew(cmd, answer),
            Command::Complete(cmd) => self.complete(cmd, answer),
            Command::Fail(cmd) => self.fail(cmd, answer),
            Command::Release(cmd) => self.release(cmd, answer),
            Command::AppendLog(cmd) => self.append_log(cmd, answer),
            Command::Cancel(cmd) => self.cancel(cmd, answer),
            Command::Retry(cmd) => self.retry(cmd, answer),
            Command::TimeOut(cmd) => self.time_out(cmd, answer),
            Command::Delete(cmd) => self.delete(cmd, answer),
            Command::Retire(cmd) => self.retire(cmd, rows),
            Command::Alter(cmd) => self.alter(cmd, answer),
            Command::AddDependencies(cmd) => self.add_dependencies(cmd, answer),
            Command::RemoveDependencies(cmd) => self.remove_dependencies(cmd, answer),
            Command::ConfigureQueue(cmd) => self.configure_queue(cmd, answer),
            Command::ForgetQueue(cmd) => self.forget_queue(cmd, answer),
            Command::ConfigureNamespace(cmd) => self.configure_namespace(cmd, answer),
            Command::PutSchedule(cmd) => self.put_schedule(cmd, answer),
            Command::RemoveSchedule(cmd) => self.remove_schedule(cmd, answer),
            Command::DeregisterWorker(cmd) => self.deregister(cmd, answer),
            Command::Query(query) => self.query(query, answer),
            Command::StartOperation(cmd) => self.start_operation(cmd, answer),
            Command::WorkOperation(cmd) => self.work_operation(cmd, answer),
            Command::StopOperation(cmd) => self.stop_operation(cmd, answer),
            Command::KeepAudit(_)
            | Command::Reserve(_)
            | Command::Prepare(_)
            | Command::Decide(_)
            | Command::Receive(_)
            | Command::Confirm(_)
            | Command::Reconcile(_) => unreachable!("there is one shard"),
            Command::Import(cmd) => self.import(cmd, answer, rows),
            Command::RunSchedule(cmd) => self.run_schedule(cmd, answer, rows),
            Command::PauseSchedule(cmd) => self.pause_schedule(cmd, answer),
            Command::External(ExternalCall::Keys(_) | ExternalCall::Qless(_)) => {
                unreachable!("nobody sends it")
            }
        }
    }

    fn settings(&self, namespace: &Namespace, queue: &Queue) -> QueueSettings {
        let name = (namespace.clone(), queue.clone());
        self.queues.get(&name).cloned().unwrap_or_default()
    }

    fn namespace(&self, namespace: &Namespace) -> NamespaceSettings {
        self.namespaces.get(namespace).cloned().unwrap_or_default()
    }

    /// The jobs that have not ended, in the order of their keys. Cheaper than to look each one up.
    fn live_jobs(&self) -> impl Iterator<Item = (JobKey, &ModelJob)> {
        let first = self.live.first().copied().unwrap_or_default();
        let mut live = self.live.iter().peekable();
        let jobs = self.jobs.range(first..);
        let is_live = move |(key, _): &(&JobKey, _)| live.next_if(|next| next == key).is_some();
        jobs.filter(is_live).map(|(key, job)| (*key, job))
    }

    fn known(&self, key: JobKey) -> &ModelJob {
        self.jobs
            .get(&key)
            .expect("the oracle looks up only what it knows")
    }

    fn known_mut(&mut self, key: JobKey) -> &mut ModelJob {
        self.touched.insert(key);
        self.jobs
            .get_mut(&key)
            .expect("the oracle looks up only what it knows")
    }

    fn find(&self, namespace: &Namespace, id: &JobId) -> Option<JobKey> {
        self.ids.get(&(namespace.clone(), id.clone())).copied()
    }

    fn note(&mut self, key: JobKey, what: &'static str, number: u64) {
        let note = Note {
            at: self.now,
            op: self.op,
            what,
            number,
        };
        self.known_mut(key).notes.push(note);
    }

    /// A violation about a job, with the notes about it.
    fn broken(&self, rule: &'static str, key: JobKey, what: String) -> Violation {
        let mut earlier = Vec::new();
        if let Some(job) = self.jobs.get(&key) {
            let notes = job.notes.iter().rev().take(6).rev();
            earlier.extend(notes.map(|note| format!("job {} {note}", job.id)));
            earlier.push(format!("job {} is believed to be {:?}", job.id, job.may));
        }
        self.wrong(rule, what, earlier)
    }

    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers format the text for this"
    )]
    fn wrong(&self, rule: &'static str, what: String, earlier: Vec<String>) -> Violation {
        let Now { elapsed, wall } = self.now;
        let what = format!("elapsed {elapsed} wall {wall} op {}: {what}", self.op);
        Violation {
            rule,
            what,
            earlier,
        }
    }

    /// Checks that all jobs have ended (`rel T8`).
    pub(crate) fn all_ended(&self) -> CheckResult {
        for key in &self.live {
            let job = self.known(*key);
            if job.has_ended() || self.waits_for_a_person(*key) {
                continue;
            }
            let what = format!("job {} ({key}) has not ended after the drain", job.id);
            return Err(self.broken("T8", *key, what));
        }
        Ok(())
    }

    /// Whether a job was rightly removed.
    pub(crate) fn was_removed(&self, key: JobKey) -> bool {
        self.removed.contains(&key)
    }

    /// Whether a job was retried.
    pub(crate) fn was_retried(&self, key: JobKey) -> bool {
        self.jobs.get(&key).is_some_and(|job| job.is_retried)
    }

    /// Whether a job waits for the retry of a failed dependency, so that only a client can move it.
    fn waits_for_a_person(&self, key: JobKey) -> bool {
        let job = self.known(key);
        job.state() == Some(JobState::Blocked)
            && job
                .missing()
                .iter()
                .any(|dependency| match self.jobs.get(dependency) {
                    Some(known) => known.has_ended() || self.waits_for_a_person(*dependency),
                    None => true,
                })
    }
}

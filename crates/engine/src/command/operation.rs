//! Operations: starts them, works through a page of their jobs, stops them, and forgets old ones.
//!
//! The host looks for the jobs of a page and passes their ids. What is done with each of them is what the command for
//! that job does; here stands only what an operation adds: which page comes next, the ceiling, and the counts. A page
//! and the progress of its operation are one commit.

use std::time::Duration;

use ganger_types::command::{
    Alter, Cancel, Delete, OperationStep, Retry, Selection, StartOperation, StopOperation,
    WorkOperation,
};
use ganger_types::limits::{
    LABELS_MAX, OPERATION_KEPT_FOR, OPERATION_LEFT_OUT_MAX, OPERATION_REASON_BYTES_MAX,
    OPERATION_SPREAD_MAX, OPERATIONS_MAX, OPERATIONS_RUNNING_MAX, TAGS_MAX,
};
use ganger_types::operation::LeftOutJob;
use ganger_types::reply::JobWork;
use ganger_types::{
    Answer, Change, Due, JobId, JobState, Namespace, OperationAction, OperationNumber,
    OperationRecord, OperationState, Rejection, Reply,
};

use crate::check::{at_most, check_named, cut};
use crate::engine::Engine;
use crate::state::Timer;
use crate::turn::Turn;

impl Engine {
    /// Stores a new operation. Jobs that are enqueued later are left out.
    pub(crate) fn start_operation(&mut self, cmd: StartOperation, turn: &mut Turn<'_>) -> Answer {
        self.check_operation(&cmd)?;
        self.make_room_for_operation(&cmd.namespace)?;

        let mut filter = cmd.filter;
        let bound = turn.now.wall.after(Duration::from_micros(1));
        let bounds = [filter.created_before, cmd.created_before, Some(bound)];
        filter.created_before = bounds.into_iter().flatten().min();
        let (mut reason, mut by) = (cmd.reason, cmd.by);
        cut(&mut reason, OPERATION_REASON_BYTES_MAX);
        cut(&mut by, OPERATION_REASON_BYTES_MAX);
        let record = OperationRecord {
            number: self.operations.next_number(),
            namespace: cmd.namespace,
            action: cmd.action,
            filter,
            end: self.meta.next_key,
            at_most: cmd.at_most,
            spread_over: cmd.spread_over,
            reason,
            by,
            began_at: turn.now.wall,
            ended_at: None,
            state: OperationState::Running,
            message: String::new(),
            matching: None,
            done: 0,
            skipped: 0,
            failed: 0,
            left_out: Vec::new(),
            cursor: None,
        };
        let newest = self.operations.newest().cloned();
        self.put_operation(record.clone(), turn);
        self.forget_operations(newest, turn);
        Ok(Reply::Operation(Box::new(record)))
    }

    fn check_operation(&self, cmd: &StartOperation) -> Result<(), Rejection> {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        if cmd.filter.is_empty() {
            return Err(Rejection::OutOfRange {
                what: "the filter of an operation",
                expected: "given: without conditions it would mean every job",
            });
        }
        if cmd.at_most == Some(0) {
            return Err(Rejection::OutOfRange {
                what: "the number of jobs that an operation may change",
                expected: "at least 1; leave it out for no limit",
            });
        }
        if cmd
            .spread_over
            .is_some_and(|span| span > OPERATION_SPREAD_MAX)
        {
            return Err(Rejection::OutOfRange {
                what: "the time over which an operation spreads its changes",
                expected: "at most 7 days",
            });
        }
        if self.runs_on_callers_clock(&cmd.namespace) {
            return Err(Rejection::OutOfRange {
                what: "the clock of the namespace of an operation",
                expected: "that of the server: use the bulk actions with the time of the call instead",
            });
        }
        let text = cmd.filter.failure_text.as_ref().map_or(0, String::len);
        let limit = OPERATION_REASON_BYTES_MAX;
        at_most(
            "the size of the failure text in bytes",
            count(text),
            count(limit),
        )?;
        let queue = match &cmd.action {
            OperationAction::Retry { queue } => queue,
            OperationAction::Alter(fields) => {
                let tags = fields.tags_added.iter().chain(&fields.tags_removed);
                at_most(
                    "the number of tags",
                    count(tags.clone().count()),
                    count(TAGS_MAX),
                )?;
                for tag in tags {
                    check_named("a tag", tag.as_bytes())?;
                }
                let labels = fields.labels_set.len() + fields.labels_removed.len();
                at_most("the number of labels", count(labels), count(LABELS_MAX))?;
                &fields.queue
            }
            OperationAction::Cancel | OperationAction::Delete => &None,
        };
        self.check_new_queues(&cmd.namespace, queue)
    }

    /// Refuses a further operation if too many run.
    fn make_room_for_operation(&self, namespace: &Namespace) -> Result<(), Rejection> {
        let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
        let running = self.operations.running();
        let same = running.filter(|record| record.namespace == *namespace);
        at_most(
            "the number of running operations of the namespace",
            count(same.count() + 1),
            count(OPERATIONS_RUNNING_MAX),
        )?;
        at_most(
            "the number of running operations of the shard",
            count(self.operations.running().count() + 1),
            count(OPERATIONS_MAX),
        )
    }

    /// Forgets the operation that was the newest if it has been kept for long enough, and the oldest ones that have
    /// ended while there are too many.
    fn forget_operations(&mut self, newest: Option<OperationRecord>, turn: &mut Turn<'_>) {
        let is_over = |record: &OperationRecord| {
            forgotten_at(record).is_some_and(|due| due.is_past(turn.now))
        };
        match newest {
            Some(newest) if is_over(&newest) => self.forget_operation(newest.number, turn),
            // Its timer may have fired while it stayed as the newest, before the wall clock was set back.
            Some(newest) => self.arm_operation(newest),
            None => {}
        }
        while self.operations.len() > OPERATIONS_MAX {
            let mut ended = self.operations.iter();
            let oldest = ended.find(|record| record.ended_at.is_some());
            let Some(oldest) = oldest.map(|record| record.number) else {
                return;
            };
            drop(ended);
            self.forget_operation(oldest, turn);
        }
    }

    /// Works through a page of an operation. A page that is not the next one changes nothing: it was read before a
    /// restart, or before the operation was stopped.
    pub(crate) fn work_operation(&mut self, cmd: WorkOperation, turn: &mut Turn<'_>) -> Answer {
        let mut record = self.operation(&cmd.namespace, cmd.number)?.clone();
        let mut jobs = Vec::new();
        if record.state != OperationState::Running {
            return Ok(worked(record, jobs));
        }
        match cmd.step {
            OperationStep::Counted(matching) => record.matching = Some(matching),
            OperationStep::Failed(mut message) => {
                cut(&mut message, OPERATION_REASON_BYTES_MAX);
                end(&mut record, OperationState::Failed, message, turn);
            }
            OperationStep::Page { after, .. } if after != record.cursor => {
                return Ok(worked(record, jobs));
            }
            OperationStep::Page {
                jobs: ids, next, ..
            } => {
                self.work_on_page(&mut record, ids, &mut jobs, turn);
                record.cursor.clone_from(&next);
                if record.is_at_ceiling() {
                    let message = "as many jobs as it may change were changed".to_owned();
                    end(&mut record, OperationState::Done, message, turn);
                } else if next.is_none() {
                    end(&mut record, OperationState::Done, String::new(), turn);
                }
            }
        }
        self.put_operation(record.clone(), turn);
        Ok(worked(record, jobs))
    }

    /// Does with the jobs of a page what the operation does with each.
    fn work_on_page(
        &mut self,
        record: &mut OperationRecord,
        ids: Vec<JobId>,
        jobs: &mut Vec<(JobId, JobWork)>,
        turn: &mut Turn<'_>,
    ) {
        let cancels_graph = record.cancelled_graph().is_some();
        let is_live = |engine: &Self, id: &JobId| engine.find_job(&record.namespace, id).is_some();
        let live: Vec<bool> = ids.iter().map(|id| is_live(self, id)).collect();
        for (id, was_live) in ids.into_iter().zip(live) {
            if record.is_at_ceiling() {
                break;
            }
            if cancels_graph && was_live && self.find_job(&record.namespace, &id).is_none() {
                // Cancelled together with a job before it, and counted.
                jobs.push((id, JobWork::Done));
                continue;
            }
            let work = self.work_on(record, &id, turn);
            record.done += self.take_cascaded(record.number);
            note(record, &id, &work);
            jobs.push((id, work));
        }
    }

    /// Number of jobs that were cancelled with their graph since the last call.
    fn take_cascaded(&mut self, number: OperationNumber) -> u64 {
        self.operations.cascaded.remove(&number).unwrap_or(0)
    }

    /// Adds the jobs that were cancelled with their graphs outside of a page to the progress of their operations.
    pub(crate) fn count_cascaded(&mut self, turn: &mut Turn<'_>) {
        for (number, jobs) in std::mem::take(&mut self.operations.cascaded) {
            if let Some(mut record) = self.operations.get(number).cloned() {
                record.done += jobs;
                self.put_operation(record, turn);
            }
        }
    }

    /// Does with one job what the operation does with each.
    fn work_on(&mut self, record: &OperationRecord, id: &JobId, turn: &mut Turn<'_>) -> JobWork {
        let (namespace, jobs) = (record.namespace.clone(), vec![id.clone()]);
        let state = self.state_of(&namespace, id, turn);
        let answer = match &record.action {
            OperationAction::Cancel => {
                let reason = record.reason.clone();
                let jobs = Selection::Jobs(jobs);
                self.cancel(
                    &Cancel {
                        namespace,
                        jobs,
                        reason,
                    },
                    turn,
                )
            }
            OperationAction::Retry { queue } => {
                let queue = queue.clone();
                self.retry_jobs(
                    &Retry {
                        namespace,
                        jobs,
                        queue,
                        dependents: false,
                        graph: None,
                    },
                    turn,
                )
            }
            OperationAction::Delete => self.delete(&Delete { namespace, jobs }, turn),
            OperationAction::Alter(fields) => {
                let fields = fields.clone();
                self.alter(
                    Alter {
                        namespace,
                        job: Some(id.clone()),
                        priority: fields.priority,
                        queue: fields.queue,
                        start: fields.start,
                        tags_added: fields.tags_added,
                        tags_removed: fields.tags_removed,
                        labels_set: fields.labels_set,
                        labels_removed: fields.labels_removed,
                        ..Alter::default()
                    },
                    turn,
                )
            }
        };
        // The consequences for one job are settled before the next one is looked at.
        self.propagate_endings(turn);
        match answer {
            Ok(Reply::Changed { count: 0, .. }) => JobWork::Skipped(why_skipped(record, state)),
            Ok(_) => JobWork::Done,
            Err(rejection) if is_skip(&rejection) => JobWork::Skipped(rejection.to_string()),
            Err(rejection) => JobWork::Failed(rejection.to_string()),
        }
    }

    fn state_of(&self, namespace: &Namespace, id: &JobId, turn: &Turn<'_>) -> Option<JobState> {
        let live = self.find_job(namespace, id).map(|key| self.job(key).state);
        let ended = || turn.known.find(namespace, id).map(|record| record.state);
        live.or_else(ended)
    }

    /// Stops an operation; one that has ended stays as it is.
    pub(crate) fn stop_operation(&mut self, cmd: &StopOperation, turn: &mut Turn<'_>) -> Answer {
        let mut record = self.operation(&cmd.namespace, cmd.number)?.clone();
        if record.state == OperationState::Running {
            let mut by = cmd.by.clone();
            cut(&mut by, OPERATION_REASON_BYTES_MAX);
            let message = if by.is_empty() {
                String::new()
            } else {
                format!("stopped by {by}")
            };
            end(&mut record, OperationState::Stopped, message, turn);
            self.put_operation(record.clone(), turn);
        }
        Ok(Reply::Operation(Box::new(record)))
    }

    /// The operation with this number, in this namespace.
    pub(crate) fn operation(
        &self,
        namespace: &Namespace,
        number: OperationNumber,
    ) -> Result<&OperationRecord, Rejection> {
        let found = self.operations.get(number);
        let found = found.filter(|record| record.namespace == *namespace);
        found.ok_or(Rejection::OperationNotFound { number })
    }

    /// Writes an operation, and arms the timer that forgets it once it has ended.
    fn put_operation(&mut self, record: OperationRecord, turn: &mut Turn<'_>) {
        turn.out
            .changes
            .push(Change::PutOperation(Box::new(record.clone())));
        self.arm_operation(record);
    }

    /// Adds an operation, and the timer that forgets it if it has ended.
    pub(crate) fn arm_operation(&mut self, record: OperationRecord) {
        let space = self.make_space(&record.namespace);
        if let Some(due) = forgotten_at(&record) {
            let timers = &mut self.spaces[space].timers;
            timers.arm(due, Timer::OperationEnd(record.number));
        }
        self.operations.put(record);
    }

    /// Forgets an operation that has been kept for long enough. The newest one stays until there is another, so that no
    /// number is used twice.
    pub(crate) fn operation_fell_due(&mut self, number: OperationNumber, turn: &mut Turn<'_>) {
        if !self.operations.is_newest(number) {
            self.forget_operation(number, turn);
        }
    }

    fn forget_operation(&mut self, number: OperationNumber, turn: &mut Turn<'_>) {
        let Some(record) = self.operations.remove(number) else {
            return;
        };
        let space = self.make_space(&record.namespace);
        if let Some(due) = forgotten_at(&record) {
            let timers = &mut self.spaces[space].timers;
            timers.disarm_if_armed(due, Timer::OperationEnd(number));
        }
        turn.out.changes.push(Change::RemoveOperation(number));
    }
}

/// The time at which an operation is forgotten; `None` while it runs.
pub(crate) fn forgotten_at(record: &OperationRecord) -> Option<Due> {
    record
        .ended_at
        .map(|at| Due::Wall(at.after(OPERATION_KEPT_FOR)))
}

fn end(record: &mut OperationRecord, state: OperationState, message: String, turn: &Turn<'_>) {
    record.state = state;
    record.ended_at = Some(turn.now.wall);
    record.message = message;
}

/// Counts what was done with a job.
fn note(record: &mut OperationRecord, job: &JobId, work: &JobWork) {
    let reason = match work {
        JobWork::Done => {
            record.done += 1;
            return;
        }
        JobWork::Skipped(reason) => {
            record.skipped += 1;
            reason
        }
        JobWork::Failed(reason) => {
            record.failed += 1;
            reason
        }
    };
    if record.left_out.len() < OPERATION_LEFT_OUT_MAX {
        let mut reason = reason.clone();
        cut(&mut reason, OPERATION_REASON_BYTES_MAX);
        let job = job.clone();
        record.left_out.push(LeftOutJob { job, reason });
    }
}

/// Whether a refusal means that the job is not one to change, and not that something has failed.
fn is_skip(rejection: &Rejection) -> bool {
    matches!(
        rejection,
        Rejection::JobNotFound { .. }
            | Rejection::JobPrepared { .. }
            | Rejection::WrongState { .. }
            | Rejection::InUse { .. }
    )
}

/// Why a command that names a job alone has not changed it.
fn why_skipped(record: &OperationRecord, state: Option<JobState>) -> String {
    let state = state.map_or("gone", JobState::as_str);
    match &record.action {
        OperationAction::Retry { .. } => format!(
            "it is {state}; only jobs that have ended are retried, after the jobs that they wait for"
        ),
        OperationAction::Delete => "other jobs still need it".to_owned(),
        OperationAction::Cancel | OperationAction::Alter(_) => format!("it is {state}"),
    }
}

fn worked(record: OperationRecord, jobs: Vec<(JobId, JobWork)>) -> Reply {
    let operation = Box::new(record);
    Reply::OperationWorked { operation, jobs }
}

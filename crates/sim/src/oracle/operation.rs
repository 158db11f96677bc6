//! Checks operations: each job of a page as by its own command, the counts, the order of pages, and how long operations
//! are kept.

use ganger_types::command::{
    Alter, Cancel, Delete, OperationStep, Retry, Selection, StartOperation, StopOperation,
    WorkOperation,
};
use ganger_types::limits::{OPERATION_KEPT_FOR, OPERATIONS_MAX};
use ganger_types::reply::JobWork;
use ganger_types::{
    Answer, JobId, OperationAction, OperationRecord, OperationState, Rejection, Reply,
};

use super::{CheckResult, Oracle};
use crate::rows::Rows;

impl Oracle {
    pub(super) fn start_operation(&mut self, cmd: &StartOperation, answer: &Answer) -> CheckResult {
        let record = match answer {
            Ok(Reply::Operation(record)) => record,
            Err(Rejection::TooLarge { .. }) => return Ok(()),
            other => return Err(self.wrong("P6", format!("answered {other:?}"), Vec::new())),
        };
        let newest = self.operations.last_key_value().map(|(number, _)| *number);
        if newest.is_some_and(|newest| record.number <= newest) {
            let what = format!("{} was started after {newest:?}", record.number);
            return Err(self.wrong("P6", what, Vec::new()));
        }
        if record.namespace != cmd.namespace || record.state != OperationState::Running {
            return Err(self.wrong("P6", format!("started as {record:?}"), Vec::new()));
        }
        self.operations
            .insert(record.number, OperationRecord::clone(record));
        Ok(())
    }

    pub(super) fn stop_operation(&mut self, cmd: &StopOperation, answer: &Answer) -> CheckResult {
        let known = self.operations.get(&cmd.number);
        let Ok(Reply::Operation(record)) = answer else {
            return match (answer, known) {
                (Err(Rejection::OperationNotFound { .. }), None) => Ok(()),
                _ => Err(self.wrong("P6", format!("answered {answer:?}"), Vec::new())),
            };
        };
        let Some(known) = known else {
            return Err(self.wrong("P6", format!("{} was stopped", cmd.number), Vec::new()));
        };
        let stays = known.state != OperationState::Running;
        let is_right = if stays {
            **record == *known
        } else {
            record.state == OperationState::Stopped && record.done == known.done
        };
        if !is_right {
            return Err(self.wrong("P6", format!("stopped as {record:?}"), Vec::new()));
        }
        self.operations
            .insert(record.number, OperationRecord::clone(record));
        Ok(())
    }

    pub(super) fn work_operation(&mut self, cmd: &WorkOperation, answer: &Answer) -> CheckResult {
        let known = self.operations.get(&cmd.number).cloned();
        let (operation, jobs) = match (answer, &known) {
            (Ok(Reply::OperationWorked { operation, jobs }), Some(_)) => (operation, jobs),
            (Err(Rejection::OperationNotFound { .. }), None) => return Ok(()),
            _ => return Err(self.wrong("P6", format!("answered {answer:?}"), Vec::new())),
        };
        let Some(mut known) = known else {
            return Ok(());
        };
        let is_next = known.state == OperationState::Running
            && match &cmd.step {
                OperationStep::Page { after, .. } => *after == known.cursor,
                _ => true,
            };
        if !is_next {
            self.goals.reach("operation-page-repeated");
            if **operation != known || !jobs.is_empty() {
                let what = format!("a page that was not the next one changed {}", known.number);
                return Err(self.wrong("D3", what, Vec::new()));
            }
            return Ok(());
        }
        for (id, work) in jobs {
            self.job_of_operation(&known, id, work)?;
            match work {
                JobWork::Done => known.done += 1,
                JobWork::Skipped(_) => known.skipped += 1,
                JobWork::Failed(_) => known.failed += 1,
            }
        }
        let counts = |one: &OperationRecord| (one.done, one.skipped, one.failed);
        if counts(&known) != counts(operation) {
            let what = format!("{} counts {:?}", known.number, counts(operation));
            return Err(self.wrong("D3", what, Vec::new()));
        }
        if known.at_most.is_some_and(|most| operation.done > most) {
            let what = format!("{} changed more than it may", known.number);
            return Err(self.wrong("P6", what, Vec::new()));
        }
        if let OperationStep::Page { next, .. } = &cmd.step {
            self.goals.reach("worked-through-a-page-of-an-operation");
            let has_ended = next.is_none() || operation.is_at_ceiling();
            if operation.cursor != *next || has_ended != operation.ended_at.is_some() {
                let what = format!("{} goes on as {operation:?}", known.number);
                return Err(self.wrong("D3", what, Vec::new()));
            }
        }
        self.operations
            .insert(operation.number, OperationRecord::clone(operation));
        Ok(())
    }

    /// Checks what was done with a job as if the command for that job had been answered so.
    fn job_of_operation(
        &mut self,
        operation: &OperationRecord,
        id: &JobId,
        work: &JobWork,
    ) -> CheckResult {
        let namespace = operation.namespace.clone();
        let jobs = vec![id.clone()];
        let is_done = *work == JobWork::Done;
        let skipped = if is_done { Vec::new() } else { jobs.clone() };
        let count = u64::from(is_done);
        let answer = Ok(Reply::Changed { count, skipped });
        match &operation.action {
            OperationAction::Cancel => {
                let cmd = Cancel {
                    namespace,
                    jobs: Selection::Jobs(jobs),
                    reason: String::new(),
                };
                self.cancel(&cmd, &answer)
            }
            OperationAction::Retry { queue } => {
                let cmd = Retry {
                    namespace,
                    jobs,
                    queue: queue.clone(),
                    dependents: false,
                    graph: None,
                };
                self.retry(&cmd, &answer)
            }
            OperationAction::Delete => self.delete(&Delete { namespace, jobs }, &answer),
            OperationAction::Alter(fields) => {
                let key = self.find(&namespace, id).filter(|_| is_done);
                if let Some(key) = key {
                    let cmd = Alter {
                        namespace,
                        job: Some(id.clone()),
                        priority: fields.priority,
                        ..Alter::default()
                    };
                    self.altered(key, &cmd);
                }
                Ok(())
            }
        }
    }

    /// Compares the operations with the rows. Operations that ended seven days ago may be gone, apart from the newest.
    pub(super) fn compare_operations(&mut self, rows: &Rows) -> CheckResult {
        if self.is_of_callers {
            return Ok(());
        }
        let newest = self.operations.last_key_value().map(|(number, _)| *number);
        let now = self.now.wall;
        let is_over = |record: &OperationRecord| {
            record
                .ended_at
                .is_some_and(|at| at.after(OPERATION_KEPT_FOR) <= now)
        };
        let is_full = self.operations.len() > OPERATIONS_MAX;
        let mut gone = Vec::new();
        for (number, record) in &self.operations {
            match rows.operations.get(number) {
                Some(row) if row == record => {}
                None if Some(*number) != newest && (is_over(record) || is_full) => {
                    gone.push(*number);
                }
                row => {
                    let what = format!("{record:?} is stored as {row:?}");
                    return Err(self.wrong("D3", what, Vec::new()));
                }
            }
        }
        for number in gone {
            self.operations.remove(&number);
        }
        let unknown = rows.operations.keys();
        let mut unknown = unknown.filter(|number| !self.operations.contains_key(number));
        match unknown.next() {
            Some(number) => {
                let what = format!("{number} is stored and was never started");
                Err(self.wrong("D2", what, Vec::new()))
            }
            None => Ok(()),
        }
    }
}

//! Works through the operations of a shard: finds the jobs of each page, and passes them to the engine.
//!
//! All state is in the engine's records, so that this task can be started and ended at any moment. It sends one page at
//! a time, and the next one after a pause ([`OperationRecord::next_page`]): each page is one command among those of the
//! clients, whatever the number of jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use ganger_types::command::{OperationStep, StartOperation, StopOperation, WorkOperation};
use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::{JobQuery, Query};
use ganger_types::{Command, JobId, JobKey, Namespace, OperationNumber, OperationRecord, Reply};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{CallError, Handle, Health};

/// Pause after the shard could not be asked.
const UNAVAILABLE_PAUSE: Duration = Duration::from_millis(100);

impl Handle {
    /// Starts an operation; the reply comes when it is durable.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn start_operation(
        &self,
        start: StartOperation,
    ) -> Result<OperationRecord, CallError> {
        self.ask_operation(Command::StartOperation(Box::new(start)))
            .await
    }

    /// Returns the record of an operation, with its progress as of the last page.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn operation(
        &self,
        namespace: &Namespace,
        number: OperationNumber,
    ) -> Result<OperationRecord, CallError> {
        let query = Query::Operation(namespace.clone(), number);
        self.ask_operation(Command::Query(Box::new(query))).await
    }

    /// Stops an operation; one that has ended stays as it is.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn stop_operation(&self, stop: StopOperation) -> Result<OperationRecord, CallError> {
        self.ask_operation(Command::StopOperation(stop)).await
    }

    /// Returns operations of a namespace, newest first: those before a number, and at most so many.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn operations(
        &self,
        namespace: &Namespace,
        before: Option<OperationNumber>,
        limit: usize,
    ) -> Result<Vec<OperationRecord>, CallError> {
        let query = Query::Operations(namespace.clone(), before, limit);
        match self.call(Command::Query(Box::new(query))).await? {
            Reply::Operations(records) => Ok(records),
            _ => unreachable!("operations were asked for"),
        }
    }

    async fn ask_operation(&self, command: Command) -> Result<OperationRecord, CallError> {
        match self.call(command).await? {
            Reply::Operation(record) => Ok(*record),
            _ => unreachable!("an operation was asked for"),
        }
    }

    /// Returns a value that changes whenever an operation has durably begun, made progress or ended.
    pub fn operation_changes(&self) -> watch::Receiver<u64> {
        self.shared.operations.clone()
    }

    /// Works through the operations of the shard until the shard ends. One such task per shard is enough; a second one
    /// would do no harm.
    pub async fn work_operations(self) {
        let mut changes = self.operation_changes();
        let mut pages: BTreeMap<OperationNumber, Instant> = BTreeMap::new();
        loop {
            changes.borrow_and_update();
            let running = match self.running_operations().await {
                Ok(running) => running,
                Err(_) if matches!(self.health(), Health::Stopped { .. }) => return,
                Err(_) => {
                    sleep(UNAVAILABLE_PAUSE).await;
                    continue;
                }
            };
            pages.retain(|number, _| running.iter().any(|record| record.number == *number));
            let now = Instant::now();
            let due = |record: &&OperationRecord| pages.get(&record.number).copied().unwrap_or(now);
            let next = running.iter().min_by_key(due);
            let Some(record) = next else {
                if changes.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let due_at = due(&record);
            if due_at > now {
                tokio::select! {
                    () = sleep_until(due_at) => {}
                    change = changes.changed() => if change.is_err() { return },
                }
                continue;
            }
            let pause = self.work_on(record).await;
            pages.insert(record.number, Instant::now() + pause);
        }
    }

    async fn running_operations(&self) -> Result<Vec<OperationRecord>, CallError> {
        let query = Command::Query(Box::new(Query::RunningOperations));
        match self.call(query).await? {
            Reply::Operations(records) => Ok(records),
            _ => unreachable!("operations were asked for"),
        }
    }

    /// Does the next step of an operation; returns the pause before the one after it.
    async fn work_on(&self, record: &OperationRecord) -> Duration {
        let (step, pause) = match self.next_step(record).await {
            Ok(step) => step,
            Err(CallError::Damaged { what, .. }) => (OperationStep::Failed(what), Duration::ZERO),
            Err(_) => return UNAVAILABLE_PAUSE,
        };
        let work = WorkOperation {
            namespace: record.namespace.clone(),
            number: record.number,
            step,
        };
        match self.call(Command::WorkOperation(Box::new(work))).await {
            Ok(_) => pause,
            Err(_) => UNAVAILABLE_PAUSE,
        }
    }

    async fn next_step(
        &self,
        record: &OperationRecord,
    ) -> Result<(OperationStep, Duration), CallError> {
        if record.matching.is_none() {
            let count = self.count_matching(record).await?;
            return Ok((OperationStep::Counted(count), Duration::ZERO));
        }
        let (query, pause) = record.next_page();
        let page = self.list(query).await?;
        let is_old = |key: JobKey| !is_later(record, key);
        let found = page.jobs.len();
        let old = page.jobs.into_iter().map(|job| job.record);
        let jobs: Vec<JobId> = old
            .take_while(|record| is_old(record.key))
            .map(|record| record.id)
            .collect();
        let next = page.next.filter(|_| jobs.len() == found);
        let after = record.cursor.clone();
        Ok((OperationStep::Page { after, jobs, next }, pause))
    }

    /// Counts the jobs that an operation is about. Jobs enqueued since it began are left out, up to
    /// [`PAGE_JOBS_MAX`] of them: the number is for people, and each page leaves out all of them.
    async fn count_matching(&self, record: &OperationRecord) -> Result<u64, CallError> {
        let query = record.filter.query(record.namespace.clone(), PAGE_JOBS_MAX);
        let later = JobQuery {
            after: record.end.0.checked_sub(1).map(JobKey),
            ..query.clone()
        };
        let all = self.count(query).await?;
        let later = self.list(later).await?.jobs;
        let later = later.iter().filter(|job| is_later(record, job.record.key));
        Ok(all.saturating_sub(u64::try_from(later.count()).unwrap_or(u64::MAX)))
    }
}

/// Whether a job was enqueued after an operation began. Jobs of external systems have no number that tells.
fn is_later(record: &OperationRecord, key: JobKey) -> bool {
    key >= record.end && !JobKey::is_of_external_job(key)
}

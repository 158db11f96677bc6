//! A live job in memory: a small struct for every job, and a box for the details that few jobs have.
//!
//! A ready job without earlier attempts, tags or other details needs no box.

use std::time::Duration;

use ganger_types::command::NewJob;
use ganger_types::job::LastReport;
use ganger_types::{
    Due, Elapsed, Failure, Graph, HistoryEntry, IdTag, JobId, JobKey, JobName, JobRecord, JobState,
    LabelKey, LabelValue, LeaseRecord, Priority, Progress, ScheduleId, Tag, Timestamp, UniqueKey,
};

use super::names::{KindIndex, QueueIndex, RetryIndex};

/// The part that every live job has.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub key: JobKey,
    pub priority: Priority,
    pub created_at: Timestamp,
    /// Time at which the job became ready, which orders jobs of a priority; see [`Job::place`].
    pub ready_at: Elapsed,
    pub queue: QueueIndex,
    pub kind: KindIndex,
    pub retry: RetryIndex,
    pub id_tag: IdTag,
    /// Number of the last attempt; 0 before the first.
    pub attempt: u32,
    /// Number of attempts that count against the retry limit.
    pub attempts_counted: u32,
    pub payload_bytes: u32,
    pub state: JobState,
    pub details: Option<Box<JobDetails>>,
}

/// The details that few jobs have.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobDetails {
    /// Id that the client chose; `None`: the engine made one.
    pub id: Option<JobId>,
    pub name: Option<JobName>,
    /// Time at which a scheduled job becomes ready; of a blocked job, the time that it waits for once its
    /// dependencies are met.
    pub due: Option<Due>,
    /// Whether the job goes before others of its priority.
    pub is_ahead: bool,
    pub deadline: Option<Timestamp>,
    pub timeout: Option<Duration>,
    pub releases: u32,
    /// Number of lease expirations: those in a row, or all of them if the retry policy limits them.
    pub lease_expirations: u32,
    /// Number of positional inputs.
    pub inputs: u32,
    /// Number of dependencies that are not met: the undelivered edges of this job.
    pub missing: u32,
    pub fingerprint: u64,
    pub failure: Option<Failure>,
    pub graph: Option<Graph>,
    pub tags: Vec<Tag>,
    pub labels: Vec<(LabelKey, LabelValue)>,
    pub tracked: bool,
    pub unique: Option<UniqueKey>,
    pub schedule: Option<ScheduleId>,
    pub keep_succeeded: Option<Option<Duration>>,
    pub keep_failed: Option<Option<Duration>>,
    pub progress: Option<Progress>,
    pub last_report: Option<LastReport>,
    /// History; empty: the job was enqueued at `created_at`, and nothing happened since.
    pub history: Vec<HistoryEntry>,
    pub history_dropped: u32,
    /// Lease, exactly while the job is running.
    pub lease: Option<Box<LeaseRecord>>,
    /// Size of the log of the current attempt in bytes.
    pub log_bytes: u64,
}

impl JobDetails {
    /// Details of a job that is enqueued now.
    pub(crate) fn of_new(job: &NewJob, fingerprint: u64, graph: Option<&Graph>) -> Self {
        Self {
            id: job.id.clone(),
            name: job.name.clone(),
            deadline: job.deadline,
            timeout: job.timeout,
            inputs: u32::try_from(job.inputs.len()).expect("inputs were checked"),
            fingerprint,
            graph: graph.cloned(),
            tags: job.tags.clone(),
            labels: job.labels.clone(),
            tracked: job.tracked,
            unique: job.unique.as_ref().map(|unique| unique.key.clone()),
            keep_succeeded: job.keep_succeeded,
            keep_failed: job.keep_failed,
            ..Self::default()
        }
    }

    /// Details of a job that is loaded or retried. Unmet dependencies and the lease have rows of their own.
    pub(crate) fn of_record(record: &JobRecord) -> Self {
        Self {
            id: record.id_is_given.then(|| record.id.clone()),
            name: record.name.clone(),
            due: record.due,
            is_ahead: record.is_ahead,
            deadline: record.deadline,
            timeout: record.timeout,
            releases: record.releases,
            lease_expirations: record.lease_expirations,
            inputs: record.inputs,
            missing: 0,
            fingerprint: record.fingerprint,
            failure: record.failure.clone(),
            graph: record.graph.clone(),
            tags: record.tags.clone(),
            labels: record.labels.clone(),
            tracked: record.tracked,
            unique: record.unique.clone(),
            schedule: record.schedule.clone(),
            keep_succeeded: record.keep_succeeded,
            keep_failed: record.keep_failed,
            progress: record.progress.clone(),
            last_report: record.last_report,
            history: record.history.clone(),
            history_dropped: record.history_dropped,
            lease: None,
            log_bytes: 0,
        }
    }

    /// Sets the fields of the job's record that details hold. The pattern has every field, so that a new one
    /// cannot be forgotten here.
    pub(crate) fn write_to(&self, record: &mut JobRecord) {
        let Self {
            id,
            name,
            due,
            is_ahead,
            deadline,
            timeout,
            releases,
            lease_expirations,
            inputs,
            missing: _,
            fingerprint,
            failure,
            graph,
            tags,
            labels,
            tracked,
            unique,
            schedule,
            keep_succeeded,
            keep_failed,
            progress,
            last_report,
            history,
            history_dropped,
            lease: _,
            log_bytes: _,
        } = self;
        record.id_is_given = id.is_some();
        record.name.clone_from(name);
        record.due = *due;
        record.is_ahead = *is_ahead;
        record.deadline = *deadline;
        record.timeout = *timeout;
        record.releases = *releases;
        record.lease_expirations = *lease_expirations;
        record.inputs = *inputs;
        record.fingerprint = *fingerprint;
        record.failure.clone_from(failure);
        record.graph.clone_from(graph);
        record.tags.clone_from(tags);
        record.labels.clone_from(labels);
        record.tracked = *tracked;
        record.unique.clone_from(unique);
        record.schedule.clone_from(schedule);
        record.keep_succeeded = *keep_succeeded;
        record.keep_failed = *keep_failed;
        record.progress.clone_from(progress);
        record.last_report = *last_report;
        record.history.clone_from(history);
        record.history_dropped = *history_dropped;
    }

    /// Whether a job with these details equals one without any.
    pub(crate) fn is_plain(&self) -> bool {
        self.id.is_none()
            && self.name.is_none()
            && self.due.is_none()
            && !self.is_ahead
            && self.deadline.is_none()
            && self.timeout.is_none()
            && self.releases == 0
            && self.lease_expirations == 0
            && self.inputs == 0
            && self.missing == 0
            && self.failure.is_none()
            && self.graph.is_none()
            && self.tags.is_empty()
            && self.labels.is_empty()
            && !self.tracked
            && self.unique.is_none()
            && self.schedule.is_none()
            && self.keep_succeeded.is_none()
            && self.keep_failed.is_none()
            && self.progress.is_none()
            && self.last_report.is_none()
            && self.history.is_empty()
            && self.lease.is_none()
    }
}

/// Bit in [`Job::place`] of jobs that do not go before others of their priority.
const BEHIND: u64 = 1 << 63;

impl Job {
    /// The id: that of the client, or one made of number and tag.
    pub(crate) fn id(&self) -> JobId {
        match self
            .details
            .as_deref()
            .and_then(|details| details.id.as_ref())
        {
            Some(id) => id.clone(),
            None => JobId::made(self.key, self.id_tag),
        }
    }

    /// The details, which are created if the job has none.
    pub(crate) fn details_mut(&mut self) -> &mut JobDetails {
        self.details.get_or_insert_default()
    }

    /// The sort key among the ready jobs of the queue: priority, then time, then number.
    pub(crate) fn place(&self) -> (Priority, u64, JobKey) {
        let is_ahead = self
            .details
            .as_deref()
            .is_some_and(|details| details.is_ahead);
        let lane = if is_ahead { 0 } else { BEHIND };
        (self.priority, self.ready_at.0 | lane, self.key)
    }

    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        self.details.as_deref().and_then(|details| details.deadline)
    }

    pub(crate) fn lease(&self) -> Option<&LeaseRecord> {
        self.details
            .as_deref()
            .and_then(|details| details.lease.as_deref())
    }

    pub(crate) fn graph(&self) -> Option<&Graph> {
        self.details
            .as_deref()
            .and_then(|details| details.graph.as_ref())
    }
}

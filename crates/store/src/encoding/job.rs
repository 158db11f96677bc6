//! The job record. What filters look at stands in front, so that a listing need not read the rest.

use ganger_types::{
    Elapsed, Finished, Graph, IdTag, JobId, JobKey, JobName, JobRecord, JobState, Kind, LabelKey,
    LabelValue, Namespace, Priority, Queue, RetryPolicy, ScheduleId, Tag, Timestamp, UniqueKey,
};

use super::failure::{
    read_failure, read_progress, read_report, write_failure, write_progress, write_report,
};
use super::history::{read_entry, write_entry};
use super::policy::{read_due, read_outcome, read_retry, write_due, write_outcome, write_retry};
use super::{Cursor, DecodeError, Record, Writer};

/// The front of a job record, read without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance<'a> {
    /// As stored: never `Running`.
    pub state: JobState,
    /// Its name's bytes.
    pub namespace: &'a [u8],
    /// Its name's bytes.
    pub queue: &'a [u8],
    /// Its name's bytes.
    pub kind: &'a [u8],
    /// When it was enqueued.
    pub created_at: Timestamp,
}

impl<'a> Glance<'a> {
    /// Reads the front of a stored job record.
    ///
    /// # Errors
    /// If the bytes are not a job record.
    pub fn of(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut from = Cursor::new(bytes, JobRecord::WHAT);
        from.version::<JobRecord>()?;
        Self::read(&mut from)
    }

    fn read(from: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            state: JobState::from_number(from.byte()?)
                .ok_or_else(|| from.error("has an unknown state"))?,
            namespace: from.bytes()?,
            queue: from.bytes()?,
            kind: from.bytes()?,
            created_at: Timestamp(from.number()?),
        })
    }
}

/// Which of the optional fields are there. Bits, once given, keep their meaning.
#[derive(Clone, Copy)]
struct Fields(u64);

impl Fields {
    const ID_GIVEN: u64 = 1;
    const ID_WRITTEN: u64 = 1 << 1;
    const AHEAD: u64 = 1 << 2;
    const DUE: u64 = 1 << 3;
    const DEADLINE: u64 = 1 << 4;
    const TIMEOUT: u64 = 1 << 5;
    const RETRY: u64 = 1 << 6;
    const ATTEMPTED: u64 = 1 << 7;
    const FINGERPRINT: u64 = 1 << 8;
    const FAILURE: u64 = 1 << 9;
    const GRAPH: u64 = 1 << 10;
    const TAGS: u64 = 1 << 11;
    const LABELS: u64 = 1 << 12;
    const TRACKED: u64 = 1 << 13;
    const UNIQUE: u64 = 1 << 14;
    const SCHEDULE: u64 = 1 << 15;
    const KEEP_SUCCEEDED: u64 = 1 << 16;
    const KEEP_FAILED: u64 = 1 << 17;
    const PROGRESS: u64 = 1 << 18;
    const LAST_REPORT: u64 = 1 << 19;
    const FINISHED: u64 = 1 << 20;
    const INPUTS: u64 = 1 << 21;
    const NAME: u64 = 1 << 22;
    const ALL: u64 = (1 << 23) - 1;

    fn of(job: &JobRecord) -> Self {
        let made = job.id.is_made(job.key, job.id_tag);
        let attempts = [
            job.attempt,
            job.attempts_counted,
            job.releases,
            job.lease_expirations,
        ];
        let bits = [
            (job.id_is_given, Self::ID_GIVEN),
            (!made, Self::ID_WRITTEN),
            (job.is_ahead, Self::AHEAD),
            (job.due.is_some(), Self::DUE),
            (job.deadline.is_some(), Self::DEADLINE),
            (job.timeout.is_some(), Self::TIMEOUT),
            (job.retry != RetryPolicy::default(), Self::RETRY),
            (attempts != [0; 4], Self::ATTEMPTED),
            (job.fingerprint != 0, Self::FINGERPRINT),
            (job.failure.is_some(), Self::FAILURE),
            (job.graph.is_some(), Self::GRAPH),
            (!job.tags.is_empty(), Self::TAGS),
            (!job.labels.is_empty(), Self::LABELS),
            (job.tracked, Self::TRACKED),
            (job.unique.is_some(), Self::UNIQUE),
            (job.schedule.is_some(), Self::SCHEDULE),
            (job.keep_succeeded.is_some(), Self::KEEP_SUCCEEDED),
            (job.keep_failed.is_some(), Self::KEEP_FAILED),
            (job.progress.is_some(), Self::PROGRESS),
            (job.last_report.is_some(), Self::LAST_REPORT),
            (job.finished.is_some(), Self::FINISHED),
            (job.inputs != 0, Self::INPUTS),
            (job.name.is_some(), Self::NAME),
        ];
        Self(bits.iter().filter(|(is, _)| *is).map(|(_, bit)| bit).sum())
    }

    fn has(self, bit: u64) -> bool {
        self.0 & bit != 0
    }

    /// Reads a field if it is there.
    fn read<'a, T>(
        self,
        bit: u64,
        from: &mut Cursor<'a>,
        read: impl FnOnce(&mut Cursor<'a>) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, DecodeError> {
        if self.has(bit) {
            read(from).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl Record for JobRecord {
    const WHAT: &'static str = "job";

    fn write(&self, out: &mut Writer<'_>) {
        out.byte(self.state.number());
        out.bytes(self.namespace.as_bytes());
        out.bytes(self.queue.as_bytes());
        out.bytes(self.kind.as_bytes());
        out.number(self.created_at.0);

        let fields = Fields::of(self);
        out.number(fields.0);
        out.number(self.key.0);
        out.number(u64::from(self.id_tag.0));
        if fields.has(Fields::ID_WRITTEN) {
            out.bytes(self.id.as_bytes());
        }
        out.signed(self.priority.millionths());
        out.number(self.ready_at.0);
        out.number(self.payload_bytes);
        if fields.has(Fields::INPUTS) {
            out.number(u64::from(self.inputs));
        }
        write_running(self, fields, out);
        write_words(self, fields, out);
        out.length(self.history.len());
        self.history
            .iter()
            .for_each(|entry| write_entry(out, entry, self.created_at));
        out.number(u64::from(self.history_dropped));
        if let Some(finished) = &self.finished {
            write_finished(out, finished, self.created_at);
        }
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let front = Glance::read(from)?;
        let name = |_| from.error("has a name that is too long");
        let namespace = Namespace::new(front.namespace).map_err(name)?;
        let queue = Queue::new(front.queue).map_err(name)?;
        let kind = Kind::new(front.kind).map_err(name)?;

        let fields = Fields(from.number()?);
        if fields.0 > Fields::ALL {
            return Err(from.error("has fields that this program does not know"));
        }
        let key = JobKey(from.number()?);
        let id_tag = IdTag(from.small()?);
        let id = match fields.read(Fields::ID_WRITTEN, from, |from| from.name(JobId::new))? {
            Some(id) => id,
            None if key.0 < 1 << 40 => JobId::made(key, id_tag),
            None => return Err(from.error("has a number too large for a made id")),
        };
        let mut job = Self {
            key,
            id,
            id_tag,
            id_is_given: fields.has(Fields::ID_GIVEN),
            name: None,
            namespace,
            queue,
            kind,
            state: front.state,
            priority: Priority::from_millionths(from.signed()?),
            created_at: front.created_at,
            ready_at: Elapsed(from.number()?),
            payload_bytes: from.number()?,
            inputs: fields
                .read(Fields::INPUTS, from, Cursor::small)?
                .unwrap_or(0),
            is_ahead: fields.has(Fields::AHEAD),
            tracked: fields.has(Fields::TRACKED),
            due: None,
            deadline: None,
            timeout: None,
            retry: RetryPolicy::default(),
            attempt: 0,
            attempts_counted: 0,
            releases: 0,
            lease_expirations: 0,
            fingerprint: 0,
            failure: None,
            graph: None,
            tags: Vec::new(),
            labels: Vec::new(),
            unique: None,
            schedule: None,
            keep_succeeded: None,
            keep_failed: None,
            progress: None,
            last_report: None,
            history: Vec::new(),
            history_dropped: 0,
            finished: None,
        };
        read_running(&mut job, fields, from)?;
        read_words(&mut job, fields, from)?;
        job.history = from.list(|from| read_entry(from, front.created_at))?;
        job.history_dropped = from.small()?;
        job.finished = fields.read(Fields::FINISHED, from, |from| {
            read_finished(from, front.created_at)
        })?;
        Ok(job)
    }
}

/// What governs and marks the attempts.
fn write_running(job: &JobRecord, fields: Fields, out: &mut Writer<'_>) {
    if let Some(due) = job.due {
        write_due(out, due);
    }
    if let Some(deadline) = job.deadline {
        out.number(deadline.0);
    }
    if let Some(timeout) = job.timeout {
        out.duration(timeout);
    }
    if fields.has(Fields::RETRY) {
        write_retry(out, &job.retry);
    }
    if fields.has(Fields::ATTEMPTED) {
        let numbers = [
            job.attempt,
            job.attempts_counted,
            job.releases,
            job.lease_expirations,
        ];
        for number in numbers {
            out.number(u64::from(number));
        }
    }
    if let Some(failure) = &job.failure {
        write_failure(out, failure);
    }
    if let Some(progress) = &job.progress {
        write_progress(out, progress);
    }
    if let Some(report) = &job.last_report {
        write_report(out, report);
    }
    for keep in [job.keep_succeeded, job.keep_failed].into_iter().flatten() {
        out.option(keep, Writer::duration);
    }
}

fn read_running(
    job: &mut JobRecord,
    fields: Fields,
    from: &mut Cursor<'_>,
) -> Result<(), DecodeError> {
    let keep = |from: &mut Cursor<'_>| from.option(Cursor::duration);
    job.due = fields.read(Fields::DUE, from, read_due)?;
    job.deadline = fields
        .read(Fields::DEADLINE, from, Cursor::number)?
        .map(Timestamp);
    job.timeout = fields.read(Fields::TIMEOUT, from, Cursor::duration)?;
    if fields.has(Fields::RETRY) {
        job.retry = read_retry(from)?;
    }
    if fields.has(Fields::ATTEMPTED) {
        job.attempt = from.small()?;
        job.attempts_counted = from.small()?;
        job.releases = from.small()?;
        job.lease_expirations = from.small()?;
    }
    job.failure = fields.read(Fields::FAILURE, from, read_failure)?;
    job.progress = fields.read(Fields::PROGRESS, from, read_progress)?;
    job.last_report = fields.read(Fields::LAST_REPORT, from, read_report)?;
    job.keep_succeeded = fields.read(Fields::KEEP_SUCCEEDED, from, keep)?;
    job.keep_failed = fields.read(Fields::KEEP_FAILED, from, keep)?;
    Ok(())
}

/// What people and programs put on it to find it again.
fn write_words(job: &JobRecord, fields: Fields, out: &mut Writer<'_>) {
    if fields.has(Fields::FINGERPRINT) {
        out.raw(&job.fingerprint.to_le_bytes());
    }
    if let Some(graph) = &job.graph {
        out.bytes(graph.as_bytes());
    }
    if fields.has(Fields::TAGS) {
        out.length(job.tags.len());
        job.tags.iter().for_each(|tag| out.bytes(tag.as_bytes()));
    }
    if fields.has(Fields::LABELS) {
        write_labels(out, &job.labels);
    }
    if let Some(unique) = &job.unique {
        out.bytes(unique.as_bytes());
    }
    if let Some(schedule) = &job.schedule {
        out.bytes(schedule.as_bytes());
    }
    if let Some(name) = &job.name {
        out.bytes(name.as_bytes());
    }
}

fn read_words(
    job: &mut JobRecord,
    fields: Fields,
    from: &mut Cursor<'_>,
) -> Result<(), DecodeError> {
    if fields.has(Fields::FINGERPRINT) {
        let raw = from.raw(8)?.try_into().expect("eight bytes were taken");
        job.fingerprint = u64::from_le_bytes(raw);
    }
    job.graph = fields.read(Fields::GRAPH, from, |from| from.name(Graph::new))?;
    if fields.has(Fields::TAGS) {
        job.tags = from.list(|from| from.name(Tag::new))?;
    }
    if fields.has(Fields::LABELS) {
        job.labels = read_labels(from)?;
    }
    job.unique = fields.read(Fields::UNIQUE, from, |from| from.name(UniqueKey::new))?;
    job.schedule = fields.read(Fields::SCHEDULE, from, |from| from.name(ScheduleId::new))?;
    job.name = fields.read(Fields::NAME, from, |from| from.name(JobName::new))?;
    Ok(())
}

pub(super) fn write_labels(out: &mut Writer<'_>, labels: &[(LabelKey, LabelValue)]) {
    out.length(labels.len());
    for (key, value) in labels {
        out.bytes(key.as_bytes());
        out.bytes(value.as_bytes());
    }
}

pub(super) fn read_labels(
    from: &mut Cursor<'_>,
) -> Result<Vec<(LabelKey, LabelValue)>, DecodeError> {
    from.list(|from| Ok((from.name(LabelKey::new)?, from.name(LabelValue::new)?)))
}

fn write_finished(out: &mut Writer<'_>, finished: &Finished, created_at: Timestamp) {
    write_outcome(out, finished.outcome);
    out.near(finished.at.0, created_at.0);
    out.number(finished.order);
    out.option(finished.result_bytes, Writer::number);
    out.option(finished.keep_until, |out, keep| {
        out.option(keep, |out, until| out.number(until.0));
    });
}

fn read_finished(from: &mut Cursor<'_>, created_at: Timestamp) -> Result<Finished, DecodeError> {
    Ok(Finished {
        outcome: read_outcome(from)?,
        at: Timestamp(from.near(created_at.0)?),
        order: from.number()?,
        result_bytes: from.option(Cursor::number)?,
        keep_until: from.option(|from| Ok(from.option(Cursor::number)?.map(Timestamp)))?,
    })
}

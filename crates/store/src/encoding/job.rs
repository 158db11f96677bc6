//! The job record. The fields that filters use come first, so that a listing need not decode the rest.

use ganger_types::{
    Finished, IdTag, JobId, JobKey, JobRecord, JobState, LabelKey, LabelValue, RetryPolicy, Tag,
    Timestamp,
};

use super::field::{Bits, Field, Form, Near, choice, fields};
use super::part::MADE_KEYS;
use super::{Cursor, DecodeError, Record, Writer};

/// The first fields of a job record, decoded without allocating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobHeader<'a> {
    /// The state as stored: never `Running`.
    pub state: JobState,
    /// The bytes of the namespace's name.
    pub namespace: &'a [u8],
    /// The bytes of the queue's name.
    pub queue: &'a [u8],
    /// The bytes of the kind's name.
    pub kind: &'a [u8],
    /// The time at which the job was enqueued.
    pub created_at: Timestamp,
}

impl<'a> JobHeader<'a> {
    /// Decodes the first fields of a stored job record.
    ///
    /// # Errors
    /// If the bytes are not a job record.
    pub fn of(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut from = Cursor::new(bytes, JobRecord::WHAT);
        from.version_of::<JobRecord>()?;
        Self::read(&mut from)
    }

    fn read(from: &mut Cursor<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            state: Field::take(from)?,
            namespace: from.bytes()?,
            queue: from.bytes()?,
            kind: from.bytes()?,
            created_at: Timestamp(from.origin()?),
        })
    }
}

/// The fields that most jobs do not have, in the order of their encoding, each with its bit. A bit keeps its meaning
/// forever; the bits missing here are the flags below and [`FINISHED`].
macro_rules! sparse_fields {
    ($then:ident!($($arguments:tt)*)) => {
        $then! { $($arguments)*;
            21 (inputs)
            3 (due)
            4 (deadline)
            5 (timeout)
            6 (retry)
            7 (attempt, attempts_counted, releases, lease_expirations)
            9 (failure)
            18 (progress)
            19 (last_report)
            16 (keep_succeeded)
            17 (keep_failed)
            8 (fingerprint as Bits)
            10 (graph)
            11 (tags)
            12 (labels)
            14 (unique)
            15 (schedule)
            22 (name)
        }
    };
}

const ID_IS_GIVEN: u64 = 1;
const ID_IS_WRITTEN: u64 = 1 << 1;
const AHEAD: u64 = 1 << 2;
const TRACKED: u64 = 1 << 13;
const FINISHED: u64 = 1 << 20;
const ALL: u64 = (1 << 23) - 1;

/// The bits of the present fields.
macro_rules! bits {
    ($job:ident; $($bit:literal ($($field:ident $(as $form:ident)?),*))*) => {
        [
            $((1_u64 << $bit, false $(|| !$job.$field.is_absent())*),)*
            (ID_IS_GIVEN, $job.id_is_given),
            (ID_IS_WRITTEN, !$job.id.is_made($job.key, $job.id_tag)),
            (AHEAD, $job.is_ahead),
            (TRACKED, $job.tracked),
            (FINISHED, $job.finished.is_some()),
        ]
        .iter()
        .filter(|(_, is_there)| *is_there)
        .map(|(bit, _)| bit)
        .sum::<u64>()
    };
}

/// Writes the present fields.
macro_rules! put {
    ($job:ident $bits:ident $out:ident; $($bit:literal ($($field:ident $(as $form:ident)?),*))*) => {
        $(if $bits & 1 << $bit != 0 {
            $(put!(@one $out, &$job.$field $(, $form)?);)*
        })*
    };
    (@one $out:ident, $field:expr) => { Sparse::put_present($field, $out) };
    (@one $out:ident, $field:expr, $form:ident) => { $form::put($field, $out) };
}

/// Reads the present fields into the record.
macro_rules! take {
    ($job:ident $bits:ident $from:ident; $($bit:literal ($($field:ident $(as $form:ident)?),*))*) => {
        $(if $bits & 1 << $bit != 0 {
            $($job.$field = take!(@one $from $(, $form)?);)*
        })*
    };
    (@one $from:ident) => { Sparse::take_present($from)? };
    (@one $from:ident, $form:ident) => { $form::take($from)? };
}

impl Record for JobRecord {
    const WHAT: &'static str = "job";

    fn write(&self, out: &mut Writer<'_>) {
        self.state.put(out);
        self.namespace.put(out);
        self.queue.put(out);
        self.kind.put(out);
        out.origin(self.created_at.0);
        let bits = sparse_fields!(bits!(self));
        bits.put(out);
        self.key.put(out);
        self.id_tag.put(out);
        if bits & ID_IS_WRITTEN != 0 {
            self.id.put(out);
        }
        self.priority.put(out);
        self.ready_at.put(out);
        self.payload_bytes.put(out);
        sparse_fields!(put!(self bits out));
        self.history.put(out);
        self.history_dropped.put(out);
        Sparse::put_present(&self.finished, out);
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let state = Field::take(from)?;
        let namespace = Field::take(from)?;
        let queue = Field::take(from)?;
        let kind = Field::take(from)?;
        let created_at = Timestamp(from.origin()?);
        let bits = from.number()?;
        if bits > ALL {
            return Err(from.error("has fields that this program does not know"));
        }
        let key = JobKey::take(from)?;
        let id_tag = IdTag::take(from)?;
        let id = read_id(key, id_tag, bits, from)?;
        let mut job = Self {
            id_tag,
            id_is_given: bits & ID_IS_GIVEN != 0,
            state,
            created_at,
            priority: Field::take(from)?,
            ready_at: Field::take(from)?,
            payload_bytes: Field::take(from)?,
            is_ahead: bits & AHEAD != 0,
            tracked: bits & TRACKED != 0,
            ..Self::new(key, id, namespace, queue, kind)
        };
        sparse_fields!(take!(job bits from));
        job.history = Field::take(from)?;
        job.history_dropped = Field::take(from)?;
        if bits & FINISHED != 0 {
            job.finished = Some(Field::take(from)?);
        }
        Ok(job)
    }
}

/// Reads the id, which is stored only if it does not follow from the number of the job.
fn read_id(
    key: JobKey,
    id_tag: IdTag,
    bits: u64,
    from: &mut Cursor<'_>,
) -> Result<JobId, DecodeError> {
    if bits & ID_IS_WRITTEN != 0 {
        Field::take(from)
    } else if key.0 < MADE_KEYS {
        Ok(JobId::made(key, id_tag))
    } else {
        Err(from.error("has a number too large for a made id"))
    }
}

choice!(JobState, "has an unknown state" {
    1 Blocked {}
    2 Scheduled {}
    3 Ready {}
    4 Running {}
    5 Succeeded {}
    6 Failed {}
    7 Cancelled {}
});

fields!(Finished { outcome, at as Near, order, result_bytes, keep_until });

/// A field that most jobs do not have.
trait Sparse: Sized {
    /// Whether the field need not be written.
    fn is_absent(&self) -> bool;

    /// Appends a present value.
    fn put_present(&self, out: &mut Writer<'_>);

    /// Reads a present value.
    fn take_present(from: &mut Cursor<'_>) -> Result<Self, DecodeError>;
}

impl<F: Field> Sparse for Option<F> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }

    fn put_present(&self, out: &mut Writer<'_>) {
        if let Some(field) = self {
            field.put(out);
        }
    }

    fn take_present(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        F::take(from).map(Some)
    }
}

/// Implements [`Sparse`] for types whose default counts as absent.
macro_rules! absent_by_default {
    ($($type:ty)*) => {$(
        impl Sparse for $type {
            fn is_absent(&self) -> bool {
                *self == Self::default()
            }

            fn put_present(&self, out: &mut Writer<'_>) {
                Field::put(self, out);
            }

            fn take_present(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
                Field::take(from)
            }
        }
    )*};
}

absent_by_default! { u32 u64 RetryPolicy Vec<Tag> Vec<(LabelKey, LabelValue)> }

#[cfg(any(test, feature = "suite"))]
impl super::any::Any for JobRecord {
    fn any() -> proptest::strategy::BoxedStrategy<Self> {
        use proptest::prelude::*;

        let jobs = super::any::any_struct!(@of JobRecord {
            key,
            id,
            id_tag,
            id_is_given,
            name,
            namespace,
            queue,
            kind,
            state,
            priority,
            created_at,
            ready_at,
            is_ahead,
            due,
            deadline,
            timeout,
            retry,
            attempt,
            attempts_counted,
            releases,
            lease_expirations,
            payload_bytes,
            inputs,
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
            finished
        });
        let with_ids = (jobs, any::<bool>()).prop_map(|(mut job, is_made)| {
            if is_made && job.key.0 < MADE_KEYS {
                job.id = JobId::made(job.key, job.id_tag);
            }
            job
        });
        with_ids.boxed()
    }
}

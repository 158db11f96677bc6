//! Inputs, unique keys, idempotency keys, and the shard's counters.

use ganger_types::change::UniqueRecord;
use ganger_types::{
    Bytes, Elapsed, InputRow, InputState, JobId, JobKey, Meta, Namespace, Position, Timestamp,
    UniqueKey,
};

use super::peer::{read_job_ref, write_job_ref};
use super::policy::{read_policy, write_policy};
use super::{Cursor, DecodeError, Record, Writer};

impl Record for InputRow {
    const WHAT: &'static str = "input";

    fn write(&self, out: &mut Writer<'_>) {
        out.number(self.job.0);
        out.number(u64::from(self.slot));
        match &self.state {
            InputState::Value(value) => {
                out.byte(1);
                out.bytes(value);
            }
            InputState::Missing {
                dependency,
                id,
                policy,
            } => {
                out.byte(2);
                out.number(dependency.0);
                out.bytes(id.as_bytes());
                write_policy(out, *policy);
            }
            InputState::Delivered {
                dependency,
                id,
                policy,
            } => {
                out.byte(3);
                out.number(dependency.0);
                out.bytes(id.as_bytes());
                write_policy(out, *policy);
            }
            InputState::Ignored { id } => {
                out.byte(4);
                out.bytes(id.as_bytes());
            }
            InputState::Remote {
                dependency,
                policy,
                is_member,
            } => {
                out.byte(5);
                write_job_ref(out, dependency);
                write_policy(out, *policy);
                out.flag(*is_member);
            }
            InputState::Received {
                dependency,
                policy,
                value,
            } => {
                out.byte(6);
                write_job_ref(out, dependency);
                write_policy(out, *policy);
                out.bytes(value);
            }
        }
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let job = JobKey(from.number()?);
        let slot = from.small()?;
        let state = match from.byte()? {
            1 => InputState::Value(Bytes::copy_from_slice(from.bytes()?)),
            2 => InputState::Missing {
                dependency: JobKey(from.number()?),
                id: from.name(JobId::new)?,
                policy: read_policy(from)?,
            },
            3 => InputState::Delivered {
                dependency: JobKey(from.number()?),
                id: from.name(JobId::new)?,
                policy: read_policy(from)?,
            },
            4 => InputState::Ignored {
                id: from.name(JobId::new)?,
            },
            5 => InputState::Remote {
                dependency: read_job_ref(from)?,
                policy: read_policy(from)?,
                is_member: from.flag()?,
            },
            6 => InputState::Received {
                dependency: read_job_ref(from)?,
                policy: read_policy(from)?,
                value: Bytes::copy_from_slice(from.bytes()?),
            },
            _ => return Err(from.error("has an unknown state")),
        };
        Ok(Self { job, slot, state })
    }
}

impl Record for UniqueRecord {
    const WHAT: &'static str = "unique key";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.namespace.as_bytes());
        out.bytes(self.key.as_bytes());
        out.number(self.job.0);
        out.bytes(self.id.as_bytes());
        out.option(self.until, |out, until| out.number(until.0));
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            namespace: from.name(Namespace::new)?,
            key: from.name(UniqueKey::new)?,
            job: JobKey(from.number()?),
            id: from.name(JobId::new)?,
            until: from.option(Cursor::number)?.map(Timestamp),
        })
    }
}

impl Record for Meta {
    const WHAT: &'static str = "counters";

    fn write(&self, out: &mut Writer<'_>) {
        out.number(self.next_key.0);
        out.number(self.next_order);
        out.number(self.next_event.0);
        out.number(self.elapsed.0);
        out.number(self.wall.0);
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            next_key: JobKey(from.number()?),
            next_order: from.number()?,
            next_event: Position(from.number()?),
            elapsed: Elapsed(from.number()?),
            wall: Timestamp(from.number()?),
        })
    }
}

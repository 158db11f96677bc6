//! Inputs, unique keys, idempotency keys, and the shard's counters.

use ganger_types::change::{ClaimRecord, UniqueRecord};
use ganger_types::{
    Bytes, ClaimKey, Elapsed, Graph, InputRow, InputState, JobId, JobKey, Meta, Namespace,
    Position, Timestamp, UniqueKey,
};

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
                upstream,
                id,
                policy,
            } => {
                out.byte(2);
                out.number(upstream.0);
                out.bytes(id.as_bytes());
                write_policy(out, *policy);
            }
            InputState::Delivered {
                upstream,
                id,
                policy,
            } => {
                out.byte(3);
                out.number(upstream.0);
                out.bytes(id.as_bytes());
                write_policy(out, *policy);
            }
            InputState::Ignored { id } => {
                out.byte(4);
                out.bytes(id.as_bytes());
            }
        }
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let job = JobKey(from.number()?);
        let slot = from.small()?;
        let state = match from.byte()? {
            1 => InputState::Value(Bytes::copy_from_slice(from.bytes()?)),
            2 => InputState::Missing {
                upstream: JobKey(from.number()?),
                id: from.name(JobId::new)?,
                policy: read_policy(from)?,
            },
            3 => InputState::Delivered {
                upstream: JobKey(from.number()?),
                id: from.name(JobId::new)?,
                policy: read_policy(from)?,
            },
            4 => InputState::Ignored {
                id: from.name(JobId::new)?,
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

impl Record for ClaimRecord {
    const WHAT: &'static str = "idempotency key";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.namespace.as_bytes());
        out.bytes(self.key.as_bytes());
        out.raw(&self.fingerprint.to_le_bytes());
        out.length(self.jobs.len());
        for (key, id) in &self.jobs {
            out.number(key.0);
            out.bytes(id.as_bytes());
        }
        out.option(self.graph.as_ref(), |out, graph| {
            out.bytes(graph.as_bytes());
        });
        out.number(self.until.0);
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            namespace: from.name(Namespace::new)?,
            key: from.name(ClaimKey::new)?,
            fingerprint: u64::from_le_bytes(
                from.raw(8)?.try_into().expect("eight bytes were taken"),
            ),
            jobs: from.list(|from| Ok((JobKey(from.number()?), from.name(JobId::new)?)))?,
            graph: from.option(|from| from.name(Graph::new))?,
            until: Timestamp(from.number()?),
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

//! Recurring schedules.

use ganger_types::{
    Bytes, CatchUp, JobId, Kind, Namespace, Overlap, Priority, Queue, ScheduleId, ScheduleRecord,
    ScheduleSpec, Tag, Timestamp,
};

use super::job::{read_labels, write_labels};
use super::policy::{read_retry, write_retry};
use super::{Cursor, DecodeError, Record, Writer};

impl Record for ScheduleRecord {
    const WHAT: &'static str = "schedule";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.namespace.as_bytes());
        out.bytes(self.id.as_bytes());
        write_spec(out, &self.spec);
        write_catch_up(out, self.catch_up);
        out.byte(match self.overlap {
            Overlap::Allow => 1,
            Overlap::Skip => 2,
            Overlap::Replace => 3,
        });
        out.flag(self.paused);
        out.bytes(self.queue.as_bytes());
        out.bytes(self.kind.as_bytes());
        out.bytes(&self.payload);
        out.signed(self.priority.millionths());
        out.option(self.retry.as_ref(), write_retry);
        out.option(self.timeout, Writer::duration);
        out.length(self.tags.len());
        self.tags.iter().for_each(|tag| out.bytes(tag.as_bytes()));
        write_labels(out, &self.labels);
        out.number(self.created_at.0);
        out.option(self.next_at, |out, at| out.number(at.0));
        out.number(self.runs);
        out.option(self.last_job.as_ref(), |out, id| out.bytes(id.as_bytes()));
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            namespace: from.name(Namespace::new)?,
            id: from.name(ScheduleId::new)?,
            spec: read_spec(from)?,
            catch_up: read_catch_up(from)?,
            overlap: match from.byte()? {
                1 => Overlap::Allow,
                2 => Overlap::Skip,
                3 => Overlap::Replace,
                _ => return Err(from.error("has an unknown rule for overlap")),
            },
            paused: from.flag()?,
            queue: from.name(Queue::new)?,
            kind: from.name(Kind::new)?,
            payload: Bytes::copy_from_slice(from.bytes()?),
            priority: Priority::from_millionths(from.signed()?),
            retry: from.option(read_retry)?,
            timeout: from.option(Cursor::duration)?,
            tags: from.list(|from| from.name(Tag::new))?,
            labels: read_labels(from)?,
            created_at: Timestamp(from.number()?),
            next_at: from.option(Cursor::number)?.map(Timestamp),
            runs: from.number()?,
            last_job: from.option(|from| from.name(JobId::new))?,
        })
    }
}

fn write_spec(out: &mut Writer<'_>, spec: &ScheduleSpec) {
    match spec {
        ScheduleSpec::Interval { every, first_at } => {
            out.byte(1);
            out.duration(*every);
            out.number(first_at.0);
        }
        ScheduleSpec::Cron {
            expression,
            time_zone,
        } => {
            out.byte(2);
            out.bytes(expression.as_bytes());
            out.bytes(time_zone.as_bytes());
        }
    }
}

fn read_spec(from: &mut Cursor<'_>) -> Result<ScheduleSpec, DecodeError> {
    match from.byte()? {
        1 => Ok(ScheduleSpec::Interval {
            every: from.duration()?,
            first_at: Timestamp(from.number()?),
        }),
        2 => Ok(ScheduleSpec::Cron {
            expression: from.text()?.to_owned(),
            time_zone: from.text()?.to_owned(),
        }),
        _ => Err(from.error("has an unknown kind of schedule")),
    }
}

fn write_catch_up(out: &mut Writer<'_>, catch_up: CatchUp) {
    match catch_up {
        CatchUp::None => out.byte(1),
        CatchUp::Last => out.byte(2),
        CatchUp::All { max } => {
            out.byte(3);
            out.number(u64::from(max));
        }
    }
}

fn read_catch_up(from: &mut Cursor<'_>) -> Result<CatchUp, DecodeError> {
    match from.byte()? {
        1 => Ok(CatchUp::None),
        2 => Ok(CatchUp::Last),
        3 => Ok(CatchUp::All { max: from.small()? }),
        _ => Err(from.error("has an unknown rule for catching up")),
    }
}

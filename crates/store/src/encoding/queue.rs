//! Queues and namespaces: settings and counters.

use ganger_types::limits::QUEUES_MAX;
use ganger_types::{
    Clock, DueOrder, Keep, Namespace, NamespaceRecord, NamespaceSettings, Queue, QueueRecord,
    QueueSettings, Retention, Timestamp,
};

use super::policy::{read_retry, write_retry};
use super::{Cursor, DecodeError, Record, Writer};

fn write_keep(out: &mut Writer<'_>, keep: Keep) {
    out.option(keep.age, Writer::duration);
    out.option(keep.count, Writer::number);
}

fn read_keep(from: &mut Cursor<'_>) -> Result<Keep, DecodeError> {
    Ok(Keep {
        age: from.option(Cursor::duration)?,
        count: from.option(Cursor::number)?,
    })
}

fn write_retention(out: &mut Writer<'_>, retention: &Retention) {
    write_keep(out, retention.succeeded);
    write_keep(out, retention.failed);
    write_keep(out, retention.cancelled);
}

fn read_retention(from: &mut Cursor<'_>) -> Result<Retention, DecodeError> {
    Ok(Retention {
        succeeded: read_keep(from)?,
        failed: read_keep(from)?,
        cancelled: read_keep(from)?,
    })
}

impl Record for QueueRecord {
    const WHAT: &'static str = "queue";

    fn write(&self, out: &mut Writer<'_>) {
        out.bytes(self.namespace.as_bytes());
        out.bytes(self.queue.as_bytes());
        out.number(self.created_at.0);
        out.flag(self.known);
        for count in [
            self.succeeded,
            self.failed,
            self.cancelled,
            self.enqueued_total,
            self.finished_total,
        ] {
            out.number(count);
        }
        let settings = &self.settings;
        out.flag(settings.paused);
        out.option(settings.running_max, |out, max| out.number(u64::from(max)));
        out.option(settings.live_max, Writer::number);
        out.option(settings.lease_for, Writer::duration);
        out.option(settings.grace_for, Writer::duration);
        out.option(settings.retry.as_ref(), write_retry);
        out.option(settings.retention.as_ref(), write_retention);
        out.flag(settings.due_order == DueOrder::Ahead);
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            namespace: from.name(Namespace::new)?,
            queue: from.name(Queue::new)?,
            created_at: Timestamp(from.number()?),
            known: from.flag()?,
            succeeded: from.number()?,
            failed: from.number()?,
            cancelled: from.number()?,
            enqueued_total: from.number()?,
            finished_total: from.number()?,
            settings: QueueSettings {
                paused: from.flag()?,
                running_max: from.option(Cursor::small)?,
                live_max: from.option(Cursor::number)?,
                lease_for: from.option(Cursor::duration)?,
                grace_for: from.option(Cursor::duration)?,
                retry: from.option(read_retry)?,
                retention: from.option(read_retention)?,
                due_order: if from.flag()? {
                    DueOrder::Ahead
                } else {
                    DueOrder::Behind
                },
            },
        })
    }
}

impl Record for NamespaceRecord {
    const WHAT: &'static str = "namespace";
    const VERSION: u8 = 2;

    fn write(&self, out: &mut Writer<'_>) {
        let settings = &self.settings;
        out.bytes(self.namespace.as_bytes());
        out.flag(settings.clock == Clock::Caller);
        out.duration(settings.lease_for);
        write_retry(out, &settings.retry);
        write_retention(out, &settings.retention);
        out.number(u64::from(settings.history_max));
        out.number(settings.payload_bytes_max);
        out.number(u64::from(settings.lease_expirations_in_a_row_max));
        out.option(settings.live_max, Writer::number);
        out.number(settings.queues_max);
    }

    fn read(version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            namespace: from.name(Namespace::new)?,
            settings: NamespaceSettings {
                clock: if from.flag()? {
                    Clock::Caller
                } else {
                    Clock::Server
                },
                lease_for: from.duration()?,
                retry: read_retry(from)?,
                retention: read_retention(from)?,
                history_max: from.small()?,
                payload_bytes_max: from.number()?,
                lease_expirations_in_a_row_max: from.small()?,
                live_max: from.option(Cursor::number)?,
                // The first version had no such limit.
                queues_max: if version >= 2 {
                    from.number()?
                } else {
                    QUEUES_MAX
                },
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_of_the_first_version_has_the_default_limit_of_queues() {
        let record = NamespaceRecord {
            namespace: Namespace::from_static("n"),
            settings: NamespaceSettings::default(),
        };
        let mut bytes = Vec::new();
        record.write(&mut Writer::new(&mut bytes));
        let limit = {
            let mut limit = Vec::new();
            Writer::new(&mut limit).number(QUEUES_MAX);
            limit.len()
        };
        let old = &bytes[..bytes.len() - limit];
        let read = NamespaceRecord::read(1, &mut Cursor::new(old, NamespaceRecord::WHAT));
        assert_eq!(read.expect("it reads"), record);
    }
}

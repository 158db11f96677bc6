//! Queues and namespaces: settings and counters.

use ganger_types::limits::QUEUES_MAX;
use ganger_types::{
    Clock, DueOrder, Keep, NamespaceRecord, NamespaceSettings, QueueRecord, QueueSettings,
    Retention,
};

use super::field::{choice, fields, record};

record!("queue", version 2, QueueRecord {
    namespace,
    queue,
    created_at,
    known,
    succeeded,
    failed,
    cancelled,
    enqueued_total,
    finished_total,
    settings,
});

fields!(QueueSettings {
    paused,
    running_max,
    live_max,
    lease_for,
    grace_for,
    retry,
    retention,
    due_order,
    alert_age since 2 or None,
});

choice!(DueOrder, "has an unknown order of due jobs" {
    0 Behind {}
    1 Ahead {}
});

fields!(Retention {
    succeeded,
    failed,
    cancelled
});

fields!(Keep { age, count });

record!("namespace", version 2, NamespaceRecord { namespace, settings });

fields!(NamespaceSettings {
    clock,
    lease_for,
    retry,
    retention,
    history_max,
    payload_bytes_max,
    lease_expirations_in_a_row_max,
    live_max,
    queues_max since 2 or QUEUES_MAX,
});

choice!(Clock, "has an unknown clock" {
    0 Server {}
    1 Caller {}
});

#[cfg(test)]
mod tests {
    use ganger_types::{Namespace, Queue, Timestamp};

    use super::super::{Cursor, Record, Writer};
    use super::*;

    #[test]
    fn a_queue_of_the_first_version_has_the_default_age_that_needs_attention() {
        let record = QueueRecord {
            namespace: Namespace::from_static("n"),
            queue: Queue::from_static("q"),
            created_at: Timestamp(7),
            known: true,
            settings: QueueSettings {
                paused: true,
                ..QueueSettings::default()
            },
            succeeded: 1,
            failed: 2,
            cancelled: 3,
            enqueued_total: 9,
            finished_total: 6,
        };
        let mut bytes = Vec::new();
        record.write(&mut Writer::new(&mut bytes));
        // The missing age is the last byte of the record.
        let old = &bytes[..bytes.len() - 1];
        let mut from = Cursor::new(old, QueueRecord::WHAT);
        let read = from.in_version(1, QueueRecord::read);
        assert_eq!(read.expect("it reads"), record);
    }

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
        let mut from = Cursor::new(old, NamespaceRecord::WHAT);
        let read = from.in_version(1, NamespaceRecord::read);
        assert_eq!(read.expect("it reads"), record);
    }
}

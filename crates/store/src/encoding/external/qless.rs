//! Rows of qless. Numbers from clients are stored bit by bit.

use std::sync::Arc;

use ganger_types::QlessKey;
use ganger_types::qless::{
    QlessFailure, QlessHistoryEntry, QlessJob, QlessLease, QlessPlace, QlessQueue, QlessRecurring,
    QlessRow, QlessSample, QlessSet, QlessState, QlessStatistics, QlessTag, QlessThrottle,
    QlessTime,
};

use crate::encoding::field::{Field, choice, fields};
use crate::encoding::{Cursor, DecodeError, Record, Writer};

// Kinds of rows, in the bytes of the row and of its key.
const JOB: u8 = 1;
const RECURRING: u8 = 2;
const QUEUE: u8 = 3;
const WORKER: u8 = 4;
const SETTING: u8 = 5;
const TAG_COUNT: u8 = 6;
const TRACKED: u8 = 7;
const STATISTICS: u8 = 8;
const THROTTLE: u8 = 9;

impl Record for QlessRow {
    const WHAT: &'static str = "qless";
    /// Since version 2 a job has the number of its hand-outs and may have a lease; since version 3 it has a number
    /// and may have a result.
    const VERSION: u8 = 3;

    fn write(&self, out: &mut Writer<'_>) {
        self.put(out);
    }

    fn read(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Self::take(from)
    }
}

choice!(QlessRow, "is of a kind that this program does not know" {
    JOB Job(job)
    RECURRING Recurring(job)
    QUEUE Queue(queue)
    WORKER Worker(name, seen_at)
    SETTING Setting(option, value)
    TAG_COUNT TagCount(tag, count)
    TRACKED Tracked(jid, since)
    STATISTICS Statistics(statistics)
    THROTTLE Throttle(throttle)
});

choice!(QlessKey, "names a row of a kind that this program does not know" {
    JOB Job { jid, number }
    RECURRING Recurring(jid)
    QUEUE Queue(name)
    WORKER Worker(name)
    SETTING Setting(option)
    TAG_COUNT TagCount(tag)
    TRACKED Tracked(jid)
    STATISTICS Statistics(queue, day)
    THROTTLE Throttle(id)
});

fields!(QlessJob {
    jid,
    klass,
    data,
    state,
    queue,
    worker,
    priority,
    expires,
    retries,
    remaining,
    tags,
    tagged,
    failure,
    spawned_from,
    history,
    dependencies,
    dependents,
    time,
    is_warned,
    scheduled,
    place,
    listed,
    completed_at,
    failed_order,
    throttles,
    holds,
    pending,
    throttled,
    handed_out since 2 or 0,
    lease since 2 or None,
    result since 3 or None,
    // The store gives a number to jobs that have none.
    number since 3 or 0,
});

fields!(QlessRecurring {
    jid,
    klass,
    data,
    queue,
    priority,
    retries,
    interval,
    backlog,
    count,
    tags,
    next_at,
    throttles,
});

fields!(QlessLease {
    token,
    request,
    report
});

fields!(QlessQueue {
    name,
    seen_at,
    is_paused
});

fields!(QlessThrottle {
    id,
    maximum,
    ends_at
});

fields!(QlessStatistics {
    queue,
    day,
    failed,
    failures,
    retries,
    wait,
    run
});

fields!(QlessSample {
    total,
    mean,
    vk,
    bins
});

fields!(QlessPlace { queue, set, rank, at } checked by check_place);

/// Refuses a place in a set that holds no jobs.
fn check_place(place: &QlessPlace) -> Result<(), &'static str> {
    match place.set {
        QlessSet::Work | QlessSet::Locks | QlessSet::Scheduled | QlessSet::Depends => Ok(()),
        QlessSet::Recur | QlessSet::Throttled => Err("has a place where no job lines up"),
    }
}

fields!(QlessFailure {
    group,
    message,
    when,
    worker
});

fields!(QlessHistoryEntry { what, when, extra });

choice!(QlessTag, "has a tag that is neither text nor number" {
    0 Text(text)
    1 Number(number)
});

choice!(QlessState, "has a state that this program does not know" {
    1 Waiting {}
    2 Scheduled {}
    3 Depends {}
    4 Running {}
    5 Stalled {}
    6 Failed {}
    7 Complete {}
    8 Throttled {}
});

choice!(QlessSet, "has a set that this program does not know" {
    1 Work {}
    2 Locks {}
    3 Scheduled {}
    4 Depends {}
    5 Recur {}
    6 Throttled {}
});

/// Fields that are shared or boxed in memory; the encoding is that of the value.
macro_rules! pointers {
    ($($pointer:ident<$part:ident>)*) => {$(
        impl Field for $pointer<$part> {
            fn put(&self, out: &mut Writer<'_>) {
                (**self).put(out);
            }

            fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
                $part::take(from).map(Self::new)
            }
        }
    )*};
}

impl Field for QlessTime {
    fn put(&self, out: &mut Writer<'_>) {
        out.float(self.seconds());
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        from.float().map(Self::new)
    }
}

#[cfg(any(test, feature = "suite"))]
impl crate::encoding::any::Any for QlessTime {
    fn any() -> proptest::strategy::BoxedStrategy<Self> {
        use proptest::strategy::Strategy;

        <f64 as crate::encoding::any::Any>::any()
            .prop_map(Self::new)
            .boxed()
    }
}

pointers! { Arc<QlessJob> Box<QlessRecurring> Box<QlessStatistics> }

#[cfg(any(test, feature = "suite"))]
impl crate::encoding::any::Any for Arc<QlessJob> {
    fn any() -> proptest::strategy::BoxedStrategy<Self> {
        use proptest::strategy::Strategy;

        <QlessJob as crate::encoding::any::Any>::any()
            .prop_map(Self::new)
            .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::{decode, encode};

    /// A job as version 1 wrote it: `a` of class `k`, data `{}`, waiting in `q`, and 58 bytes of default values.
    fn old() -> Vec<u8> {
        let mut row = vec![1, JOB, 1, b'a', 1, b'k', 2, b'{', b'}', 1, 1, b'q'];
        row.resize(70, 0);
        row
    }

    /// Decodes a job of an old version, and checks that the new fields come last.
    fn read_old(row: &[u8]) -> QlessJob {
        let read: QlessRow = decode(row).expect("it reads");
        let mut new = encode(&read);
        new.truncate(row.len());
        new[0] = row[0];
        assert_eq!(new, row, "what is new comes last");
        let QlessRow::Job(job) = read else {
            panic!("not a job: {read:?}");
        };
        assert_eq!((&job.jid[..], &job.queue[..]), (&b"a"[..], &b"q"[..]));
        QlessJob::clone(&job)
    }

    #[test]
    fn a_job_of_version_1_was_handed_out_to_nobody_of_ours() {
        let job = read_old(&old());
        assert_eq!((job.handed_out, job.lease), (0, None));
    }

    #[test]
    fn a_job_of_version_2_has_no_result_and_no_number() {
        let mut row = old();
        row[0] = 2;
        // Handed out three times, without a lease.
        row.extend([3, 0]);
        let job = read_old(&row);
        assert_eq!((job.handed_out, job.lease, job.result), (3, None, None));
        assert_eq!(job.number, 0);
    }
}

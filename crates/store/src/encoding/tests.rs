//! Every record reads back as it was written, and no bytes make a reader panic.

use std::fmt::Debug;

use ganger_types::change::UniqueRecord;
use ganger_types::command::Enqueue;
use ganger_types::{
    Commit, Dependent, ElementRecord, IdempotencyRecord, InputRow, JobRecord, KeyRecord,
    LeaseRecord, Meta, NamespaceRecord, OutboxRecord, Part, PartRecord, PeerRecord, QlessRow,
    QueueRecord, ScheduleRecord, StatisticsRecord,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::arbitrary::{
    idempotency_record, job, lease, meta, namespace, queue, schedule, statistics, unique,
};
use super::arbitrary_commit::commit;
use super::arbitrary_qless::qless;
use super::arbitrary_shards::{
    dependent, element, input, outbox, part, part_record, peer, raw_key, submission,
};
use super::{Glance, Record, decode, encode};

/// Reads back, is refused when cut short anywhere, and does not panic with a byte changed.
fn holds<R: Record + PartialEq + Debug>(record: &R, flip: (usize, u8)) {
    let mut bytes = encode(record);
    assert_eq!(decode::<R>(&bytes).as_ref(), Ok(record));
    let cut = flip.0 % bytes.len();
    assert!(
        decode::<R>(&bytes[..cut]).is_err(),
        "cut at {cut} of {}",
        bytes.len()
    );
    bytes[cut] ^= flip.1;
    let _ = decode::<R>(&bytes);
    bytes[0] = R::VERSION + 1;
    assert!(decode::<R>(&bytes).is_err(), "a version yet to come");
}

macro_rules! read_back {
    ($($case:ident: $strategy:ident;)*) => {
        proptest! {$(
            #[test]
            fn $case(record in $strategy(), flip in any::<(usize, u8)>()) {
                holds(&record, flip);
            }
        )*}
    };
}

read_back! {
    jobs_read_back: job;
    leases_read_back: lease;
    queues_read_back: queue;
    namespaces_read_back: namespace;
    schedules_read_back: schedule;
    statistics_read_back: statistics;
    inputs_read_back: input;
    unique_keys_read_back: unique;
    idempotency_keys_read_back: idempotency_record;
    counters_read_back: meta;
    peers_read_back: peer;
    messages_read_back: outbox;
    dependents_read_back: dependent;
    part_records_read_back: part_record;
    parts_with_their_jobs_read_back: part;
    submissions_read_back: submission;
    raw_keys_read_back: raw_key;
    elements_read_back: element;
    rows_of_qless_read_back: qless;
    commits_read_back: commit;
}

proptest! {
    #[test]
    fn a_glance_sees_what_the_record_says(job in job()) {
        let bytes = encode(&job);
        let front = Glance::of(&bytes).expect("it is a job");
        prop_assert_eq!(front.state, job.state);
        prop_assert_eq!(front.namespace, job.namespace.as_bytes());
        prop_assert_eq!(front.queue, job.queue.as_bytes());
        prop_assert_eq!(front.kind, job.kind.as_bytes());
        prop_assert_eq!(front.created_at, job.created_at);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..300)) {
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        let _ = Glance::of(&bytes);
        let _ = decode::<JobRecord>(&bytes);
        let _ = decode::<LeaseRecord>(&bytes);
        let _ = decode::<QueueRecord>(&bytes);
        let _ = decode::<NamespaceRecord>(&bytes);
        let _ = decode::<ScheduleRecord>(&bytes);
        let _ = decode::<StatisticsRecord>(&bytes);
        let _ = decode::<InputRow>(&bytes);
        let _ = decode::<UniqueRecord>(&bytes);
        let _ = decode::<IdempotencyRecord>(&bytes);
        let _ = decode::<Meta>(&bytes);
        let _ = decode::<PeerRecord>(&bytes);
        let _ = decode::<OutboxRecord>(&bytes);
        let _ = decode::<Dependent>(&bytes);
        let _ = decode::<PartRecord>(&bytes);
        let _ = decode::<Part>(&bytes);
        let _ = decode::<Enqueue>(&bytes);
        let _ = decode::<KeyRecord>(&bytes);
        let _ = decode::<ElementRecord>(&bytes);
        let _ = decode::<QlessRow>(&bytes);
        let _ = decode::<Commit>(&bytes);
    }
}

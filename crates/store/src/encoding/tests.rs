//! Every record decodes to what was encoded, and no bytes make a decoder panic.

use std::fmt::Debug;

use ganger_types::change::UniqueRecord;
use ganger_types::command::Enqueue;
use ganger_types::{
    AuditRecord, Commit, Dependent, ElementRecord, IdempotencyRecord, InputRow, JobRecord,
    KeyRecord, LeaseRecord, Meta, NamespaceRecord, OperationRecord, OutboxRecord, Part, PartRecord,
    PeerRecord, QlessRow, QueueRecord, ScheduleRecord, StatisticsRecord,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::any::Any;
use super::{JobHeader, Record, decode, encode};

/// Checks that the record decodes, that every truncation is refused, and that a changed byte does not cause a panic.
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
    ($($case:ident: $record:ident;)*) => {
        proptest! {$(
            #[test]
            fn $case(record in $record::any(), flip in any::<(usize, u8)>()) {
                holds(&record, flip);
            }
        )*}
    };
}

read_back! {
    jobs_read_back: JobRecord;
    leases_read_back: LeaseRecord;
    queues_read_back: QueueRecord;
    namespaces_read_back: NamespaceRecord;
    schedules_read_back: ScheduleRecord;
    statistics_read_back: StatisticsRecord;
    inputs_read_back: InputRow;
    unique_keys_read_back: UniqueRecord;
    idempotency_keys_read_back: IdempotencyRecord;
    counters_read_back: Meta;
    peers_read_back: PeerRecord;
    messages_read_back: OutboxRecord;
    dependents_read_back: Dependent;
    part_records_read_back: PartRecord;
    parts_with_their_jobs_read_back: Part;
    submissions_read_back: Enqueue;
    raw_keys_read_back: KeyRecord;
    elements_read_back: ElementRecord;
    rows_of_qless_read_back: QlessRow;
    operations_read_back: OperationRecord;
    audit_records_read_back: AuditRecord;
    commits_read_back: Commit;
}

proptest! {
    #[test]
    fn a_header_has_the_same_fields_as_the_record(job in JobRecord::any()) {
        let bytes = encode(&job);
        let front = JobHeader::of(&bytes).expect("it is a job");
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
        let _ = JobHeader::of(&bytes);
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
        let _ = decode::<OperationRecord>(&bytes);
        let _ = decode::<AuditRecord>(&bytes);
        let _ = decode::<Commit>(&bytes);
    }
}

/// Records as the first program with format 7 wrote them: type, bytes in hexadecimal, and decoded value.
const FORMAT_7: &str = include_str!("format7.txt");

fn reads<R: Record + Debug>(bytes: &[u8], shown: &str) {
    let record: R = decode(bytes).expect("records of format 7 are read");
    assert_eq!(format!("{record:?}"), shown, "{}", R::WHAT);
    // A record of an earlier version is written in the newest one.
    if bytes.first() == Some(&R::VERSION) {
        assert_eq!(encode(&record), bytes, "{}", R::WHAT);
    }
}

#[test]
fn the_bytes_of_format_7_mean_what_they_meant() {
    let byte = |hex: &str| u8::from_str_radix(hex, 16).expect("two digits");
    for line in FORMAT_7.lines() {
        let (name, rest) = line.split_once(' ').expect("a type");
        let (hex, shown) = rest.split_once(' ').expect("bytes");
        let places = (0..hex.len()).step_by(2);
        let bytes: Vec<u8> = places.map(|at| byte(&hex[at..at + 2])).collect();
        let read = match name {
            "JobRecord" => reads::<JobRecord>,
            "LeaseRecord" => reads::<LeaseRecord>,
            "QueueRecord" => reads::<QueueRecord>,
            "NamespaceRecord" => reads::<NamespaceRecord>,
            "ScheduleRecord" => reads::<ScheduleRecord>,
            "StatisticsRecord" => reads::<StatisticsRecord>,
            "InputRow" => reads::<InputRow>,
            "UniqueRecord" => reads::<UniqueRecord>,
            "IdempotencyRecord" => reads::<IdempotencyRecord>,
            "Meta" => reads::<Meta>,
            "PeerRecord" => reads::<PeerRecord>,
            "OutboxRecord" => reads::<OutboxRecord>,
            "Dependent" => reads::<Dependent>,
            "PartRecord" => reads::<PartRecord>,
            "Part" => reads::<Part>,
            "Enqueue" => reads::<Enqueue>,
            "KeyRecord" => reads::<KeyRecord>,
            "ElementRecord" => reads::<ElementRecord>,
            "QlessRow" => reads::<QlessRow>,
            "Commit" => reads::<Commit>,
            other => panic!("no record is called {other}"),
        };
        read(&bytes, shown);
    }
}

//! Stored records: any bytes are refused or decoded, and a decoded record survives a round trip.

use ganger_store::encoding::{Record, decode, encode};
use ganger_types::IdempotencyRecord;
use ganger_types::change::UniqueRecord;
use ganger_types::job::LeaseRecord;
use ganger_types::{
    InputRow, JobRecord, Meta, NamespaceRecord, QueueRecord, ScheduleRecord, StatisticsRecord,
};

/// Decodes the bytes after the first, which chooses the kind of record.
///
/// # Panics
/// If a decoded record differs after it was encoded and decoded again.
pub fn run(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else {
        return;
    };
    match choice % 10 {
        0 => check::<JobRecord>(bytes),
        1 => check::<LeaseRecord>(bytes),
        2 => check::<InputRow>(bytes),
        3 => check::<QueueRecord>(bytes),
        4 => check::<NamespaceRecord>(bytes),
        5 => check::<ScheduleRecord>(bytes),
        6 => check::<StatisticsRecord>(bytes),
        7 => check::<UniqueRecord>(bytes),
        8 => check::<IdempotencyRecord>(bytes),
        _ => check::<Meta>(bytes),
    }
}

/// Returns records that an engine wrote.
pub fn seeds() -> Vec<Vec<u8>> {
    crate::record_seeds::seeds()
}

/// Compares encoded forms, because a record may contain NaN.
fn check<R: Record>(bytes: &[u8]) {
    if let Ok(record) = decode::<R>(bytes) {
        let written = encode(&record);
        let again = decode::<R>(&written)
            .unwrap_or_else(|error| panic!("{} cannot be read back: {error}", R::WHAT));
        assert_eq!(
            encode(&again),
            written,
            "{} differs after it was read back",
            R::WHAT
        );
    }
}

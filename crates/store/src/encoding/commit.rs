//! Commits, as the turn log stores them.
//!
//! A commit is its epoch, its sequence, the counters after it, and its changes in order. A change is the number of
//! its kind and its fields, one after the other; a record among them has its version before it, as in a row of its
//! own. The encoder writes directly to the output buffer, without copies in between.

use ganger_types::{Change, Commit, Meta};

use super::Record;
use super::field::{Versioned, choice, fields, record};

// The counters have no version of their own: it is that of the commit.
const _: () = assert!(Meta::VERSION == 1, "raise the version of `Commit` too");

record!("commit", version 1, Commit { epoch, sequence, meta, changes });

// A number keeps its meaning and its fields forever; a new kind of change takes the next number. Those of external
// systems are in `external`.
choice!(Change, "has a change that this program does not know" {
    1 PutJob(record)
    2 PutPayload { key, payload }
    3 PutInput(row as Versioned)
    4 RemoveInput { job, slot }
    5 PutLease(record)
    6 RemoveLease(key)
    7 FinishJob { record, result }
    8 PutFinished(record)
    9 RetryJob(key)
    10 RemoveJob(key)
    11 AppendLog { key, attempt, offset, at, bytes }
    12 PutQueue(record)
    13 RemoveQueue(namespace, queue)
    14 PutNamespace(record)
    15 PutSchedule(record)
    16 RemoveSchedule(namespace, schedule)
    17 PutUnique(record)
    18 RemoveUnique(namespace, key)
    19 PutIdempotencyRecord(record)
    20 RemoveIdempotencyRecord(namespace, key)
    21 PutTagCount(namespace, tag, count)
    22 PutGroupCount(namespace, group, count)
    23 PutTracked(namespace, id, since)
    24 PutStatistics(record)
    25 PutOutbox(record)
    26 RemoveOutbox(to, number)
    27 PutPeer(record)
    28 PutPart(record)
    29 RemovePart(namespace, graph)
    30 PutPartJobs(part)
    31 RemovePartJobs(namespace, graph)
    32 PutDependent(dependency, dependent)
    33 RemoveDependent(dependency, shard, key, slot)
    40 PutOperation(record)
    41 RemoveOperation(number)
    42 PutAudit(record)
    43 RemoveAudit(number)
} inside 34..=39 => External);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ganger_types::{
        Bytes, Elapsed, Epoch, ExternalChange, JobKey, Namespace, Position, QlessKey, Timestamp,
    };
    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    use super::super::any::Any;
    use super::super::external;
    use super::super::field::Field;
    use super::super::{Cursor, Writer, decode, encode};
    use super::*;

    const UNKNOWN: &str = "has a change that this program does not know";

    /// The numbers a second time, because a changed number in the list above would break existing logs.
    fn number(change: &Change) -> u8 {
        match change {
            Change::PutJob(..) => 1,
            Change::PutPayload { .. } => 2,
            Change::PutInput(..) => 3,
            Change::RemoveInput { .. } => 4,
            Change::PutLease(..) => 5,
            Change::RemoveLease(..) => 6,
            Change::FinishJob { .. } => 7,
            Change::PutFinished(..) => 8,
            Change::RetryJob(..) => 9,
            Change::RemoveJob(..) => 10,
            Change::AppendLog { .. } => 11,
            Change::PutQueue(..) => 12,
            Change::RemoveQueue(..) => 13,
            Change::PutNamespace(..) => 14,
            Change::PutSchedule(..) => 15,
            Change::RemoveSchedule(..) => 16,
            Change::PutUnique(..) => 17,
            Change::RemoveUnique(..) => 18,
            Change::PutIdempotencyRecord(..) => 19,
            Change::RemoveIdempotencyRecord(..) => 20,
            Change::PutTagCount(..) => 21,
            Change::PutGroupCount(..) => 22,
            Change::PutTracked(..) => 23,
            Change::PutStatistics(..) => 24,
            Change::PutOutbox(..) => 25,
            Change::RemoveOutbox(..) => 26,
            Change::PutPeer(..) => 27,
            Change::PutPart(..) => 28,
            Change::RemovePart(..) => 29,
            Change::PutPartJobs(..) => 30,
            Change::RemovePartJobs(..) => 31,
            Change::PutDependent(..) => 32,
            Change::RemoveDependent(..) => 33,
            Change::PutOperation(..) => 40,
            Change::RemoveOperation(..) => 41,
            Change::PutAudit(..) => 42,
            Change::RemoveAudit(..) => 43,
            Change::External(change) => external::number(change),
        }
    }

    /// The numbers that the decoder knows.
    fn known() -> BTreeSet<u8> {
        let is_known = |number: &u8| {
            let read = Change::take(&mut Cursor::new(&[*number], Commit::WHAT));
            read.expect_err("no change is without fields").why != UNKNOWN
        };
        (0..=u8::MAX).filter(is_known).collect()
    }

    #[test]
    fn every_kind_of_change_is_tried_and_has_its_number() {
        let mut runner = TestRunner::deterministic();
        let (changes, mut tried) = (Change::any(), BTreeSet::new());
        for _ in 0..2_000 {
            let change = changes
                .new_tree(&mut runner)
                .expect("any will do")
                .current();
            let mut out = Vec::new();
            change.put(&mut Writer::new(&mut out));
            assert_eq!(out[0], number(&change), "{change:?}");
            tried.insert(out[0]);
        }
        assert_eq!(tried, known());
        assert!(known().into_iter().eq(1..=43), "{:?}", known());
    }

    /// Epoch 1, sequence 2, counters 3 to 7, no changes.
    fn plain() -> Commit {
        Commit {
            epoch: Epoch(1),
            sequence: 2,
            meta: Meta {
                next_key: JobKey(3),
                next_order: 4,
                next_event: Position(5),
                elapsed: Elapsed(6),
                wall: Timestamp(7),
            },
            changes: Vec::new(),
        }
    }

    #[test]
    fn the_bytes_are_those_that_were_agreed_on() {
        let mut commit = plain();
        assert_eq!(encode(&commit), [1, 1, 2, 3, 4, 5, 6, 7, 0]);
        let namespace = Namespace::from_static("n");
        let key = QlessKey::Job {
            number: 9,
            jid: Bytes::from_static(b"j"),
        };
        commit.changes = vec![
            Change::RemoveLease(JobKey(300)),
            Change::External(ExternalChange::RemoveQless(namespace, key)),
        ];
        let changes = [6, 0xac, 2, 39, 1, b'n', 1, 1, b'j', 9];
        let whole = [&[1, 1, 2, 3, 4, 5, 6, 7, 2][..], &changes].concat();
        assert_eq!(encode(&commit), whole);
    }

    #[test]
    fn more_changes_than_bytes_are_refused_before_room_is_made_for_them() {
        let mut bytes = encode(&plain());
        bytes.pop();
        Writer::new(&mut bytes).number(u64::MAX >> 1);
        let error = decode::<Commit>(&bytes).expect_err("there are none");
        assert_eq!(error.why, "has a list longer than itself");
    }

    #[test]
    fn a_fault_within_a_record_names_that_record() {
        let mut bytes = encode(&plain());
        bytes.pop();
        // A change that writes a job with a newer version.
        bytes.extend([1, 1, u8::MAX]);
        let error = decode::<Commit>(&bytes).expect_err("nobody knows that version");
        assert_eq!((error.what, error.offset), ("job", bytes.len()));
    }

    proptest! {
        #[test]
        fn no_cut_and_no_changed_byte_makes_the_reader_panic(
            commit in Commit::any(),
            flip in 1..=u8::MAX,
        ) {
            let mut bytes = encode(&commit);
            for place in 0..bytes.len() {
                prop_assert!(decode::<Commit>(&bytes[..place]).is_err(), "cut at {}", place);
                bytes[place] ^= flip;
                let _ = decode::<Commit>(&bytes);
                bytes[place] ^= flip;
            }
            prop_assert_eq!(decode::<Commit>(&bytes), Ok(commit));
        }
    }
}

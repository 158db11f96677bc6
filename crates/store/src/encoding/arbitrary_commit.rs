//! Any change and any commit, for the property tests.

use ganger_types::{
    Change, Commit, Epoch, Graph, Group, IdempotencyKey, JobId, Namespace, Queue, ScheduleId, Tag,
    UniqueKey,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Union;

use super::arbitrary::{
    bytes, idempotency_record, job, key, lease, meta, name, namespace, queue, schedule, statistics,
    unique, wall,
};
use super::arbitrary_qless::qless;
use super::arbitrary_shards::{
    dependent, element, input, outbox, part, part_record, peer, raw_key, shard,
};

/// Changes made of a value and of nothing else.
fn of<S: Strategy + 'static>(
    values: S,
    change: impl Fn(S::Value) -> Change + 'static,
) -> BoxedStrategy<Change> {
    values.prop_map(change).boxed()
}

/// Changes made of a record.
fn put<S: Strategy + 'static>(
    records: S,
    change: impl Fn(Box<S::Value>) -> Change + 'static,
) -> BoxedStrategy<Change> {
    of(records.prop_map(Box::new), change)
}

/// Of jobs, their leases, inputs and logs.
fn about_jobs() -> Vec<BoxedStrategy<Change>> {
    let log = (key(), any::<u32>(), any::<u64>(), wall(), bytes());
    vec![
        put(job(), Change::PutJob),
        of((key(), bytes()), |(key, payload)| Change::PutPayload {
            key,
            payload,
        }),
        of(input(), Change::PutInput),
        of((key(), any::<u32>()), |(job, slot)| Change::RemoveInput {
            job,
            slot,
        }),
        put(lease(), Change::PutLease),
        of(key(), Change::RemoveLease),
        of((job(), option::of(bytes())), |(job, result)| {
            let record = Box::new(job);
            Change::FinishJob { record, result }
        }),
        put(job(), Change::PutFinished),
        of(key(), Change::RetryJob),
        of(key(), Change::RemoveJob),
        of(log, |(key, attempt, offset, at, bytes)| Change::AppendLog {
            key,
            attempt,
            offset,
            at,
            bytes,
        }),
    ]
}

/// Of what a namespace has besides jobs.
fn about_namespaces() -> Vec<BoxedStrategy<Change>> {
    let of_namespace = || name(Namespace::new);
    vec![
        put(queue(), Change::PutQueue),
        of((of_namespace(), name(Queue::new)), |(namespace, queue)| {
            Change::RemoveQueue(namespace, queue)
        }),
        put(namespace(), Change::PutNamespace),
        put(schedule(), Change::PutSchedule),
        of(
            (of_namespace(), name(ScheduleId::new)),
            |(namespace, id)| Change::RemoveSchedule(namespace, id),
        ),
        put(unique(), Change::PutUnique),
        of(
            (of_namespace(), name(UniqueKey::new)),
            |(namespace, key)| Change::RemoveUnique(namespace, key),
        ),
        put(idempotency_record(), Change::PutIdempotencyRecord),
        of(
            (of_namespace(), name(IdempotencyKey::new)),
            |(namespace, key)| Change::RemoveIdempotencyRecord(namespace, key),
        ),
        of(
            (of_namespace(), name(Tag::new), any::<u64>()),
            |(namespace, tag, count)| Change::PutTagCount(namespace, tag, count),
        ),
        of(
            (of_namespace(), name(Group::new), any::<u64>()),
            |(namespace, group, count)| Change::PutGroupCount(namespace, group, count),
        ),
        of(
            (of_namespace(), name(JobId::new), option::of(wall())),
            |(namespace, id, since)| Change::PutTracked(namespace, id, since),
        ),
        put(statistics(), Change::PutStatistics),
    ]
}

/// Of other shards.
fn about_shards() -> Vec<BoxedStrategy<Change>> {
    let graph = || (name(Namespace::new), name(Graph::new));
    vec![
        put(outbox(), Change::PutOutbox),
        of((shard(), any::<u64>()), |(to, number)| {
            Change::RemoveOutbox(to, number)
        }),
        put(peer(), Change::PutPeer),
        put(part_record(), Change::PutPart),
        of(graph(), |(namespace, graph)| {
            Change::RemovePart(namespace, graph)
        }),
        put(part(), Change::PutPartJobs),
        of(graph(), |(namespace, graph)| {
            Change::RemovePartJobs(namespace, graph)
        }),
        of((key(), dependent()), |(dependency, dependent)| {
            Change::PutDependent(dependency, Box::new(dependent))
        }),
        of(
            (key(), shard(), key(), any::<u32>()),
            |(dependency, shard, key, slot)| Change::RemoveDependent(dependency, shard, key, slot),
        ),
    ]
}

/// Of raw keys and of qless.
fn about_guests() -> Vec<BoxedStrategy<Change>> {
    vec![
        put(raw_key(), Change::PutKey),
        of(any::<u64>(), Change::RemoveKey),
        put(element(), Change::PutElement),
        of((any::<u64>(), any::<i64>()), |(list, place)| {
            Change::RemoveElement(list, place)
        }),
        of((name(Namespace::new), qless()), |(namespace, row)| {
            Change::PutQless(namespace, Box::new(row))
        }),
        of((name(Namespace::new), qless()), |(namespace, row)| {
            Change::RemoveQless(namespace, row.key())
        }),
    ]
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    Union::new(
        [
            about_jobs(),
            about_namespaces(),
            about_shards(),
            about_guests(),
        ]
        .concat(),
    )
}

/// With up to so many changes.
pub(super) fn commit_of(changes_max: usize) -> impl Strategy<Value = Commit> {
    let numbers = any::<[u64; 2]>();
    (numbers, meta(), vec(change(), 0..=changes_max)).prop_map(|(numbers, meta, changes)| Commit {
        epoch: Epoch(numbers[0]),
        sequence: numbers[1],
        meta,
        changes,
    })
}

pub(super) fn commit() -> impl Strategy<Value = Commit> {
    commit_of(8)
}

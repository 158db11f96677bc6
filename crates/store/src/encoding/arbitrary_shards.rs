//! Any record about other shards or of raw keys, and any input, for the property tests.

use ganger_types::command::{Dependency, Enqueue, NewEdge, NewInput, NewJob, Start, Unique};
use ganger_types::peer::PartAnswer;
use ganger_types::{
    Bytes, Carried, Dependent, Elapsed, ElementRecord, Graph, GraphRetry, IdTag, IdempotencyKey,
    InputRow, InputState, JobId, JobKey, JobName, JobRef, KeyRecord, Kind, Message, Namespace,
    OutboxRecord, Part, PartRecord, PeerRecord, Priority, Queue, ShardId, Tag, UniqueKey, Within,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::arbitrary::{bytes, duration, key, labels, name, outcome, policy, retry, text, wall};

pub(super) fn shard() -> impl Strategy<Value = ShardId> {
    "[A-Za-z0-9._-]{1,64}".prop_map(|text| ShardId::new(&text).expect("it has the right form"))
}

pub(super) fn job_ref() -> impl Strategy<Value = JobRef> {
    (shard(), name(JobId::new)).prop_map(|(shard, id)| JobRef { shard, id })
}

pub(super) fn input() -> impl Strategy<Value = InputRow> {
    let edge = || (key(), name(JobId::new), policy());
    let state = prop_oneof![
        bytes().prop_map(InputState::Value),
        edge().prop_map(|(dependency, id, policy)| InputState::Missing {
            dependency,
            id,
            policy
        }),
        edge().prop_map(|(dependency, id, policy)| InputState::Delivered {
            dependency,
            id,
            policy
        }),
        name(JobId::new).prop_map(|id| InputState::Ignored { id }),
        (job_ref(), policy(), any::<bool>()).prop_map(|(dependency, policy, is_member)| {
            InputState::Remote {
                dependency,
                policy,
                is_member,
            }
        }),
        (job_ref(), policy(), bytes()).prop_map(|(dependency, policy, value)| {
            InputState::Received {
                dependency,
                policy,
                value,
            }
        }),
    ];
    (key(), any::<u32>(), state).prop_map(|(job, slot, state)| InputRow { job, slot, state })
}

fn id_tag() -> impl Strategy<Value = IdTag> {
    (0..1_u32 << 20).prop_map(IdTag)
}

pub(super) fn peer() -> impl Strategy<Value = PeerRecord> {
    let why = option::of(text());
    (shard(), any::<[u64; 6]>(), any::<bool>(), why).prop_map(|(shard, n, adopts, stopped)| {
        PeerRecord {
            shard,
            line: n[0],
            given: n[1],
            confirmed: n[2],
            received: n[3],
            received_tag: n[4],
            received_line: n[5],
            adopts,
            stopped,
        }
    })
}

pub(super) fn dependent() -> impl Strategy<Value = Dependent> {
    let who = (shard(), key(), any::<u32>(), name(JobId::new));
    (who, policy(), any::<bool>()).prop_map(|((shard, key, slot, id), policy, is_member)| {
        Dependent {
            shard,
            key,
            slot,
            id,
            policy,
            is_member,
        }
    })
}

pub(super) fn raw_key() -> impl Strategy<Value = KeyRecord> {
    let words = (vec(any::<u8>(), 0..40), option::of(vec(any::<u8>(), 0..40)));
    let numbers = (any::<u64>(), option::of(any::<u64>()));
    (name(Namespace::new), words, numbers).prop_map(|(namespace, (name, value), (number, at))| {
        KeyRecord {
            number,
            namespace,
            name: name.into(),
            value: value.map(Bytes::from),
            expires_at: at.map(Elapsed),
        }
    })
}

pub(super) fn element() -> impl Strategy<Value = ElementRecord> {
    (any::<u64>(), any::<i64>(), vec(any::<u8>(), 0..40)).prop_map(|(list, place, value)| {
        ElementRecord {
            list,
            place,
            value: value.into(),
        }
    })
}

fn carried() -> impl Strategy<Value = Carried> {
    prop_oneof![
        Just(Carried::None),
        key().prop_map(Carried::Stored),
        bytes().prop_map(Carried::Bytes),
    ]
}

fn of_edge() -> impl Strategy<Value = Message> {
    let edge = || {
        let waits = (key(), any::<u32>());
        (name(Namespace::new), name(JobId::new), waits)
    };
    prop_oneof![
        (edge(), outcome(), carried()).prop_map(
            |((namespace, dependency, (dependent, slot)), outcome, result)| Message::Ended {
                namespace,
                dependency,
                dependent,
                slot,
                outcome,
                result,
            }
        ),
        edge().prop_map(
            |(namespace, dependency, (dependent, slot))| Message::NoSuchJob {
                namespace,
                dependency,
                dependent,
                slot,
            }
        ),
        (edge(), option::of(name(Graph::new))).prop_map(
            |((namespace, dependency, (dependent, slot)), unneeded_in)| Message::LetGo {
                namespace,
                dependency,
                dependent,
                slot,
                unneeded_in,
            }
        ),
        (
            name(Namespace::new),
            name(JobId::new),
            dependent(),
            any::<bool>()
        )
            .prop_map(
                |(namespace, dependency, dependent, retries)| Message::Follow {
                    namespace,
                    dependency,
                    dependent,
                    retries,
                }
            ),
        (edge(), option::of(within())).prop_map(
            |((namespace, dependency, (dependent, slot)), within)| Message::RetryDependent {
                namespace,
                dependency,
                dependent,
                slot,
                within,
            }
        ),
    ]
}

fn within() -> impl Strategy<Value = Within> {
    let queue = option::of(name(Queue::new));
    (name(Graph::new), queue).prop_map(|(graph, queue)| Within { graph, queue })
}

fn graph_retry() -> impl Strategy<Value = GraphRetry> {
    let place = (option::of(key()), option::of(any::<u64>()));
    (within(), place, any::<[bool; 2]>()).prop_map(|(within, (after, before), has)| GraphRetry {
        within,
        after,
        before,
        has_changed: has[0],
        has_skipped: has[1],
    })
}

fn of_graph() -> impl Strategy<Value = Message> {
    let graph = || (name(Namespace::new), name(Graph::new));
    prop_oneof![
        (graph(), any::<bool>()).prop_map(|((namespace, graph), is_committed)| Message::Decided {
            namespace,
            graph,
            is_committed,
        }),
        graph().prop_map(|(namespace, graph)| Message::Inquire { namespace, graph }),
        (name(Namespace::new), graph_retry())
            .prop_map(|(namespace, retry)| Message::RetryGraph { namespace, retry }),
        (name(Namespace::new), graph_retry())
            .prop_map(|(namespace, retry)| Message::GoOn { namespace, retry }),
        (graph(), text()).prop_map(|((namespace, graph), reason)| Message::CancelGraph {
            namespace,
            graph,
            reason,
        }),
    ]
}

pub(super) fn outbox() -> impl Strategy<Value = OutboxRecord> {
    let message = prop_oneof![of_edge(), of_graph()];
    (shard(), any::<[u64; 2]>(), wall(), message).prop_map(|(to, n, at, message)| OutboxRecord {
        to,
        number: n[0],
        tag: n[1],
        at,
        message,
    })
}

fn edge() -> impl Strategy<Value = NewEdge> {
    let dependency = prop_oneof![
        any::<u32>().prop_map(Dependency::Member),
        name(JobId::new).prop_map(Dependency::Job),
        (job_ref(), any::<bool>())
            .prop_map(|(job, is_member)| Dependency::Remote { job, is_member }),
    ];
    (dependency, policy()).prop_map(|(dependency, policy)| NewEdge { dependency, policy })
}

fn new_job() -> impl Strategy<Value = NewJob> {
    let names = (
        option::of(name(JobId::new)),
        name(Queue::new),
        name(Kind::new),
    );
    let input = prop_oneof![
        bytes().prop_map(NewInput::Value),
        edge().prop_map(NewInput::Result)
    ];
    let needs = (bytes(), vec(input, 0..3), vec(edge(), 0..3));
    let start = prop_oneof![
        Just(Start::Now),
        duration().prop_map(Start::After),
        wall().prop_map(Start::At),
    ];
    let times = (
        start,
        option::of(wall()),
        option::of(duration()),
        option::of(retry()),
    );
    let unique = (name(UniqueKey::new), option::of(duration()))
        .prop_map(|(key, window)| Unique { key, window });
    let words = (
        vec(name(Tag::new), 0..3),
        labels(),
        any::<bool>(),
        option::of(unique),
    );
    let keep = || option::of(option::of(duration()));
    let called = option::of(name(JobName::new));
    (
        names,
        needs,
        any::<i64>(),
        times,
        words,
        (keep(), keep()),
        called,
    )
        .prop_map(
            |(names, needs, priority, times, words, keep, called)| NewJob {
                name: called,
                id: names.0,
                queue: names.1,
                kind: names.2,
                payload: needs.0,
                inputs: needs.1,
                after: needs.2,
                priority: Priority::from_millionths(priority),
                start: times.0,
                deadline: times.1,
                timeout: times.2,
                retry: times.3,
                tags: words.0,
                labels: words.1,
                tracked: words.2,
                unique: words.3,
                keep_succeeded: keep.0,
                keep_failed: keep.1,
            },
        )
}

pub(super) fn part_record() -> impl Strategy<Value = PartRecord> {
    let ids = || vec((key(), name(JobId::new)), 0..3);
    let first = || (0..1_u64 << 39).prop_map(JobKey);
    let answer = (
        name(IdempotencyKey::new),
        any::<u64>(),
        vec((shard(), first(), id_tag()), 0..3),
        vec(any::<u32>(), 0..3),
    )
        .prop_map(|(key, fingerprint, numbers, existed)| PartAnswer {
            key,
            fingerprint,
            numbers,
            existed,
        });
    let names = (
        name(Namespace::new),
        name(Graph::new),
        shard(),
        vec(shard(), 0..3),
    );
    let numbers = (first(), any::<u32>(), id_tag(), ids(), ids());
    let end = (any::<bool>(), option::of(text()), option::of(answer));
    (names, numbers, wall(), end).prop_map(|(names, numbers, prepared_at, end)| PartRecord {
        namespace: names.0,
        graph: names.1,
        decider: names.2,
        shards: names.3,
        first: numbers.0,
        count: numbers.1,
        id_tag: numbers.2,
        given: numbers.3,
        outside: numbers.4,
        prepared_at,
        is_committed: end.0,
        cancelled: end.1,
        answer: end.2,
    })
}

pub(super) fn part() -> impl Strategy<Value = Part> {
    let waits = vec((any::<u32>(), dependent()), 0..3);
    let jobs = vec((new_job(), any::<u64>()), 1..4);
    (part_record(), jobs, any::<bool>(), waits).prop_map(
        |(mut record, jobs, has_prints, mut dependents)| {
            record.count = u32::try_from(jobs.len()).expect("few");
            for (place, _) in &mut dependents {
                *place %= record.count;
            }
            let (jobs, mut prints): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
            if !has_prints {
                prints.clear();
            }
            Part {
                record,
                jobs,
                prints,
                dependents,
            }
        },
    )
}

pub(super) fn submission() -> impl Strategy<Value = Enqueue> {
    let key = option::of(name(IdempotencyKey::new));
    let jobs = vec(new_job(), 0..4);
    (name(Namespace::new), jobs, key, any::<bool>()).prop_map(|(namespace, jobs, key, graph)| {
        Enqueue {
            namespace,
            jobs,
            idempotency_key: key,
            graph,
        }
    })
}

//! A stored record gives the same document directly and through its message.

use std::time::Duration;

use ganger_document::view::event;
use ganger_document::view::graph::{Graph, GraphEdge, GraphJob};
use ganger_document::view::job::Job;
use ganger_document::view::queue::{NamespaceView, QueueView};
use ganger_document::view::schedule::Schedule;
use ganger_document::view::statistics::Statistics;
use ganger_document::view::worker::Worker;
use ganger_store::encoding::any::Any;
use ganger_types::history::AttemptEnd;
use ganger_types::job::LeaseRecord;
use ganger_types::limits::SCHEDULE_BACKLOG_MAX;
use ganger_types::observed::{
    Asker, ObservedQueue, ObservedSchedule, ObservedWorker, QueuePace, WorkerFacts, WorkerState,
};
use ganger_types::{
    CatchUp, Event, Happening, InputRow, JobId, JobRecord, JobState, Namespace, NamespaceRecord,
    Position, Queue, RetryPolicy, ScheduleRecord, ScheduleSpec, ShardId, StatisticsRecord,
    StoredJob, Timestamp, What, reply,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::any_of;
use crate::convert::{self, ms};
use crate::v1;

/// Limits a value to what messages can carry: names as text, times in whole milliseconds, and valid dates.
trait Conversion {
    /// Limits the value to what a message can carry.
    fn carried(&mut self);
}

macro_rules! carried_names {
    ($($name:ident)*) => {$(
        impl Conversion for ganger_types::$name {
            /// Limits the name to text that documents show unchanged.
            fn carried(&mut self) {
                let letters = self.as_bytes().iter().map(|byte| b'a' + byte % 26);
                let letters: Vec<u8> = letters.collect();
                let at_least_one = if letters.is_empty() { b"a".to_vec() } else { letters };
                *self = Self::new(at_least_one).expect("as long as before");
            }
        }
    )*};
}
carried_names! {
    Graph Group JobId JobName Kind LabelKey LabelValue Namespace Queue ScheduleId Tag UniqueKey Worker
}

impl Conversion for Duration {
    fn carried(&mut self) {
        *self = Duration::from_millis(ms(*self));
    }
}

impl Conversion for Timestamp {
    fn carried(&mut self) {
        self.0 %= 1 << 50;
    }
}

impl<T: Conversion> Conversion for Option<T> {
    fn carried(&mut self) {
        self.iter_mut().for_each(Conversion::carried);
    }
}

impl<T: Conversion> Conversion for Vec<T> {
    fn carried(&mut self) {
        self.iter_mut().for_each(Conversion::carried);
    }
}

impl<A: Conversion, B: Conversion> Conversion for (A, B) {
    fn carried(&mut self) {
        self.0.carried();
        self.1.carried();
    }
}

impl Conversion for RetryPolicy {
    fn carried(&mut self) {
        match &mut self.backoff {
            ganger_types::Backoff::Fixed(pause) => pause.carried(),
            ganger_types::Backoff::List(pauses) => {
                pauses.carried();
                if pauses.is_empty() {
                    pauses.push(Duration::ZERO);
                }
            }
            ganger_types::Backoff::Exponential { base, cap } => {
                base.carried();
                cap.carried();
            }
        }
    }
}

impl Conversion for ganger_types::Failure {
    fn carried(&mut self) {
        self.group.carried();
        self.at.carried();
        self.worker.carried();
    }
}

impl Conversion for ganger_types::HistoryEntry {
    fn carried(&mut self) {
        self.at.carried();
        match &mut self.what {
            What::Enqueued { queue } => queue.carried(),
            What::Failed { group } => group.carried(),
            What::Attempt {
                worker,
                leased_at,
                end,
                ..
            } => {
                worker.carried();
                leased_at.carried();
                if let AttemptEnd::Failed { group, .. } = end {
                    group.carried();
                }
            }
            What::Cancelled { .. } | What::Note { .. } | What::Retried | What::TimedOutByHand => {}
        }
    }
}

impl Conversion for LeaseRecord {
    fn carried(&mut self) {
        self.worker.carried();
        self.granted_at.carried();
        self.lease_for.carried();
    }
}

impl Conversion for JobRecord {
    fn carried(&mut self) {
        self.id.carried();
        self.name.carried();
        self.namespace.carried();
        self.queue.carried();
        self.kind.carried();
        self.created_at.carried();
        if let Some(ganger_types::Due::Wall(at)) = &mut self.due {
            at.carried();
        }
        self.deadline.carried();
        self.timeout.carried();
        self.retry.carried();
        self.failure.carried();
        self.graph.carried();
        self.tags.carried();
        self.labels.carried();
        self.unique.carried();
        self.schedule.carried();
        self.history.carried();
        if let Some(finished) = &mut self.finished {
            finished.at.carried();
        }
    }
}

impl Conversion for ScheduleRecord {
    fn carried(&mut self) {
        self.id.carried();
        if let ScheduleSpec::Interval { every, first_at } = &mut self.spec {
            every.carried();
            first_at.carried();
        }
        self.queue.carried();
        self.kind.carried();
        self.retry.carried();
        if let CatchUp::All { max } = &mut self.catch_up {
            *max = *max % SCHEDULE_BACKLOG_MAX + 1;
        }
        self.timeout.carried();
        self.tags.carried();
        self.labels.carried();
        self.created_at.carried();
        self.next_at.carried();
        self.last_job.carried();
        // Only jobs of qless have fractions in their priorities; schedules have whole ones.
        self.priority = ganger_types::Priority::whole(self.priority.to_whole()).unwrap_or_default();
    }
}

fn shard() -> ShardId {
    ShardId::new("eu-1").expect("it has the right form")
}

/// Any value of a type that messages can carry.
fn carried<T: Any + Conversion>() -> impl Strategy<Value = T> {
    T::any().prop_map(|mut value| {
        value.carried();
        value
    })
}

fn stored_job() -> impl Strategy<Value = StoredJob> {
    (
        carried::<JobRecord>(),
        proptest::option::of(carried::<LeaseRecord>()),
    )
        .prop_map(|(record, lease)| StoredJob::new(record, lease))
}

fn name<T: Any + Conversion>() -> impl Strategy<Value = T> {
    carried::<T>()
}

fn queue_view() -> impl Strategy<Value = reply::QueueView> {
    let waited = proptest::option::of(carried::<Duration>());
    let numbers = any::<([u64; 7], u64, u64, u64)>();
    let parts = (name(), super::queue_of(), waited, carried(), numbers);
    parts.prop_map(|(queue, settings, oldest_ready_for, created_at, numbers)| {
        let mut counts = ganger_types::QueueCounts::default();
        for (state, number) in JobState::ALL.into_iter().zip(numbers.0) {
            *counts.of_mut(state) = number;
        }
        reply::QueueView {
            queue,
            settings,
            counts,
            schedules: numbers.1,
            oldest_ready_for,
            asked_ago: None,
            created_at,
            enqueued_total: numbers.2,
            finished_total: numbers.3,
        }
    })
}

fn observed_queue() -> impl Strategy<Value = ObservedQueue> {
    let rates = (0.0..1e9, 0.0..1e9, proptest::option::of(carried()));
    let pace = proptest::option::of(rates).prop_map(|pace| {
        pace.map(|(arrivals, completions, time_to_empty)| QueuePace {
            arrivals_per_minute: arrivals,
            completions_per_minute: completions,
            time_to_empty,
        })
    });
    let asker = (name(), any::<u32>(), carried());
    let asker = asker.prop_map(|(worker, slots, asked_at)| Asker {
        worker,
        slots,
        asked_at,
    });
    let askers = proptest::option::of(vec(asker, 0..3));
    (queue_view(), pace, askers).prop_map(|(view, pace, askers)| ObservedQueue {
        view,
        pace,
        askers,
    })
}

fn observed_schedule() -> impl Strategy<Value = ObservedSchedule> {
    let micros = any::<u64>().prop_map(Duration::from_micros);
    let last = (proptest::option::of(any_of()), proptest::option::of(micros));
    (carried(), last).prop_map(|(record, (last_state, last_ran_for))| ObservedSchedule {
        record,
        last_state,
        last_ran_for,
    })
}

fn observed_worker() -> impl Strategy<Value = ObservedWorker> {
    let states = vec![WorkerState::Busy, WorkerState::Idle, WorkerState::Silent];
    let texts = (".{0,9}", ".{0,9}");
    let facts = (
        texts,
        vec(name::<Queue>(), 0..3),
        carried(),
        any::<(u32, [u64; 3])>(),
    );
    let facts =
        facts.prop_map(
            |((address, version), queues, since, (slots, counts))| WorkerFacts {
                address,
                version,
                queues: queues.into(),
                slots,
                since,
                completed: counts[0],
                failed: counts[1],
                lost: counts[2],
                free_slots: slots / 2,
                completed_per_minute_in_tenths: counts[0] / 3,
                ..WorkerFacts::default()
            },
        );
    let state = proptest::sample::select(states);
    (worker_view(), state, proptest::option::of(facts))
        .prop_map(|(view, state, facts)| ObservedWorker { view, state, facts })
}

fn worker_view() -> impl Strategy<Value = reply::WorkerView> {
    let holds = vec((name(), name(), name(), carried()), 0..3);
    (name(), carried(), holds).prop_map(|(worker, seen_at, holds)| reply::WorkerView {
        worker,
        seen_at,
        lease_for: Duration::from_secs(60),
        holds,
    })
}

fn moved() -> impl Strategy<Value = Happening> {
    let states = (proptest::option::of(any_of()), any_of());
    let names = (name(), name(), name(), proptest::option::of(name()));
    (any::<(u64, u32)>(), names, states, ".{0,9}").prop_map(
        |((number, attempt), (job, queue, kind, worker), (from, to), reason)| Happening::JobMoved {
            key: ganger_types::JobKey(number),
            job,
            queue,
            kind,
            from,
            to,
            attempt,
            worker,
            reason,
        },
    )
}

fn happening() -> impl Strategy<Value = Happening> {
    let numbers = || any::<(u64, u32, u64)>();
    prop_oneof![
        moved(),
        (numbers(), name(), ".{0,9}").prop_map(|(numbers, job, message)| {
            Happening::JobProgressed {
                key: ganger_types::JobKey(numbers.0),
                job,
                progress: ganger_types::Progress {
                    millionths: numbers.1,
                    message,
                },
            }
        }),
        numbers().prop_map(|(number, attempt, bytes)| Happening::LogAppended {
            key: ganger_types::JobKey(number),
            attempt,
            bytes,
        }),
        (numbers(), name(), name()).prop_map(|(numbers, job, queue)| Happening::JobRemoved {
            key: ganger_types::JobKey(numbers.0),
            job,
            queue,
        }),
        (name(), any::<bool>())
            .prop_map(|(queue, paused)| Happening::QueueChanged { queue, paused }),
        name().prop_map(|schedule| Happening::ScheduleChanged { schedule }),
        name().prop_map(|worker| Happening::WorkerSeen { worker }),
        name().prop_map(|worker| Happening::WorkerGone { worker }),
    ]
}

proptest! {
    #[test]
    fn jobs_are_the_same_documents(stored in stored_job()) {
        let shown = Job::new(&shard(), stored.clone());
        let received = convert::job(convert::job_message(&shard(), stored, false));
        prop_assert_eq!(received, Ok(shown));
    }

    #[test]
    fn brief_jobs_are_the_same_without_their_history(stored in stored_job()) {
        let mut shown = Job::new(&shard(), stored.clone());
        shown.history.clear();
        let received = convert::job(convert::job_message(&shard(), stored, true));
        prop_assert_eq!(received, Ok(shown));
    }

    #[test]
    fn schedules_are_the_same_documents(record in carried::<ScheduleRecord>()) {
        let shown = Schedule::from(record.clone());
        prop_assert_eq!(convert::schedule((&record).into()), Ok(shown));
    }

    #[test]
    fn statistics_are_the_same_documents(mut record in StatisticsRecord::any()) {
        record.queue.carried();
        for sample in [&mut record.waiting, &mut record.running] {
            // A sum of squares is not negative.
            sample.vk = sample.vk.abs();
        }
        let queue = record.queue.to_text().into_owned();
        let received = convert::statistics(&queue, (&record).into());
        prop_assert_eq!(received, Ok(Statistics::from(record)));
    }

    #[test]
    fn queues_are_the_same_documents(view in queue_view()) {
        prop_assert_eq!(convert::queue((&view).into()), Ok(QueueView::from(view)));
    }

    #[test]
    fn observed_queues_are_the_same_documents(observed in observed_queue()) {
        let received = convert::queue((&observed).into());
        prop_assert_eq!(received, Ok(QueueView::from(observed)));
    }

    #[test]
    fn observed_schedules_are_the_same_documents(observed in observed_schedule()) {
        let received = convert::schedule((&observed).into());
        prop_assert_eq!(received, Ok(Schedule::from(observed)));
    }

    #[test]
    fn namespaces_are_the_same_documents(
        namespace in name::<Namespace>(),
        settings in super::namespace_of(),
    ) {
        let record = NamespaceRecord { namespace, settings };
        prop_assert_eq!(convert::namespace((&record).into()), Ok(NamespaceView::from(record)));
    }

    #[test]
    fn workers_are_the_same_documents(observed in observed_worker()) {
        let received = Worker::from(v1::WorkerView::from(&observed));
        prop_assert_eq!(received, Worker::from(observed));
    }

    #[test]
    fn events_are_the_same_documents(
        position in any::<u64>(),
        at in carried::<Timestamp>(),
        namespace in name::<Namespace>(),
        happening in happening(),
    ) {
        let event = Event { position: Position(position), at, namespace, happening };
        let shown = event::Event::new(&shard(), event.clone());
        prop_assert_eq!(convert::event(convert::event_message(&shard(), event)), Ok(shown));
    }

    #[test]
    fn graphs_come_back(
        jobs in vec(stored_job(), 0..3),
        to in name::<JobId>(),
        rows in vec(InputRow::any(), 0..3),
        more in any::<bool>(),
    ) {
        let edges = rows.into_iter().filter_map(|row| GraphEdge::new(&shard(), &to, row));
        let graph = Graph {
            graph: jobs.first().and_then(|job| job.record.graph.as_ref()).map(|graph| graph.to_text().into_owned()),
            jobs: jobs.into_iter().map(|job| GraphJob::new(&shard(), job)).collect(),
            edges: edges.collect(),
            more,
            edges_cut: vec!["1/b".to_owned()],
            next: None,
        };
        prop_assert_eq!(convert::graph(graph.clone().into()), Ok(graph));
    }
}

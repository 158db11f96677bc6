//! Items of work queues of raw keys as jobs: what a record, its lease and its payload would say of one.
//!
//! An item is there while its data is, and only where its queue is known: one of the queue's lists has elements. It is
//! shown under its id, or under the whole key of its data where items of several queues have that id.

use std::ops::Bound;
use std::time::Duration;

use ganger_types::keys::KeyUpkeep;
use ganger_types::query::JobQuery;
use ganger_types::reply::ExternalJobView;
use ganger_types::why::{Explanation, Reason};
use ganger_types::{
    Backoff, Bytes, Elapsed, ExternalJob, JobId, JobKey, JobRecord, JobState, Kind, LeaseRecord,
    Namespace, Now, Queue, RetryPolicy, Worker,
};

use super::KeySpace;
use super::work_queue::{ITEM, QUEUE, Standing, joined, readings};
use crate::external::{ExternalJobScan, Measure, NO_TOKEN, asks_for, short};

/// Elements counted ahead of an item, at most.
const COUNTED_MAX: usize = 10_000;

/// An item that is there.
struct Item<'a> {
    queue: Bytes,
    id: Bytes,
    data: &'a Bytes,
    stand: ItemPlace<'a>,
}

/// Where an item stands, by its lease first, then by its lists.
enum ItemPlace<'a> {
    /// Somebody works on it until then, or forever.
    Leased(Option<Elapsed>, &'a Bytes),
    Ready,
    /// In processing, without a lease.
    Taken,
    /// The item is in neither list.
    Staged,
}

impl ItemPlace<'_> {
    /// A client that takes an element out of the main list counts as working on it, so that counts of jobs agree
    /// with the lengths of lists.
    fn state(&self) -> JobState {
        match self {
            Self::Leased(..) | Self::Taken => JobState::Running,
            Self::Ready => JobState::Ready,
            Self::Staged => JobState::Scheduled,
        }
    }
}

/// The name under which an item is always found, if it may be an id of a job.
pub(super) fn full_name(external_job: &ExternalJob) -> Option<JobId> {
    match external_job {
        ExternalJob::Item { queue, id } => JobId::new(joined(queue, ITEM, id)).ok(),
        ExternalJob::Qless(_) => None,
    }
}

/// The item with this id.
pub(super) fn view_by_id(
    space: &KeySpace,
    now: Now,
    namespace: &Namespace,
    id: &JobId,
) -> Option<ExternalJobView> {
    let item = space.find_item(id, now.elapsed)?;
    view(space, now, namespace, &item)
}

/// Where the item with this id stands, expired or not.
pub(super) fn state(space: &KeySpace, id: &JobId) -> Option<JobState> {
    let item = space.find_item(id, Elapsed::default())?;
    Some(item.stand.state())
}

/// Items in order of queues and ids, behind one of them: those that a query may ask for.
pub(super) fn scan(
    space: &KeySpace,
    now: Now,
    query: &JobQuery,
    after: Option<&ExternalJob>,
    measure: Measure,
) -> ExternalJobScan {
    let has_words = query.tag.is_some() || query.schedule.is_some() || query.group.is_some();
    let after = after.and_then(|after| match after {
        ExternalJob::Item { queue, id } => Some((queue, id)),
        ExternalJob::Qless(_) => None,
    });
    if has_words || query.failure_text.is_some() {
        return ExternalJobScan::NONE;
    }
    let mut looked = ExternalJobScan::NONE;
    let from = after.map_or(Bound::Unbounded, |(queue, _)| {
        Bound::Included(queue.clone())
    });
    for queue in space.queues.range((from, Bound::Unbounded)) {
        let is_wanted = query.queue.as_ref();
        if is_wanted.is_some_and(|wanted| queue != wanted.as_bytes()) {
            continue;
        }
        let behind = after.filter(|(other, _)| *other == queue);
        for id in space.item_ids(queue, behind.map(|(_, id)| id)) {
            let external_job = ExternalJob::Item {
                queue: queue.clone(),
                id: id.clone(),
            };
            looked.count += 1;
            let item = space.item_here(queue, &id, now.elapsed);
            let item = item.filter(|item| asks_for(query, item.stand.state()));
            let view = item.and_then(|item| view(space, now, &query.namespace, &item));
            looked
                .found
                .extend(view.map(|view| (external_job.clone(), view)));
            if looked.count >= measure.looked_at || looked.found.len() >= measure.found {
                looked.rest = Some(external_job);
                return looked;
            }
        }
    }
    looked
}

/// Why an item is not worked on, or that it is.
pub(super) fn explain(
    space: &KeySpace,
    settings: KeyUpkeep,
    now: Now,
    id: &JobId,
) -> Option<Explanation> {
    let item = space.find_item(id, now.elapsed)?;
    let reasons = match item.stand {
        ItemPlace::Leased(until, session) => vec![Reason::KeyLeased {
            session: String::from_utf8_lossy(session).into_owned(),
            left: until.map(|until| until.since(now.elapsed)),
            goes_back: settings.put_back_after.is_some(),
        }],
        ItemPlace::Taken => vec![Reason::KeyTaken {
            back_after: settings.put_back_after,
        }],
        ItemPlace::Staged => vec![Reason::KeyStaged {
            queued_after: settings.rescue_after,
        }],
        ItemPlace::Ready => vec![space.place_in_line(&item)],
    };
    Some(Explanation {
        job: id.clone(),
        state: item.stand.state(),
        queue: Queue::new(&item.queue).ok()?,
        reasons,
    })
}

impl KeySpace {
    /// The item that an id names: by itself if items of one queue only have it, else as the key of its data.
    fn find_item(&self, id: &JobId, now: Elapsed) -> Option<Item<'_>> {
        let bytes = Bytes::copy_from_slice(id.as_bytes());
        if let [queue] = self.queues_with(&bytes, now)[..] {
            return self.item_at(queue, &bytes, now);
        }
        let (queue, id) = self.home(&bytes)?;
        self.item_at(&queue, &id, now)
    }

    /// The known queues that have an item with that id, two at most.
    fn queues_with(&self, id: &Bytes, now: Elapsed) -> Vec<&Bytes> {
        let has_it = |queue: &&Bytes| self.item_here(queue, id, now).is_some();
        self.queues.iter().filter(has_it).take(2).collect()
    }

    /// The item of that queue and id, unless its key is rather that of another queue's item.
    fn item_here(&self, queue: &Bytes, id: &Bytes, now: Elapsed) -> Option<Item<'_>> {
        let item = self.item_at(queue, id, now)?;
        let home = self.home(&joined(queue, ITEM, id))?;
        (home.0 == *queue).then_some(item)
    }

    fn item_at(&self, queue: &Bytes, id: &Bytes, now: Elapsed) -> Option<Item<'_>> {
        let data = self.item(queue, id, now)?;
        let lists = self.lists_of(queue)?;
        let stand = match self.standing(queue, id, now) {
            Standing::Gone => return None,
            Standing::Leased(until, session) => ItemPlace::Leased(until, session),
            Standing::Free if lists.in_main(id) => ItemPlace::Ready,
            Standing::Free if lists.in_processing(id) => ItemPlace::Taken,
            Standing::Free => ItemPlace::Staged,
        };
        Some(Item {
            queue: queue.clone(),
            id: id.clone(),
            data,
            stand,
        })
    }

    /// The queue and id that a key of an item is of. Where it can be read in several ways that are known queues', it is
    /// the one that lists the id, or else the first.
    fn home(&self, key: &Bytes) -> Option<(Bytes, Bytes)> {
        let mut known = readings(key, ITEM);
        known.retain(|(queue, _)| self.queues.contains(queue));
        let lists_it = |(queue, id): &&(Bytes, Bytes)| {
            let lists = self.lists_of(queue);
            lists.is_some_and(|lists| lists.in_main(id) || lists.in_processing(id))
        };
        let first = if known.len() > 1 {
            known.iter().find(lists_it).or(known.first())
        } else {
            known.first()
        };
        first.cloned()
    }

    /// Ids that keys of the queue's items may have, in order of their bytes, behind one of them.
    fn item_ids<'a>(
        &'a self,
        queue: &Bytes,
        after: Option<&Bytes>,
    ) -> impl Iterator<Item = Bytes> + use<'a> {
        let prefix = joined(queue, ITEM, b"");
        let from = match after {
            Some(id) => Bound::Excluded(joined(queue, ITEM, id)),
            None => Bound::Included(prefix.clone()),
        };
        let names = self.names.range((from, Bound::Unbounded));
        names.map(|(name, _)| name).map_while(move |name| {
            name.starts_with(&prefix)
                .then(|| name.slice(prefix.len()..))
        })
    }

    /// How many elements of the main list go before the item.
    fn place_in_line(&self, item: &Item<'_>) -> Reason {
        let main = self.list(&joined(&item.queue, b"", QUEUE));
        let elements = main.into_iter().flat_map(|list| list.iter().rev());
        let ahead = elements.take_while(|(_, id)| **id != item.id);
        let ahead = ahead.take(COUNTED_MAX + 1).count();
        if ahead == 0 {
            return Reason::Next;
        }
        Reason::Behind {
            jobs: u64::try_from(ahead.min(COUNTED_MAX)).unwrap_or(u64::MAX),
            more: ahead > COUNTED_MAX,
        }
    }
}

fn view(
    space: &KeySpace,
    now: Now,
    namespace: &Namespace,
    item: &Item<'_>,
) -> Option<ExternalJobView> {
    let is_alone = space.queues_with(&item.id, now.elapsed).len() == 1;
    let id = if is_alone && !item.id.is_empty() {
        JobId::new(&item.id).ok()?
    } else {
        JobId::new(joined(&item.queue, ITEM, &item.id)).ok()?
    };
    let record = record(namespace, id, item)?;
    let lease = match item.stand {
        ItemPlace::Leased(until, session) => Some(lease(&record, now, until, session)),
        ItemPlace::Taken | ItemPlace::Ready | ItemPlace::Staged => None,
    };
    Some(ExternalJobView {
        record,
        lease,
        payload: item.data.clone(),
        result: None,
    })
}

/// Nothing is kept of an item but its data: not when it was added, nor how often it was tried.
fn record(namespace: &Namespace, id: JobId, item: &Item<'_>) -> Option<JobRecord> {
    let state = item.stand.state();
    let attempt = u32::from(state == JobState::Running);
    let queue = Queue::new(&item.queue).ok()?;
    Some(JobRecord {
        id_is_given: true,
        state,
        retry: RetryPolicy {
            retries_max: u32::MAX,
            backoff: Backoff::Fixed(Duration::ZERO),
            ..RetryPolicy::default()
        },
        attempt,
        attempts_counted: attempt,
        payload_bytes: u64::try_from(item.data.len()).unwrap_or(u64::MAX),
        ..JobRecord::new(
            JobKey::OF_KEYS,
            id,
            namespace.clone(),
            queue,
            Kind::default(),
        )
    })
}

/// Of a lease it is known who has it and when it ends, not when it began: that counts as now.
fn lease(record: &JobRecord, now: Now, until: Option<Elapsed>, session: &Bytes) -> LeaseRecord {
    let left = until.map_or(Duration::MAX, |until| until.since(now.elapsed));
    LeaseRecord {
        key: record.key,
        attempt: record.attempt,
        attempts_counted: record.attempts_counted,
        worker: short(session, Worker::new).unwrap_or_else(|| Worker::from_static("")),
        token: NO_TOKEN,
        granted_at: now.wall,
        lease_for: left,
        expires_at: until.unwrap_or(Elapsed(u64::MAX)),
        timeout_at: None,
        ready_at: Elapsed::default(),
        granted_elapsed: now.elapsed,
        request: None,
        is_warned: false,
    }
}

//! Items of work queues of raw keys, shown as jobs: record, lease and payload.
//!
//! An item exists while its data does and its queue has elements in one of its lists. It is shown under its id, or
//! under the whole key of its data if items of several queues have that id.

use std::ops::Bound;
use std::time::Duration;

use ganger_types::external::ExternalReason;
use ganger_types::keys::KeyUpkeep;
use ganger_types::query::JobQuery;
use ganger_types::reply::ExternalJobView;
use ganger_types::why::{Explanation, Reason};
use ganger_types::{
    Backoff, Bytes, Elapsed, ExternalJob, JobId, JobKey, JobRecord, JobState, Kind, LeaseRecord,
    Namespace, Now, Queue, RetryPolicy, Worker,
};

use super::KeySpace;
use super::work_queue::{ITEM, ItemState, QUEUE, joined, readings};
use crate::external::{ExternalJobScan, NO_TOKEN, ScanLimits, asks_for, short};

/// Maximum number of elements to count ahead of an item.
const COUNTED_MAX: usize = 10_000;

/// An item of a work queue whose data exists.
struct Item<'a> {
    queue: Bytes,
    id: Bytes,
    data: &'a Bytes,
    stand: ItemPlace<'a>,
}

/// The state of an item, which depends on its lease first, then on its lists.
enum ItemPlace<'a> {
    /// A session holds a lease: when it expires (`None`: never), and the session's name.
    Leased(Option<Elapsed>, &'a Bytes),
    Ready,
    /// The item is in processing, without a lease.
    Taken,
    /// The item is in neither list.
    Staged,
}

impl ItemPlace<'_> {
    /// The job state. An item in processing counts as running even without a lease, so that counts of jobs agree with
    /// the lengths of lists.
    fn state(&self) -> JobState {
        match self {
            Self::Leased(..) | Self::Taken => JobState::Running,
            Self::Ready => JobState::Ready,
            Self::Staged => JobState::Scheduled,
        }
    }
}

/// The id under which an item can always be found: the key of its data. `None` if that is too long for a job id.
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

/// The state of the item with this id, including expired items.
pub(super) fn state(space: &KeySpace, id: &JobId) -> Option<JobState> {
    let item = space.find_item(id, Elapsed::default())?;
    Some(item.stand.state())
}

/// The items after one of them, in order of queues and ids, that a query may match.
pub(super) fn scan(
    space: &KeySpace,
    now: Now,
    query: &JobQuery,
    after: Option<&ExternalJob>,
    measure: ScanLimits,
) -> ExternalJobScan {
    let has_words = !query.tags.is_empty() || query.schedule.is_some() || query.group.is_some();
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

/// Why an item is not running.
pub(super) fn explain(
    space: &KeySpace,
    settings: KeyUpkeep,
    now: Now,
    id: &JobId,
) -> Option<Explanation> {
    let item = space.find_item(id, now.elapsed)?;
    let reasons = match item.stand {
        ItemPlace::Leased(until, session) => vec![
            ExternalReason::KeyLeased {
                session: String::from_utf8_lossy(session).into_owned(),
                left: until.map(|until| until.since(now.elapsed)),
                goes_back: settings.put_back_after.is_some(),
            }
            .into(),
        ],
        ItemPlace::Taken => vec![
            ExternalReason::KeyTaken {
                back_after: settings.put_back_after,
            }
            .into(),
        ],
        ItemPlace::Staged => vec![
            ExternalReason::KeyStaged {
                queued_after: settings.rescue_after,
            }
            .into(),
        ],
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
    /// The item with an id: the id itself if only one queue has it, else the key of the item's data.
    fn find_item(&self, id: &JobId, now: Elapsed) -> Option<Item<'_>> {
        let bytes = Bytes::copy_from_slice(id.as_bytes());
        if let [queue] = self.queues_with(&bytes, now)[..] {
            return self.item_at(queue, &bytes, now);
        }
        let (queue, id) = self.home(&bytes)?;
        self.item_at(&queue, &id, now)
    }

    /// At most two queues that have an item with this id.
    fn queues_with(&self, id: &Bytes, now: Elapsed) -> Vec<&Bytes> {
        let has_it = |queue: &&Bytes| self.item_here(queue, id, now).is_some();
        self.queues.iter().filter(has_it).take(2).collect()
    }

    /// The item with this queue and id, unless its key belongs to an item of another queue.
    fn item_here(&self, queue: &Bytes, id: &Bytes, now: Elapsed) -> Option<Item<'_>> {
        let item = self.item_at(queue, id, now)?;
        let home = self.home(&joined(queue, ITEM, id))?;
        (home.0 == *queue).then_some(item)
    }

    fn item_at(&self, queue: &Bytes, id: &Bytes, now: Elapsed) -> Option<Item<'_>> {
        let data = self.item(queue, id, now)?;
        let lists = self.lists_of(queue)?;
        let stand = match self.item_state(queue, id, now) {
            ItemState::Gone => return None,
            ItemState::Leased(until, session) => ItemPlace::Leased(until, session),
            ItemState::Free if lists.in_main(id) => ItemPlace::Ready,
            ItemState::Free if lists.in_processing(id) => ItemPlace::Taken,
            ItemState::Free => ItemPlace::Staged,
        };
        Some(Item {
            queue: queue.clone(),
            id: id.clone(),
            data,
            stand,
        })
    }

    /// The queue and id of an item's key. If the key can be split in several ways into an existing queue and an id,
    /// the queue that lists the id wins, else the first.
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

    /// The ids in keys of a queue's items after one of them, in the order of their bytes.
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

    /// The number of elements in the main list ahead of the item, as a reason.
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

/// The record of an item. Only its data is stored: neither the time at which it was added nor its attempts are known.
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

/// The lease of an item. The time of the grant is not known, so it is set to now.
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

//! Imports queues of redis-work-queue: two lists of ids, and for each item a string with its data and one with its
//! lease.

use std::collections::BTreeSet;
use std::time::Duration;

use ganger_client::import::WorkItem;
use ganger_client::{Bytes, ImportRecord};

use super::SeenNames;
use super::batch::{RECORD_BYTES_MAX, Target};
use super::report::RecordKind;
use super::source::{Source, call};
use super::value::Value;
use crate::exit::Failure;

/// Key suffixes of a queue's lists.
const LISTS: [&[u8]; 2] = [b":queue", b":processing"];
/// Infix between queue and id in the key of a lease, of newer and of older clients.
const LEASES: [&[u8]; 2] = [b":lease:", b":leased_by_session:"];
/// Infix between queue and id in the key of an item's data.
const ITEM: &[u8] = b":item:";
/// Number of ids requested at once.
const PAGE: usize = 500;
/// Maximum bytes of items that are read at once.
const READ_BYTES: usize = 8 << 20;

/// Returns the queue whose list has this key; `None` if the key is not that of a list.
pub(super) fn queue_of(key: &Bytes) -> Option<Bytes> {
    let queue = LISTS.iter().find_map(|end| key.strip_suffix(*end))?;
    Some(key.slice_ref(queue))
}

/// The state of an import of items.
pub(super) struct Items<'a> {
    queues: &'a BTreeSet<Bytes>,
    /// Keys of the items that were processed.
    seen: SeenNames,
}

/// An item, and the list in which it was found.
struct ItemLocation<'a> {
    queue: &'a [u8],
    id: Bytes,
    list: Option<Bytes>,
}

impl<'a> Items<'a> {
    pub(super) fn new(queues: &'a BTreeSet<Bytes>) -> Self {
        Self {
            queues,
            seen: SeenNames::default(),
        }
    }

    /// Imports the items in the lists of a queue, the next one first.
    pub(super) async fn import_lists(
        &mut self,
        queue: &Bytes,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        for end in LISTS {
            let list = Bytes::from([&queue[..], end].concat());
            let mut until = source.request(call(&[b"LLEN", &list])).await?.size();
            while until > 0 {
                let from = until.saturating_sub(PAGE);
                let (start, stop) = (from.to_string(), (until - 1).to_string());
                let page = call(&[b"LRANGE", &list, start.as_bytes(), stop.as_bytes()]);
                let ids = source.request(page).await?.list().into_iter().rev();
                let locations = ids.map(|id| ItemLocation {
                    queue,
                    id,
                    list: Some(list.clone()),
                });
                self.import(locations.collect(), source, target).await?;
                until = from;
            }
        }
        Ok(())
    }

    /// Imports items that are in no list, given the keys of strings; reports keys that belong to no item if
    /// `reports_others`.
    pub(super) async fn import_strings(
        &mut self,
        keys: Vec<Bytes>,
        reports_others: bool,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let mut locations = Vec::new();
        for key in keys {
            let item = self.split(&key, ITEM);
            if let Some((queue, id)) = item {
                locations.push(ItemLocation {
                    queue,
                    id,
                    list: None,
                });
            } else if reports_others && LEASES.iter().all(|it| self.split(&key, it).is_none()) {
                target.report.other_key(&key);
            }
        }
        self.import(locations, source, target).await
    }

    /// Splits a key into queue and id; `None` if no queue with a list has such a key.
    fn split(&self, key: &Bytes, between: &[u8]) -> Option<(&'a [u8], Bytes)> {
        let mut locations = key.windows(between.len()).enumerate();
        locations.find_map(|(at, window)| {
            let queue = (window == between).then(|| self.queues.get(&key[..at]))??;
            Some((&queue[..], key.slice(at + between.len()..)))
        })
    }

    async fn import(
        &mut self,
        mut locations: Vec<ItemLocation<'_>>,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        locations.retain(|location| self.seen.is_new(&location.key(ITEM)));
        let lengths = locations.iter().map(|it| call(&[b"STRLEN", &it.key(ITEM)]));
        let lengths = source.request_all(lengths.collect()).await?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (location, length) in locations.into_iter().zip(lengths) {
            let size = length.size() + location.id.len();
            if size > RECORD_BYTES_MAX {
                target.report.found(RecordKind::WorkItem);
                let reason = "it is larger than 4 MiB: copy it manually with GET and SET";
                target
                    .report
                    .refused(RecordKind::WorkItem, reason, &location.key(ITEM));
                continue;
            }
            if bytes + size > READ_BYTES {
                import_batch(std::mem::take(&mut batch), source, target).await?;
                bytes = 0;
            }
            bytes += size;
            batch.push(location);
        }
        import_batch(batch, source, target).await
    }
}

impl ItemLocation<'_> {
    /// Returns the list for the item. An item in no list, because a producer or a cleaner died between two commands,
    /// is in processing if it is leased; otherwise it is queued, as a deep clean would do.
    fn list_for(&self, is_leased: bool) -> Bytes {
        let [waiting, processing] = LISTS;
        let end = if is_leased { processing } else { waiting };
        let list = self.list.clone();
        list.unwrap_or_else(|| Bytes::from([self.queue, end].concat()))
    }

    fn key(&self, between: &[u8]) -> Vec<u8> {
        [self.queue, between, &self.id].concat()
    }
}

async fn import_batch(
    locations: Vec<ItemLocation<'_>>,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let mut calls = Vec::with_capacity(locations.len() * (1 + 2 * LEASES.len()));
    for location in &locations {
        calls.push(call(&[b"GET", &location.key(ITEM)]));
        for between in LEASES {
            calls.push(call(&[b"GET", &location.key(between)]));
            calls.push(call(&[b"PTTL", &location.key(between)]));
        }
    }
    let mut values = source.request_all(calls).await?.into_iter();
    for location in locations {
        let mut next = || values.next().unwrap_or(Value::Nil);
        let data = next();
        let leases = LEASES.map(|between| (location.key(between), next().bytes(), next().number()));
        let key = location.key(ITEM);
        let data = match data {
            Value::Bytes(data) => data,
            Value::Error(text) => {
                target.report.found(RecordKind::WorkItem);
                let reason = format!("its data cannot be read: {text}");
                target.report.refused(RecordKind::WorkItem, &reason, &key);
                continue;
            }
            _ => {
                let reason = "the id has no data";
                target.report.skipped(RecordKind::WorkItem, reason, &key);
                continue;
            }
        };
        let bytes = data.len() + key.len() + location.id.len();
        let leases = leases.into_iter().filter_map(|(key, value, left)| {
            Some((Bytes::from(key), value?, lease_duration(left)))
        });
        let leases: Vec<_> = leases.collect();
        let list = location.list_for(!leases.is_empty());
        let item = WorkItem {
            key: Bytes::from(key.clone()),
            data,
            leases,
            list: Some(list),
            id: location.id,
        };
        let record = ImportRecord::Item(Box::new(item));
        target
            .send(RecordKind::WorkItem, &key, bytes, record)
            .await?;
    }
    Ok(())
}

/// Length of a lease that has no expiry in the source. No client makes one.
const UNLIMITED_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);

fn lease_duration(left_ms: i64) -> Duration {
    match u64::try_from(left_ms) {
        Ok(left) => Duration::from_millis(left),
        Err(_) if left_ms == -1 => UNLIMITED_LEASE,
        Err(_) => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ganger_client::Bytes;

    use super::{ITEM, Items, queue_of};

    fn bytes(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn a_queue_is_named_by_either_of_its_lists() {
        assert_eq!(queue_of(&bytes("a:b:queue")), Some(bytes("a:b")));
        assert_eq!(queue_of(&bytes("a:processing")), Some(bytes("a")));
        assert_eq!(queue_of(&bytes("queue")), None);
    }

    #[test]
    fn a_key_is_split_where_a_queue_ends() {
        let queues: BTreeSet<_> = [bytes("jobs:item:x")].into();
        let items = Items::new(&queues);
        let found = items.split(&bytes("jobs:item:x:item:7"), ITEM);
        assert_eq!(found, Some((&b"jobs:item:x"[..], bytes("7"))));
        assert_eq!(items.split(&bytes("jobs:item:7"), ITEM), None);
    }
}

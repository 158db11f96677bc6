//! Queues of redis-work-queue: two lists of ids, and for each item a string with its data and one for its lease.

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

/// How the names of a queue's lists end.
const LISTS: [&[u8]; 2] = [b":queue", b":processing"];
/// What stands between a queue and an id in the name of a lease, of newer and of older clients.
const LEASES: [&[u8]; 2] = [b":lease:", b":leased_by_session:"];
/// What stands there in the name of the data.
const ITEM: &[u8] = b":item:";
/// Ids that are looked at once.
const PAGE: usize = 500;
/// Bytes of items that are read at once.
const READ_BYTES: usize = 8 << 20;

/// The queue whose list a key is, by its name.
pub(super) fn queue_of(key: &Bytes) -> Option<Bytes> {
    let queue = LISTS.iter().find_map(|end| key.strip_suffix(*end))?;
    Some(key.slice_ref(queue))
}

/// The items of all queues.
pub(super) struct Items<'a> {
    queues: &'a BTreeSet<Bytes>,
    /// Keys of data that were dealt with.
    seen: SeenNames,
}

/// Where an item was found.
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

    /// The items in the lists of a queue, that which is next first.
    pub(super) async fn take_lists(
        &mut self,
        queue: &Bytes,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        for end in LISTS {
            let list = Bytes::from([&queue[..], end].concat());
            let mut until = source.one(call(&[b"LLEN", &list])).await?.size();
            while until > 0 {
                let from = until.saturating_sub(PAGE);
                let (start, stop) = (from.to_string(), (until - 1).to_string());
                let page = call(&[b"LRANGE", &list, start.as_bytes(), stop.as_bytes()]);
                let ids = source.one(page).await?.list().into_iter().rev();
                let places = ids.map(|id| ItemLocation {
                    queue,
                    id,
                    list: Some(list.clone()),
                });
                self.take(places.collect(), source, target).await?;
                until = from;
            }
        }
        Ok(())
    }

    /// Strings: items that are in no list, and what belongs to none.
    pub(super) async fn take_strings(
        &mut self,
        keys: Vec<Bytes>,
        tells_others: bool,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        let mut places = Vec::new();
        for key in keys {
            let item = self.split(&key, ITEM);
            if let Some((queue, id)) = item {
                places.push(ItemLocation {
                    queue,
                    id,
                    list: None,
                });
            } else if tells_others && LEASES.iter().all(|it| self.split(&key, it).is_none()) {
                target.report.other_key(&key);
            }
        }
        self.take(places, source, target).await
    }

    /// The queue and the id of a key, if it is one of a queue that has a list.
    fn split(&self, key: &Bytes, between: &[u8]) -> Option<(&'a [u8], Bytes)> {
        let mut places = key.windows(between.len()).enumerate();
        places.find_map(|(at, window)| {
            let queue = (window == between).then(|| self.queues.get(&key[..at]))??;
            Some((&queue[..], key.slice(at + between.len()..)))
        })
    }

    async fn take(
        &mut self,
        mut places: Vec<ItemLocation<'_>>,
        source: &mut Source,
        target: &mut Target,
    ) -> Result<(), Failure> {
        places.retain(|place| self.seen.is_new(&place.key(ITEM)));
        let lengths = places.iter().map(|it| call(&[b"STRLEN", &it.key(ITEM)]));
        let lengths = source.ask(lengths.collect()).await?;
        let (mut some, mut bytes) = (Vec::new(), 0);
        for (place, length) in places.into_iter().zip(lengths) {
            let size = length.size() + place.id.len();
            if size > RECORD_BYTES_MAX {
                target.report.found(RecordKind::WorkItem);
                let reason = "it is larger than 4 MiB: copy it by hand with GET and SET";
                target
                    .report
                    .refused(RecordKind::WorkItem, reason, &place.key(ITEM));
                continue;
            }
            if bytes + size > READ_BYTES {
                take_some(std::mem::take(&mut some), source, target).await?;
                bytes = 0;
            }
            bytes += size;
            some.push(place);
        }
        take_some(some, source, target).await
    }
}

impl ItemLocation<'_> {
    /// The list that it goes into. One that is in none, because a producer or a cleaner died between two commands, is
    /// being worked on if it is leased; else it is in line, as a deep clean would have it.
    fn list_for(&self, is_leased: bool) -> Bytes {
        let [waiting, worked_on] = LISTS;
        let end = if is_leased { worked_on } else { waiting };
        let list = self.list.clone();
        list.unwrap_or_else(|| Bytes::from([self.queue, end].concat()))
    }

    fn key(&self, between: &[u8]) -> Vec<u8> {
        [self.queue, between, &self.id].concat()
    }
}

async fn take_some(
    places: Vec<ItemLocation<'_>>,
    source: &mut Source,
    target: &mut Target,
) -> Result<(), Failure> {
    let mut calls = Vec::with_capacity(places.len() * (1 + 2 * LEASES.len()));
    for place in &places {
        calls.push(call(&[b"GET", &place.key(ITEM)]));
        for between in LEASES {
            calls.push(call(&[b"GET", &place.key(between)]));
            calls.push(call(&[b"PTTL", &place.key(between)]));
        }
    }
    let mut values = source.ask(calls).await?.into_iter();
    for place in places {
        let mut next = || values.next().unwrap_or(Value::Nil);
        let data = next();
        let leases = LEASES.map(|between| (place.key(between), next().bytes(), next().number()));
        let key = place.key(ITEM);
        let data = match data {
            Value::Bytes(data) => data,
            Value::Error(text) => {
                target.report.found(RecordKind::WorkItem);
                let reason = format!("its data cannot be read: {text}");
                target.report.refused(RecordKind::WorkItem, &reason, &key);
                continue;
            }
            _ => {
                let reason = "an id without data is no item";
                target.report.left_out(RecordKind::WorkItem, reason, &key);
                continue;
            }
        };
        let bytes = data.len() + key.len() + place.id.len();
        let leases = leases
            .into_iter()
            .filter_map(|(key, value, left)| Some((Bytes::from(key), value?, lasts(left))));
        let leases: Vec<_> = leases.collect();
        let list = place.list_for(!leases.is_empty());
        let item = WorkItem {
            key: Bytes::from(key.clone()),
            data,
            leases,
            list: Some(list),
            id: place.id,
        };
        let record = ImportRecord::Item(Box::new(item));
        target
            .send(RecordKind::WorkItem, &key, bytes, record)
            .await?;
    }
    Ok(())
}

/// How long a lease without an end lasts here. No client sets one: somebody did by hand.
const UNLIMITED_LEASE: Duration = Duration::from_secs(10 * 365 * 86_400);

fn lasts(left_ms: i64) -> Duration {
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

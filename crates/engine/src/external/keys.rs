//! Raw keys: strings with an expiry, and lists, as in Redis.
//!
//! They share turns and commits with jobs, and nothing else. Values are held in memory, as in Redis. An expired key
//! is removed before anything is applied at or after its time, so the calls never see one.

mod as_job;
mod as_queue;
mod budget;
mod calls;
mod glob;
mod list;
mod lists;
mod names;
mod strings;
mod unused_items;
mod upkeep;
mod work_queue;

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::keys::{ElementRecord, KeyAnswers, KeyCalls, KeyKind, KeyRecord};
use ganger_types::query::JobQuery;
use ganger_types::reply::{ExternalJobView, QueueView};
use ganger_types::why::Explanation;
use ganger_types::{
    Bytes, Change, Elapsed, ExternalChange, ExternalJob, ExternalRow, JobId, JobState, Namespace,
    Now, Queue,
};

use super::{ExternalJobScan, ExternalSystem, ScanLimits};
use crate::Effects;
use budget::Budget;
pub use glob::Glob;
use list::List;
use unused_items::UnusedItems;
use upkeep::Upkeep;
use work_queue::work_queue_of;

/// The keys of all namespaces.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    spaces: BTreeMap<Namespace, KeySpace>,
    /// Keys that expire, sorted by time.
    due: Due,
    counters: Counters,
    upkeep: Upkeep,
    /// Lists that got elements since the last [`Keys::take_grown`].
    grown: BTreeSet<(Namespace, Bytes)>,
    /// The namespace of each list, by its number, while rows are loaded; empty afterwards.
    loading: BTreeMap<u64, Namespace>,
}

/// Keys that expire: time, number, namespace.
type Due = BTreeSet<(Elapsed, u64, Namespace)>;

/// Counters whose values are never used twice.
#[derive(Debug, Default)]
struct Counters {
    /// The last number given to a key. After a restart it continues after the largest number of a stored key.
    number: u64,
    revision: u64,
}

/// The keys of one namespace.
#[derive(Debug, Default)]
struct KeySpace {
    names: BTreeMap<Bytes, u64>,
    /// Keys by number, which is the order of [`ganger_types::keys::KeyCall::Scan`].
    entries: BTreeMap<u64, Entry>,
    /// The work queues: those with at least one list.
    queues: BTreeSet<Bytes>,
    unused_items: UnusedItems,
}

/// A key with its value and expiry.
#[derive(Debug)]
struct Entry {
    name: Bytes,
    value: Value,
    /// A new value after each change of the key.
    revision: u64,
    expires_at: Option<Elapsed>,
}

#[derive(Debug)]
enum Value {
    String(Bytes),
    List(List),
}

impl Entry {
    fn kind(&self) -> KeyKind {
        match self.value {
            Value::String(_) => KeyKind::String,
            Value::List(_) => KeyKind::List,
        }
    }

    fn record(&self, number: u64, namespace: &Namespace) -> KeyRecord {
        KeyRecord {
            number,
            namespace: namespace.clone(),
            name: self.name.clone(),
            value: match &self.value {
                Value::String(value) => Some(value.clone()),
                Value::List(_) => None,
            },
            expires_at: self.expires_at,
        }
    }
}

impl KeySpace {
    /// Records that a list was created.
    fn list_made(&mut self, name: &Bytes) {
        if let Some(queue) = work_queue_of(name) {
            self.queues.insert(queue);
        }
    }

    /// Records that a list was removed.
    fn list_gone(&mut self, name: &Bytes) {
        if let Some(queue) = work_queue_of(name)
            && self.lists_of(&queue).is_none()
        {
            self.queues.remove(&queue);
        }
    }

    fn find(&self, name: &Bytes) -> Option<(u64, &Entry)> {
        let number = *self.names.get(name)?;
        Some((number, self.entries.get(&number)?))
    }
}

impl Keys {
    /// Removes expired keys and does due upkeep checks, each as of its own time and at most `limit` in all. Returns
    /// whether more is due.
    pub(crate) fn advance(&mut self, now: Now, limit: usize, out: &mut Effects) -> bool {
        for _ in 0..limit {
            let is_due = |at: &Elapsed| *at <= now.elapsed;
            let Some(at) = self.next_due().filter(is_due) else {
                return false;
            };
            // Keys expire before the checks of the same time.
            match self.due.first().cloned() {
                Some((expires_at, number, namespace)) if expires_at <= at => {
                    self.context(&namespace, now, out).remove_expired(number);
                }
                _ => self.look(now, out),
            }
        }
        self.next_due().is_some_and(|at| at <= now.elapsed)
    }

    /// The time of the next expiration or check; `None` if there is none.
    pub(crate) fn next_due(&self) -> Option<Elapsed> {
        let expires_at = self.due.first().map(|(at, ..)| *at);
        [expires_at, self.upkeep.next_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Applies calls in order.
    pub(crate) fn apply(&mut self, now: Now, calls: KeyCalls, out: &mut Effects) -> KeyAnswers {
        self.advance(now, usize::MAX, out);
        let namespace = &calls.namespace;
        let is_as_watched = calls
            .watched
            .iter()
            .all(|(name, revision)| self.revision(namespace, name) == *revision);
        if !is_as_watched {
            return KeyAnswers::Changed;
        }
        let mut context = self.context(namespace, now, out);
        KeyAnswers::Each(
            calls
                .calls
                .into_iter()
                .map(|call| context.call(call))
                .collect(),
        )
    }

    fn context<'a>(
        &'a mut self,
        namespace: &'a Namespace,
        now: Now,
        out: &'a mut Effects,
    ) -> KeyContext<'a> {
        if !self.spaces.contains_key(namespace) {
            self.spaces.insert(namespace.clone(), KeySpace::default());
        }
        KeyContext {
            namespace,
            space: self.spaces.get_mut(namespace).expect("it was just made"),
            due: &mut self.due,
            counters: &mut self.counters,
            upkeep: &mut self.upkeep,
            grown: &mut self.grown,
            now,
            changes: &mut out.changes,
            budget: Budget::default(),
        }
    }

    fn revision(&self, namespace: &Namespace, name: &Bytes) -> u64 {
        let space = self.spaces.get(namespace);
        let found = space.and_then(|space| space.find(name));
        found.map_or(0, |(_, entry)| entry.revision)
    }

    /// Completes the loading, after all rows.
    pub(crate) fn loaded(&mut self) {
        self.loading.clear();
    }

    /// The type of a key's value at `now`; `None` if the key does not exist.
    pub(crate) fn kind(&self, now: Now, namespace: &Namespace, name: &Bytes) -> Option<KeyKind> {
        let (_, entry) = self.spaces.get(namespace)?.find(name)?;
        let is_there = entry.expires_at.is_none_or(|at| at > now.elapsed);
        is_there.then(|| entry.kind())
    }

    pub(crate) fn number(&self, namespace: &Namespace, name: &Bytes) -> Option<u64> {
        self.spaces.get(namespace)?.names.get(name).copied()
    }

    /// Lists that got elements since the last call.
    pub(crate) fn take_grown(&mut self) -> Vec<(Namespace, Bytes)> {
        std::mem::take(&mut self.grown).into_iter().collect()
    }

    /// Loads a stored key.
    fn load_key(&mut self, record: KeyRecord) {
        let number = record.number;
        self.counters.number = self.counters.number.max(number);
        self.counters.revision += 1;
        if let Some(at) = record.expires_at {
            self.due.insert((at, number, record.namespace.clone()));
        }
        let value = record
            .value
            .map_or_else(|| Value::List(List::default()), Value::String);
        let is_list = matches!(value, Value::List(_));
        if is_list {
            self.loading.insert(number, record.namespace.clone());
        }
        let space = self.spaces.entry(record.namespace).or_default();
        space.names.insert(record.name.clone(), number);
        let entry = Entry {
            name: record.name.clone(),
            value,
            revision: self.counters.revision,
            expires_at: record.expires_at,
        };
        space.entries.insert(number, entry);
        if is_list {
            space.list_made(&record.name);
        }
    }

    /// Loads a stored element; its list was loaded before.
    fn load_element(&mut self, record: ElementRecord) {
        let namespace = self.loading.get(&record.list);
        let space = namespace.and_then(|namespace| self.spaces.get_mut(namespace));
        let entry = space.and_then(|space| space.entries.get_mut(&record.list));
        if let Some(Entry {
            value: Value::List(list),
            ..
        }) = entry
        {
            list.put(record.place, record.value);
        }
    }
}

impl ExternalSystem for Keys {
    fn load(&mut self, row: ExternalRow) {
        match row {
            ExternalRow::Key(record) => self.load_key(*record),
            ExternalRow::Element(record) => self.load_element(*record),
            ExternalRow::Qless(..) => {}
        }
    }

    fn rows(&self) -> Vec<ExternalRow> {
        let (mut keys, mut elements) = (Vec::new(), Vec::new());
        for (namespace, space) in &self.spaces {
            for (number, entry) in &space.entries {
                keys.push(ExternalRow::Key(Box::new(entry.record(*number, namespace))));
                if let Value::List(list) = &entry.value {
                    elements.extend(list.iter().map(|(place, value)| {
                        ExternalRow::Element(Box::new(ElementRecord {
                            list: *number,
                            place,
                            value: value.clone(),
                        }))
                    }));
                }
            }
        }
        keys.extend(elements);
        keys
    }

    fn check(&self, wrong: &mut Vec<String>) {
        let mut due = Due::new();
        for (namespace, space) in &self.spaces {
            if space.names.len() != space.entries.len() {
                wrong.push(format!("namespace {namespace} has keys without names"));
            }
            for (number, entry) in &space.entries {
                if space.names.get(&entry.name) != Some(number) {
                    wrong.push(format!("key {number} is not found by its name"));
                }
                if let Some(at) = entry.expires_at {
                    due.insert((at, *number, namespace.clone()));
                }
                if let Value::List(list) = &entry.value
                    && (list.is_empty() || !list.is_sound())
                {
                    wrong.push(format!("list {number} is empty or its index is wrong"));
                }
            }
            if space.queues != space.work_queues() {
                wrong.push(format!(
                    "the work queues of {namespace} are not those of its lists"
                ));
            }
        }
        if due != self.due {
            wrong.push("the order of expiries differs from the keys".to_owned());
        }
    }

    fn namespaces(&self) -> Vec<&Namespace> {
        let with_queues = self.spaces.iter();
        let with_queues = with_queues.filter(|(_, space)| !space.queues.is_empty());
        with_queues.map(|(namespace, _)| namespace).collect()
    }

    fn state(&self, namespace: &Namespace, id: &JobId) -> Option<JobState> {
        as_job::state(self.spaces.get(namespace)?, id)
    }

    fn job(&self, now: Now, namespace: &Namespace, id: &JobId) -> Option<ExternalJobView> {
        as_job::view_by_id(self.spaces.get(namespace)?, now, namespace, id)
    }

    fn jobs(
        &self,
        now: Now,
        query: &JobQuery,
        after: Option<&ExternalJob>,
        measure: ScanLimits,
    ) -> ExternalJobScan {
        let space = self.spaces.get(&query.namespace);
        space.map_or(ExternalJobScan::NONE, |space| {
            as_job::scan(space, now, query, after, measure)
        })
    }

    fn id_when_hidden(&self, job: &ExternalJob) -> Option<JobId> {
        as_job::full_name(job)
    }

    fn why(&self, now: Now, namespace: &Namespace, id: &JobId) -> Option<Explanation> {
        let space = self.spaces.get(namespace)?;
        as_job::explain(space, self.upkeep.settings(), now, id)
    }

    fn needed_instead(&self) -> &'static str {
        "it is an item of raw keys, which only its own clients end and move: to end it, DEL its key over the Redis port"
    }

    fn queues(&self, namespace: &Namespace) -> Vec<Queue> {
        let names = self.spaces.get(namespace).map(|space| &space.queues);
        let names = names.into_iter().flatten();
        names.filter_map(|name| Queue::new(name).ok()).collect()
    }

    fn queue(&self, namespace: &Namespace, queue: &Queue) -> Option<QueueView> {
        as_queue::view(self.spaces.get(namespace)?, queue)
    }

    fn add_to(&self, namespace: &Namespace, view: &mut QueueView) {
        if let Some(space) = self.spaces.get(namespace) {
            as_queue::add(view, space);
        }
    }
}

/// What a call works on: the keys of a namespace, and the effects.
struct KeyContext<'a> {
    namespace: &'a Namespace,
    space: &'a mut KeySpace,
    due: &'a mut Due,
    counters: &'a mut Counters,
    upkeep: &'a mut Upkeep,
    grown: &'a mut BTreeSet<(Namespace, Bytes)>,
    now: Now,
    changes: &'a mut Vec<Change>,
    /// Work that the calls have done so far.
    budget: Budget,
}

impl KeyContext<'_> {
    /// Creates a key that does not exist. The caller writes its row.
    fn make(&mut self, name: &Bytes, value: Value) -> u64 {
        self.counters.number += 1;
        let number = self.counters.number;
        self.space.names.insert(name.clone(), number);
        let is_list = matches!(value, Value::List(_));
        let entry = Entry {
            name: name.clone(),
            value,
            revision: 0,
            expires_at: None,
        };
        self.space.entries.insert(number, entry);
        if is_list {
            self.space.list_made(name);
        }
        number
    }

    /// Writes the row of a key; elements of a list have rows of their own.
    fn write(&mut self, number: u64) {
        let record = self.space.entries[&number].record(number, self.namespace);
        self.changes
            .push(Change::External(ExternalChange::PutKey(Box::new(record))));
        self.touch(number);
        self.lease_written(number);
    }

    fn touch(&mut self, number: u64) {
        self.counters.revision += 1;
        if let Some(entry) = self.space.entries.get_mut(&number) {
            entry.revision = self.counters.revision;
        }
    }

    /// Sets the expiry of a key. The caller writes its row.
    fn expire_at(&mut self, number: u64, at: Option<Elapsed>) {
        let Some(entry) = self.space.entries.get_mut(&number) else {
            return;
        };
        if let Some(old) = std::mem::replace(&mut entry.expires_at, at) {
            self.due.remove(&(old, number, self.namespace.clone()));
        }
        if let Some(at) = at {
            self.due.insert((at, number, self.namespace.clone()));
        }
    }

    /// Removes a key with its value.
    fn remove(&mut self, number: u64) {
        self.expire_at(number, None);
        let Some(entry) = self.space.entries.remove(&number) else {
            return;
        };
        self.space.names.remove(&entry.name);
        self.space.unused_items.forget(&entry.name);
        self.drop_elements(number, &entry.name, &entry.value);
        self.changes
            .push(Change::External(ExternalChange::RemoveKey(number)));
        self.lease_lost(&entry.name, None);
    }

    /// Removes a key that has expired.
    fn remove_expired(&mut self, number: u64) {
        let Some(entry) = self.space.entries.get(&number) else {
            return;
        };
        let (name, revision) = (entry.name.clone(), entry.revision);
        self.remove(number);
        self.lease_lost(&name, Some(revision));
    }

    /// Removes the rows of the elements of a removed value.
    fn drop_elements(&mut self, number: u64, name: &Bytes, value: &Value) {
        if let Value::List(list) = value {
            let places = list.iter().map(|(place, _)| place);
            self.changes.extend(
                places.map(|place| Change::External(ExternalChange::RemoveElement(number, place))),
            );
            self.space.list_gone(name);
        }
    }
}

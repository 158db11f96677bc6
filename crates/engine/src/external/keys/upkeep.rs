//! Upkeep of work queues of raw keys, which makes a cleaner unnecessary.
//!
//! When a process dies, an item may stay in processing without a lease, or be in no list at all. The upkeep adds such
//! items to their queue after a delay. It only changes ids whose item exists.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ganger_types::keys::{Condition, End, KeyCall, KeyUpkeep, UpkeepCounts};
use ganger_types::{Bytes, Elapsed, Namespace, Now};

use super::work_queue::{
    ITEM, ItemState, LEASES, PROCESSING, QUEUE, is_item_like, joined, readings, work_queue_of,
};
use super::{KeyContext, Keys, Value};
use crate::Effects;

/// A check that is due at some time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum UpkeepCheck {
    /// Checks an id in processing: queue and id.
    Processing(Bytes, Bytes),
    /// Checks a key that may be an item in no list.
    Staged(Bytes),
}

/// The upkeep of a shard. Nothing is stored: a start checks everything.
#[derive(Debug)]
pub(super) struct Upkeep {
    settings: KeyUpkeep,
    looks: UpkeepChecks,
    /// Time at which the upkeep began, and the last revision of a key then. The worker of a lease from before may not
    /// have been able to renew it, so the delay counts from the start.
    begun_at: (Elapsed, u64),
    counts: UpkeepCounts,
}

/// Checks by their time and by what they check; each is there once.
#[derive(Debug, Default)]
struct UpkeepChecks {
    due: BTreeSet<(Elapsed, Namespace, UpkeepCheck)>,
    at: BTreeMap<(Namespace, UpkeepCheck), Elapsed>,
}

impl UpkeepChecks {
    fn next_due(&self) -> Option<Elapsed> {
        self.due.first().map(|(at, ..)| *at)
    }

    fn pop_first(&mut self) -> Option<(Namespace, UpkeepCheck)> {
        let (_, namespace, look) = self.due.pop_first()?;
        let what = (namespace, look);
        self.at.remove(&what);
        Some(what)
    }

    /// Sets the time of a check, in place of an earlier one.
    fn set(&mut self, at: Elapsed, namespace: &Namespace, look: UpkeepCheck) {
        let what = (namespace.clone(), look);
        if let Some(old) = self.at.insert(what.clone(), at) {
            self.due.remove(&(old, what.0.clone(), what.1.clone()));
        }
        self.due.insert((at, what.0, what.1));
    }

    /// Makes sure that a check is done at this time or earlier.
    fn set_latest(&mut self, at: Elapsed, namespace: &Namespace, look: UpkeepCheck) {
        let what = (namespace.clone(), look);
        if self.at.get(&what).is_none_or(|old| *old > at) {
            self.set(at, namespace, what.1);
        }
    }
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            settings: KeyUpkeep::OFF,
            looks: UpkeepChecks::default(),
            begun_at: (Elapsed::default(), 0),
            counts: UpkeepCounts::default(),
        }
    }
}

impl Keys {
    /// Begins the upkeep and schedules a check of every item.
    pub(crate) fn begin_upkeep(&mut self, now: Elapsed, settings: KeyUpkeep) {
        self.upkeep.settings = settings;
        self.upkeep.looks = UpkeepChecks::default();
        self.upkeep.begun_at = (now, self.counters.revision);
        let mut looks = Vec::new();
        for (namespace, space) in &self.spaces {
            let mut listed = BTreeSet::new();
            for entry in space.entries.values() {
                let Value::List(list) = &entry.value else {
                    continue;
                };
                for (_, id) in list.iter() {
                    if let Some(queue) = entry.name.strip_suffix(PROCESSING) {
                        let queue = Bytes::copy_from_slice(queue);
                        listed.insert(joined(&queue, ITEM, id));
                        looks.push((
                            namespace.clone(),
                            UpkeepCheck::Processing(queue, id.clone()),
                        ));
                    } else if let Some(queue) = entry.name.strip_suffix(QUEUE) {
                        listed.insert(joined(queue, ITEM, id));
                    }
                }
            }
            let strings = space.entries.values().map(|entry| &entry.name);
            let staged = strings.filter(|name| is_item_like(name) && !listed.contains(*name));
            looks.extend(staged.map(|name| (namespace.clone(), UpkeepCheck::Staged(name.clone()))));
        }
        for (namespace, look) in looks {
            self.upkeep.arm(now, &namespace, look);
        }
    }

    /// Does the check that is due first.
    pub(super) fn look(&mut self, now: Now, out: &mut Effects) {
        let Some((namespace, look)) = self.upkeep.looks.pop_first() else {
            return;
        };
        let mut context = self.context(&namespace, now, out);
        match look {
            UpkeepCheck::Processing(queue, id) => context.look_at_processing(queue, id),
            UpkeepCheck::Staged(item) => context.look_at_staged(item),
        }
    }

    /// Counts of the upkeep since the start.
    pub(crate) fn upkeep_counts(&self) -> UpkeepCounts {
        self.upkeep.counts
    }
}

impl Upkeep {
    pub(super) fn next_due(&self) -> Option<Elapsed> {
        self.looks.next_due()
    }

    /// Whether items in processing are put back at all.
    pub(super) fn puts_back(&self) -> bool {
        self.settings.put_back_after.is_some()
    }

    fn is_on(&self) -> bool {
        self.settings != KeyUpkeep::OFF
    }

    pub(super) fn settings(&self) -> KeyUpkeep {
        self.settings
    }

    /// Counts an item that went back because the client that took it has disconnected.
    pub(super) fn note_return(&mut self) {
        self.counts.returned += 1;
    }

    fn arm(&mut self, now: Elapsed, namespace: &Namespace, look: UpkeepCheck) {
        if let Some(grace) = self.grace(&look) {
            self.looks.set(now.after(grace), namespace, look);
        }
    }

    fn grace(&self, look: &UpkeepCheck) -> Option<Duration> {
        match look {
            UpkeepCheck::Processing(..) => self.settings.put_back_after,
            UpkeepCheck::Staged(_) => self.settings.rescue_after,
        }
    }
}

impl KeyContext<'_> {
    /// Schedules a check of an id that was added to a list.
    pub(super) fn listed(&mut self, list: &Bytes, id: &Bytes) {
        if let Some(queue) = list.strip_suffix(PROCESSING) {
            let look = UpkeepCheck::Processing(Bytes::copy_from_slice(queue), id.clone());
            self.upkeep.arm(self.now.elapsed, self.namespace, look);
        }
    }

    /// Schedules a check of an id that was removed from a list and added to no other.
    pub(super) fn unlisted(&mut self, list: &Bytes, id: &Bytes) {
        let Some(queue) = work_queue_of(list) else {
            return;
        };
        let item = joined(&queue, ITEM, id);
        if list.ends_with(PROCESSING) {
            self.space.unused_items.forget(&item);
        }
        if self.number(&item).is_some() {
            self.stage(item);
        }
    }

    /// Schedules a check of a new string.
    pub(super) fn made(&mut self, name: &Bytes) {
        if is_item_like(name) {
            self.stage(name.clone());
        }
    }

    /// If the written key is the lease of an item in processing, schedules a check of the item at its expiry.
    pub(super) fn lease_written(&mut self, number: u64) {
        let Some(entry) = self.space.entries.get(&number) else {
            return;
        };
        let (name, until) = (entry.name.clone(), entry.expires_at);
        for (queue, id) in self.leased(&name) {
            if self.has(&joined(&queue, b"", PROCESSING), &id) {
                self.look_again(until, UpkeepCheck::Processing(queue, id));
            }
        }
    }

    /// If the removed key was a lease, schedules a check of its item after the delay. `expired_revision` is the revision of a
    /// lease that has expired: its item is checked at once.
    pub(super) fn lease_lost(&mut self, name: &Bytes, expired_revision: Option<u64>) {
        for (queue, id) in self.leased(name) {
            let now = self.now.elapsed;
            if !self.has(&joined(&queue, b"", PROCESSING), &id) {
                let look = UpkeepCheck::Staged(joined(&queue, ITEM, &id));
                if let Some(grace) = self.upkeep.grace(&look) {
                    let looks = &mut self.upkeep.looks;
                    looks.set_latest(now.after(grace), self.namespace, look);
                }
                continue;
            }
            let look = UpkeepCheck::Processing(queue, id);
            let Some(grace) = self.upkeep.grace(&look) else {
                continue;
            };
            let (begun_at, last_before) = self.upkeep.begun_at;
            let at = match expired_revision {
                Some(revision) if revision > last_before => now,
                Some(_) => now.max(begun_at.after(grace)),
                None => now.after(grace),
            };
            self.upkeep.looks.set(at, self.namespace, look);
        }
    }

    /// The items, by queue and id, whose lease a key is by its name.
    fn leased(&self, name: &Bytes) -> Vec<(Bytes, Bytes)> {
        if !self.upkeep.is_on() {
            return Vec::new();
        }
        let ways = LEASES.iter().flat_map(|between| readings(name, between));
        ways.filter(|(queue, id)| self.number(&joined(queue, ITEM, id)).is_some())
            .collect()
    }

    fn stage(&mut self, item: Bytes) {
        self.upkeep
            .arm(self.now.elapsed, self.namespace, UpkeepCheck::Staged(item));
    }

    fn look_at_processing(&mut self, queue: Bytes, id: Bytes) {
        let processing = joined(&queue, b"", PROCESSING);
        if !self.has(&processing, &id) {
            return;
        }
        match self.item_state_now(&queue, &id) {
            ItemState::Gone => {}
            ItemState::Leased(until, _) => {
                self.look_again(until, UpkeepCheck::Processing(queue, id));
            }
            ItemState::Free => {
                self.edit(KeyCall::Remove {
                    key: processing,
                    count: 0,
                    value: id.clone(),
                });
                let main = joined(&queue, b"", QUEUE);
                if !self.has(&main, &id) {
                    self.put_in_line(main, End::Left, id);
                }
                self.upkeep.counts.put_back += 1;
            }
        }
    }

    fn look_at_staged(&mut self, item: Bytes) {
        for (queue, id) in readings(&item, ITEM) {
            let main = joined(&queue, b"", QUEUE);
            let processing = joined(&queue, b"", PROCESSING);
            let is_known = self.number(&main).is_some() || self.number(&processing).is_some();
            if !is_known || self.has(&main, &id) || self.has(&processing, &id) {
                continue;
            }
            match self.item_state_now(&queue, &id) {
                ItemState::Gone => return,
                ItemState::Leased(until, _) => {
                    return self.look_again(until, UpkeepCheck::Staged(item));
                }
                ItemState::Free => {
                    self.put_in_line(main, End::Left, id);
                    self.upkeep.counts.rescued += 1;
                    return;
                }
            }
        }
    }

    /// Schedules another check for the end of a lease. A lease that never expires may be removed any time, so its
    /// item is checked again after the delay.
    fn look_again(&mut self, until: Option<Elapsed>, look: UpkeepCheck) {
        match until {
            Some(until) if self.upkeep.grace(&look).is_some() => {
                self.upkeep.looks.set(until, self.namespace, look);
            }
            Some(_) => {}
            None => self.upkeep.arm(self.now.elapsed, self.namespace, look),
        }
    }

    /// The state of an item. Expired keys are removed at their own time, so none is left here.
    fn item_state_now(&self, queue: &[u8], id: &[u8]) -> ItemState<'_> {
        self.space.item_state(queue, id, Elapsed::default())
    }

    fn has(&self, list: &Bytes, id: &Bytes) -> bool {
        self.space.list(list).is_some_and(|list| list.has(id))
    }

    pub(super) fn put_in_line(&mut self, list: Bytes, end: End, id: Bytes) {
        self.edit(KeyCall::Push {
            key: list,
            end,
            values: vec![id],
            condition: Condition::Always,
        });
    }

    /// Applies a call of the upkeep. A key that is not a list, as it should be, does not change.
    pub(super) fn edit(&mut self, call: KeyCall) {
        drop(self.call(call));
    }
}

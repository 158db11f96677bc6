//! What is done for work queues of raw keys without being asked, so that no cleaner is needed.
//!
//! Two things go wrong when a process dies: an item stays in processing without a lease, or it is in no list at all. Both
//! are put back here after a while. Only ids whose item exists are touched: everything else is the clients' own business.

use std::collections::BTreeSet;

use ganger_types::keys::{Condition, End, KeyCall, KeyUpkeep, UpkeepCounts};
use ganger_types::{Bytes, Elapsed, Namespace, Now};

use super::work_queue::{
    ITEM, PROCESSING, QUEUE, Standing, is_item_like, joined, readings, work_queue_of,
};
use super::{Desk, Keys, Value};
use crate::Effects;

/// What is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// An id that was put into a list of processing: its queue, and the id.
    Processing(Bytes, Bytes),
    /// A key that may be an item in no list.
    Staged(Bytes),
}

/// What is to be looked at, and when. Nothing of it is stored: a start looks at everything.
#[derive(Debug)]
pub(super) struct Upkeep {
    settings: KeyUpkeep,
    looks: BTreeSet<(Elapsed, Namespace, Look)>,
    counts: UpkeepCounts,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            settings: KeyUpkeep::OFF,
            looks: BTreeSet::new(),
            counts: UpkeepCounts::default(),
        }
    }
}

impl Keys {
    /// Begins the upkeep: all that is there is looked at when its grace is over.
    pub(crate) fn begin_upkeep(&mut self, now: Elapsed, settings: KeyUpkeep) {
        self.upkeep.settings = settings;
        self.upkeep.looks.clear();
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
                        looks.push((namespace.clone(), Look::Processing(queue, id.clone())));
                    } else if let Some(queue) = entry.name.strip_suffix(QUEUE) {
                        listed.insert(joined(queue, ITEM, id));
                    }
                }
            }
            let strings = space.entries.values().map(|entry| &entry.name);
            let staged = strings.filter(|name| is_item_like(name) && !listed.contains(*name));
            looks.extend(staged.map(|name| (namespace.clone(), Look::Staged(name.clone()))));
        }
        for (namespace, look) in looks {
            self.upkeep.arm(now, &namespace, look);
        }
    }

    /// Looks at what is due first.
    pub(super) fn look(&mut self, now: Now, out: &mut Effects) {
        let Some((_, namespace, look)) = self.upkeep.looks.pop_first() else {
            return;
        };
        let mut desk = self.desk(&namespace, now, out);
        match look {
            Look::Processing(queue, id) => desk.look_at_processing(queue, id),
            Look::Staged(item) => desk.look_at_staged(item),
        }
    }

    /// What upkeep has done since the start.
    pub(crate) fn upkeep_counts(&self) -> UpkeepCounts {
        self.upkeep.counts
    }
}

impl Upkeep {
    pub(super) fn next_due(&self) -> Option<Elapsed> {
        self.looks.first().map(|(at, ..)| *at)
    }

    /// Whether items are put back at all.
    pub(super) fn puts_back(&self) -> bool {
        self.settings.put_back_after.is_some()
    }

    pub(super) fn settings(&self) -> KeyUpkeep {
        self.settings
    }

    /// An item went back because whoever took it has gone.
    pub(super) fn note_return(&mut self) {
        self.counts.returned += 1;
    }

    fn arm(&mut self, now: Elapsed, namespace: &Namespace, look: Look) {
        let grace = match look {
            Look::Processing(..) => self.settings.put_back_after,
            Look::Staged(_) => self.settings.rescue_after,
        };
        if let Some(grace) = grace {
            self.looks
                .insert((now.after(grace), namespace.clone(), look));
        }
    }
}

impl Desk<'_> {
    /// An id was put into a list.
    pub(super) fn listed(&mut self, list: &Bytes, id: &Bytes) {
        if let Some(queue) = list.strip_suffix(PROCESSING) {
            let look = Look::Processing(Bytes::copy_from_slice(queue), id.clone());
            self.upkeep.arm(self.now.elapsed, self.namespace, look);
        }
    }

    /// An id was taken out of a list, and into no other one.
    pub(super) fn unlisted(&mut self, list: &Bytes, id: &Bytes) {
        let Some(queue) = work_queue_of(list) else {
            return;
        };
        let item = joined(&queue, ITEM, id);
        if list.ends_with(PROCESSING) {
            self.space.untouched.forget(&item);
        }
        if self.number(&item).is_some() {
            self.stage(item);
        }
    }

    /// A string was made that was not there.
    pub(super) fn made(&mut self, name: &Bytes) {
        if is_item_like(name) {
            self.stage(name.clone());
        }
    }

    fn stage(&mut self, item: Bytes) {
        self.upkeep
            .arm(self.now.elapsed, self.namespace, Look::Staged(item));
    }

    fn look_at_processing(&mut self, queue: Bytes, id: Bytes) {
        let processing = joined(&queue, b"", PROCESSING);
        if !self.has(&processing, &id) {
            return;
        }
        match self.standing_of(&queue, &id) {
            Standing::Gone => {}
            Standing::Leased(until, _) => self.look_again(until, Look::Processing(queue, id)),
            Standing::Free => {
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
            match self.standing_of(&queue, &id) {
                Standing::Gone => return,
                Standing::Leased(until, _) => return self.look_again(until, Look::Staged(item)),
                Standing::Free => {
                    self.put_in_line(main, End::Left, id);
                    self.upkeep.counts.rescued += 1;
                    return;
                }
            }
        }
    }

    /// When the lease is over; one without an end may be given up any time.
    fn look_again(&mut self, until: Option<Elapsed>, look: Look) {
        match until {
            Some(until) => {
                let entry = (until, self.namespace.clone(), look);
                self.upkeep.looks.insert(entry);
            }
            None => self.upkeep.arm(self.now.elapsed, self.namespace, look),
        }
    }

    /// Whether somebody works on an item. What has expired is removed at its own time, so it is not looked at here.
    fn standing_of(&self, queue: &[u8], id: &[u8]) -> Standing<'_> {
        self.space.standing(queue, id, Elapsed::default())
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

    /// A call of our own. A key that holds something else than the list it should is left as it is.
    pub(super) fn edit(&mut self, call: KeyCall) {
        drop(self.call(call));
    }
}

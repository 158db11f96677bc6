//! Items that were taken from their queue, and whose data nobody has asked for since, nor set a lease.
//!
//! A worker that takes an id asks for its data at once, on whatever connection. So when the connection that took it
//! ends before anybody has, nobody works on it, and it goes back to where it was next without waiting for its grace to
//! be over. Nothing of this is stored: after a start no connection is left that could end.

use std::collections::BTreeMap;

use ganger_types::keys::{End, KeyCall, KeyReply};
use ganger_types::{Bytes, Elapsed};

use super::KeyContext;
use super::calls::Called;
use super::work_queue::{
    ITEM, LEASES, PROCESSING, QUEUE, Standing, joined, readings, work_queue_of,
};

/// By the keys of the items: from which end each was taken, or `None` once it was taken twice, since it is not known
/// then who has it.
#[derive(Debug, Default)]
pub(super) struct Untouched {
    items: BTreeMap<Bytes, Option<End>>,
}

impl Untouched {
    fn took(&mut self, item: Bytes, from: End) {
        let is_first = !self.items.contains_key(&item);
        self.items.insert(item, is_first.then_some(from));
    }

    /// Somebody has asked for this key, or it is gone.
    pub(super) fn forget(&mut self, key: &Bytes) {
        if !self.items.is_empty() {
            self.items.remove(key);
        }
    }

    /// Somebody has written this key: if it is a lease, the item is somebody's.
    pub(super) fn forget_leased(&mut self, key: &Bytes) {
        if self.items.is_empty() {
            return;
        }
        for between in LEASES {
            for (queue, id) in readings(key, between) {
                self.items.remove(&joined(&queue, ITEM, &id));
            }
        }
    }
}

impl KeyContext<'_> {
    /// An element went from one list to another: notes it if that takes an item from its queue to be worked on.
    pub(super) fn took(&mut self, from: &Bytes, to: &Bytes, end: End, id: &Bytes) {
        let (Some(queue), true) = (from.strip_suffix(QUEUE), self.upkeep.puts_back()) else {
            return;
        };
        if to.strip_suffix(PROCESSING) != Some(queue) {
            return;
        }
        let item = joined(queue, ITEM, id);
        if self.number(&item).is_some() {
            self.space.untouched.took(item, end);
        }
    }

    /// The client that took an element from a work queue has disconnected: the element goes back to where it was next,
    /// if it is an item that nobody has asked for since. One that is in line anyway is only taken out of processing.
    pub(super) fn give_back(&mut self, list: &Bytes, id: &Bytes) -> Called {
        const NOT_DONE: Called = Ok(KeyReply::Number(0));
        let Some(queue) = work_queue_of(list).filter(|_| list.ends_with(QUEUE)) else {
            return NOT_DONE;
        };
        let item = joined(&queue, ITEM, id);
        let Some(end) = self.space.untouched.items.remove(&item).flatten() else {
            return NOT_DONE;
        };
        let Some(lists) = self.space.lists_of(&queue) else {
            return NOT_DONE;
        };
        let is_free = matches!(
            self.space.standing(&queue, id, Elapsed::default()),
            Standing::Free
        );
        let is_in_line = lists.in_main(id);
        if !is_free || !lists.in_processing(id) {
            return NOT_DONE;
        }
        self.edit(KeyCall::Remove {
            key: joined(&queue, b"", PROCESSING),
            count: 1,
            value: id.clone(),
        });
        if !is_in_line {
            self.put_in_line(list.clone(), end, id.clone());
        }
        self.upkeep.note_return();
        Ok(KeyReply::Number(1))
    }
}

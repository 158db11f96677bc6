//! Items that a client took from their queue and has not used yet: their data was not read and they have no lease.
//!
//! A worker that takes an id reads the item's data at once, on any connection. If the connection that took the id
//! ends before that, no worker runs the item, and it goes back at once to the end that it was taken from. Nothing is
//! stored: after a start there are no connections that could end.

use std::collections::BTreeMap;

use ganger_types::keys::{End, KeyCall, KeyReply};
use ganger_types::{Bytes, Elapsed};

use super::KeyContext;
use super::calls::KeyResult;
use super::work_queue::{
    ITEM, ItemState, LEASES, PROCESSING, QUEUE, joined, readings, work_queue_of,
};

/// By the key of an item: the end from which it was taken; `None` if it was taken twice, because it is then not known
/// which client has it.
#[derive(Debug, Default)]
pub(super) struct UnusedItems {
    items: BTreeMap<Bytes, Option<End>>,
}

impl UnusedItems {
    fn took(&mut self, item: Bytes, from: End) {
        let is_first = !self.items.contains_key(&item);
        self.items.insert(item, is_first.then_some(from));
    }

    /// Forgets an item whose data was read or removed.
    pub(super) fn forget(&mut self, key: &Bytes) {
        if !self.items.is_empty() {
            self.items.remove(key);
        }
    }

    /// Forgets an item if the written key is its lease.
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
    /// Records an item if moving this element took it from its queue into processing.
    pub(super) fn took(&mut self, from: &Bytes, to: &Bytes, end: End, id: &Bytes) {
        let (Some(queue), true) = (from.strip_suffix(QUEUE), self.upkeep.puts_back()) else {
            return;
        };
        if to.strip_suffix(PROCESSING) != Some(queue) {
            return;
        }
        let item = joined(queue, ITEM, id);
        if self.number(&item).is_some() {
            self.space.unused_items.took(item, end);
        }
    }

    /// Gives an element back after the client that took it has disconnected, if it is an item that no client has used
    /// since. If the item is in its queue anyway, it is only removed from processing.
    pub(super) fn give_back(&mut self, list: &Bytes, id: &Bytes) -> KeyResult {
        const NOT_DONE: KeyResult = Ok(KeyReply::Number(0));
        let Some(queue) = work_queue_of(list).filter(|_| list.ends_with(QUEUE)) else {
            return NOT_DONE;
        };
        let item = joined(&queue, ITEM, id);
        let Some(end) = self.space.unused_items.items.remove(&item).flatten() else {
            return NOT_DONE;
        };
        let Some(lists) = self.space.lists_of(&queue) else {
            return NOT_DONE;
        };
        let is_free = matches!(
            self.space.item_state(&queue, id, Elapsed::default()),
            ItemState::Free
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

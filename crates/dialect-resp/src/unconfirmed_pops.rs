//! Elements that a connection took from work queues. They go back if the connection ends before a client uses them.
//!
//! The shard knows which items were used, on any connection. A connection only remembers the last elements that it
//! took, without those whose data it has read itself.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ganger_shard::Handle;
use ganger_types::keys::{KeyCall, KeyCalls};
use ganger_types::{Command, Namespace};

use crate::limits::POPPED_MAX;

const QUEUE: &[u8] = b":queue";
const PROCESSING: &[u8] = b":processing";
const ITEM: &[u8] = b":item:";

/// An element that went from a work queue to its list of processing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pop {
    pub(crate) namespace: Namespace,
    pub(crate) list: Bytes,
    pub(crate) element: Bytes,
}

/// The last elements that a connection took. The upkeep handles those that are dropped here.
#[derive(Debug, Default)]
pub(crate) struct UnconfirmedPops(VecDeque<Pop>);

/// Whether moving an element from one list to another takes an item from its queue into processing.
pub(crate) fn is_taken(from: &[u8], to: &[u8]) -> bool {
    let queue = from.strip_suffix(QUEUE);
    queue.is_some() && queue == to.strip_suffix(PROCESSING)
}

impl UnconfirmedPops {
    /// Records an element that the connection took.
    pub(crate) fn note(&mut self, pop: Pop) {
        if self.0.len() == POPPED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(pop);
    }

    /// Forgets an item if the connection reads its data.
    pub(crate) fn asked_for(&mut self, namespace: &Namespace, key: &[u8]) {
        self.0.retain(|pop| {
            let item = pop.list.strip_suffix(QUEUE);
            let id = item
                .and_then(|queue| key.strip_prefix(queue))
                .and_then(|rest| rest.strip_prefix(ITEM));
            pop.namespace != *namespace || id != Some(&pop.element[..])
        });
    }

    /// Gives back the elements after the connection has ended, unless a client has used them.
    pub(crate) async fn give_back(self, handle: &Handle) {
        let mut calls: BTreeMap<Namespace, Vec<KeyCall>> = BTreeMap::new();
        // Give back the last one first, which restores the order.
        for pop in self.0.into_iter().rev() {
            let call = KeyCall::GiveBack {
                list: pop.list,
                value: pop.element,
            };
            calls.entry(pop.namespace).or_default().push(call);
        }
        for (namespace, calls) in calls {
            let calls = KeyCalls {
                namespace,
                watched: Vec::new(),
                calls,
            };
            // If the shard has stopped, the upkeep checks all items after the next start.
            drop(handle.call(Command::from(calls)).await);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop(list: &'static str, element: &'static str) -> Pop {
        Pop {
            namespace: Namespace::default(),
            list: Bytes::from_static(list.as_bytes()),
            element: Bytes::from_static(element.as_bytes()),
        }
    }

    #[test]
    fn only_what_goes_from_a_queue_to_its_own_processing_is_taken() {
        assert!(is_taken(b"p:queue", b"p:processing"));
        assert!(is_taken(b":queue", b":processing"));
        assert!(!is_taken(b"p:queue", b"q:processing"));
        assert!(!is_taken(b"p:queue", b"p:queue"));
        assert!(!is_taken(b"p", b"p"));
    }

    #[test]
    fn what_the_connection_asks_for_is_not_given_back_by_it() {
        let mut popped = UnconfirmedPops::default();
        popped.note(pop("p:queue", "1"));
        popped.note(pop("p:queue", "2"));
        popped.asked_for(&Namespace::default(), b"p:item:1");
        popped.asked_for(&Namespace::default(), b"q:item:2");
        popped.asked_for(&Namespace::from_static("db1"), b"p:item:2");
        assert_eq!(popped.0, [pop("p:queue", "2")]);
    }

    #[test]
    fn of_many_the_last_are_remembered() {
        let mut popped = UnconfirmedPops::default();
        for _ in 0..POPPED_MAX {
            popped.note(pop("p:queue", "1"));
        }
        popped.note(pop("p:queue", "2"));
        assert_eq!(popped.0.len(), POPPED_MAX);
        assert_eq!(popped.0.back(), Some(&pop("p:queue", "2")));
    }
}

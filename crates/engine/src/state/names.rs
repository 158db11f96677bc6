//! Interned names: a job refers to its queue, kind and retry policy by a small number.

use std::collections::BTreeMap;

use ganger_types::{Kind, RetryPolicy};

/// The index of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SpaceIndex(pub u32);

/// The index of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct QueueIndex(pub u32);

/// The index of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KindIndex(pub u32);

/// The index of a retry policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RetryIndex(pub u32);

macro_rules! index {
    ($($type:ident),*) => {$(
        impl $type {
            pub(crate) fn new(place: usize) -> Self {
                Self(u32::try_from(place).expect("fewer than 2^32 names"))
            }

            pub(crate) fn at(self) -> usize {
                usize::try_from(self.0).expect("32 bits fit")
            }
        }
    )*};
}
index!(SpaceIndex, QueueIndex);

/// Values that many jobs share. Each is stored once and never removed.
pub(crate) struct Interned<T> {
    values: Vec<T>,
    places: BTreeMap<T, u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            places: BTreeMap::new(),
        }
    }
}

impl<T: Ord + Clone> Interned<T> {
    fn place(&mut self, value: &T) -> u32 {
        if let Some(place) = self.places.get(value) {
            return *place;
        }
        let place = u32::try_from(self.values.len()).expect("fewer than 2^32 names");
        self.values.push(value.clone());
        self.places.insert(value.clone(), place);
        place
    }

    fn value(&self, place: u32) -> &T {
        &self.values[usize::try_from(place).expect("32 bits fit")]
    }
}

/// The interned kinds and retry policies.
#[derive(Default)]
pub(crate) struct Names {
    kinds: Interned<Kind>,
    retries: Interned<RetryPolicy>,
}

impl Names {
    pub(crate) fn kind_index(&mut self, kind: &Kind) -> KindIndex {
        KindIndex(self.kinds.place(kind))
    }

    pub(crate) fn kind(&self, index: KindIndex) -> &Kind {
        self.kinds.value(index.0)
    }

    pub(crate) fn retry_index(&mut self, retry: &RetryPolicy) -> RetryIndex {
        RetryIndex(self.retries.place(retry))
    }

    pub(crate) fn retry(&self, index: RetryIndex) -> &RetryPolicy {
        self.retries.value(index.0)
    }
}

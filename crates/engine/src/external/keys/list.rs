//! A list of raw keys.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use ganger_types::Bytes;
use ganger_types::keys::End;

/// Number of elements from which a searched list keeps an index; scanning is faster in shorter lists.
const INDEXED_FROM: usize = 128;

/// The places of each element.
type Index = BTreeMap<Bytes, BTreeSet<i64>>;

/// A list: elements in order of their places. Places are stored; they are consecutive except for elements that were
/// removed from the middle.
#[derive(Debug, Default)]
pub(crate) struct List {
    elements: BTreeMap<i64, Bytes>,
    /// The places of each element; built when a long list is searched for the first time.
    index: OnceCell<Index>,
}

impl List {
    pub(crate) fn len(&self) -> usize {
        self.elements.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Places with their elements, from the left.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (i64, &Bytes)> {
        self.elements.iter().map(by_place)
    }

    /// The first `count` elements from an end.
    pub(crate) fn end_of(&self, end: End, count: usize) -> impl Iterator<Item = &Bytes> {
        let left = (end == End::Left).then(|| self.elements.values().take(count));
        let right = (end == End::Right).then(|| self.elements.values().rev().take(count));
        left.into_iter()
            .flatten()
            .chain(right.into_iter().flatten())
    }

    /// Writes an element at a place, new or old.
    pub(crate) fn put(&mut self, place: i64, value: Bytes) {
        if let Some(index) = self.index.get_mut() {
            index.entry(value.clone()).or_default().insert(place);
        }
        if let Some(old) = self.elements.insert(place, value) {
            self.forget(place, &old);
        }
    }

    /// Removes the element at a place.
    pub(crate) fn take(&mut self, place: i64) -> Option<Bytes> {
        let value = self.elements.remove(&place)?;
        self.forget(place, &value);
        Some(value)
    }

    fn forget(&mut self, place: i64, value: &Bytes) {
        // An element that was replaced by an equal one is still in the index.
        if self.elements.get(&place) == Some(value) {
            return;
        }
        let Some(index) = self.index.get_mut() else {
            return;
        };
        if let Some(places) = index.get_mut(value) {
            places.remove(&place);
            if places.is_empty() {
                index.remove(value);
            }
        }
    }

    /// Adds an element at an end and returns its place.
    pub(crate) fn push(&mut self, end: End, value: Bytes) -> i64 {
        let place = match end {
            End::Left => self.elements.first_key_value().map(|(first, _)| first - 1),
            End::Right => self.elements.last_key_value().map(|(last, _)| last + 1),
        };
        let place = place.unwrap_or(0);
        self.put(place, value);
        place
    }

    /// Removes an element from an end and returns it with its place.
    pub(crate) fn pop(&mut self, end: End) -> Option<(i64, Bytes)> {
        let (place, _) = match end {
            End::Left => self.elements.first_key_value(),
            End::Right => self.elements.last_key_value(),
        }?;
        let place = *place;
        Some((place, self.take(place)?))
    }

    /// The element at an index, with its place; negative indexes count from the right.
    pub(crate) fn at(&self, index: i64) -> Option<(i64, &Bytes)> {
        let (from, is_right) = if index < 0 {
            (index.unsigned_abs() - 1, true)
        } else {
            (index.unsigned_abs(), false)
        };
        let from = usize::try_from(from).ok().filter(|at| *at < self.len())?;
        let from = if is_right {
            self.len() - 1 - from
        } else {
            from
        };
        if let Some(place) = self.place_of_index(from) {
            return self.elements.get_key_value(&place).map(by_place);
        }
        if from > self.len() / 2 {
            self.iter().nth_back(self.len() - 1 - from)
        } else {
            self.iter().nth(from)
        }
    }

    /// The place of an existing index if no element was removed from the middle.
    fn place_of_index(&self, index: usize) -> Option<i64> {
        let (first, _) = self.elements.first_key_value()?;
        let (last, _) = self.elements.last_key_value()?;
        let has_gaps = last.abs_diff(*first) >= u64::try_from(self.len()).ok()?;
        let index = i64::try_from(index).ok()?;
        (!has_gaps).then(|| first.saturating_add(index))
    }

    /// The number of steps to reach an index.
    pub(crate) fn steps_to(&self, index: usize) -> usize {
        if self.place_of_index(index).is_some() {
            return 1;
        }
        index.min(self.len().saturating_sub(index)) + 1
    }

    /// The existing indexes from `start` to `stop`, both included: the first, and how many.
    pub(crate) fn bounds(&self, start: i64, stop: i64) -> (usize, usize) {
        let length = i64::try_from(self.len()).unwrap_or(i64::MAX);
        let absolute = |index: i64| {
            if index < 0 {
                index.saturating_add(length)
            } else {
                index
            }
        };
        let (start, stop) = (absolute(start).max(0), absolute(stop).min(length - 1));
        if start > stop {
            return (0, 0);
        }
        let as_size = |index: i64| usize::try_from(index).unwrap_or(0);
        (as_size(start), as_size(stop - start + 1))
    }

    /// The elements from `start` to `stop`, with their places; read from the nearer end.
    pub(crate) fn range(&self, start: i64, stop: i64) -> Vec<(i64, &Bytes)> {
        let (first, count) = self.bounds(start, stop);
        if let Some(place) = self.place_of_index(first) {
            let range = self.elements.range(place..).take(count);
            return range.map(by_place).collect();
        }
        let behind = self.len() - first - count;
        if first <= behind {
            return self.iter().skip(first).take(count).collect();
        }
        let mut range: Vec<_> = self.iter().rev().skip(behind).take(count).collect();
        range.reverse();
        range
    }

    /// The places of up to `count` elements that equal `value`: from the left, from the right if `count` is negative,
    /// all if it is 0.
    pub(crate) fn places_of(&self, value: &Bytes, count: i64) -> Vec<i64> {
        let limit = match usize::try_from(count.unsigned_abs()) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(limit) => limit,
        };
        match self.searched() {
            Some(index) => {
                let places = index.get(value).into_iter().flatten().copied();
                bounded(places, count < 0, limit)
            }
            None => {
                let places = self.iter().filter(|(_, each)| *each == value);
                bounded(places.map(|(place, _)| place), count < 0, limit)
            }
        }
    }

    /// Whether an element equals `value`.
    pub(crate) fn has(&self, value: &Bytes) -> bool {
        !self.places_of(value, 1).is_empty()
    }

    /// The search index, built now if the list is long; `None` for a short list without one.
    fn searched(&self) -> Option<&Index> {
        if self.len() >= INDEXED_FROM {
            return Some(self.index.get_or_init(|| self.make_index()));
        }
        self.index.get()
    }

    fn make_index(&self) -> Index {
        let mut index = Index::new();
        for (place, value) in self.iter() {
            index.entry(value.clone()).or_default().insert(place);
        }
        index
    }

    /// Makes room for an element before or after the one at a place. Returns the new place, and the elements that
    /// move with their old and new places, in the order in which they must be moved.
    pub(crate) fn room_beside(&self, place: i64, is_before: bool) -> (i64, Vec<(i64, i64)>) {
        let step = if is_before { -1 } else { 1 };
        // Elements up to the nearest gap on this side move by one.
        let mut run = Vec::new();
        let mut at = place + step;
        while self.elements.contains_key(&at) {
            run.push((at, at + step));
            at += step;
        }
        run.reverse();
        (place + step, run)
    }

    /// Whether the index, if there is one, agrees with the elements.
    pub(crate) fn is_sound(&self) -> bool {
        self.index
            .get()
            .is_none_or(|index| *index == self.make_index())
    }
}

fn by_place<'a>((place, value): (&i64, &'a Bytes)) -> (i64, &'a Bytes) {
    (*place, value)
}

fn bounded(
    places: impl DoubleEndedIterator<Item = i64>,
    is_from_right: bool,
    limit: usize,
) -> Vec<i64> {
    if is_from_right {
        places.rev().take(limit).collect()
    } else {
        places.take(limit).collect()
    }
}

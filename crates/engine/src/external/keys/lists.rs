//! Calls on lists.

use ganger_types::keys::{Condition, ElementRecord, End, KeyCall, KeyError, KeyReply};
use ganger_types::{Bytes, Change, ExternalChange};

use super::budget::check_bytes;
use super::calls::{KeyResult, number_of, within};
use super::list::List;
use super::{KeyContext, Value};

/// Steps that count for moving an element to another place.
const STEPS_OF_A_MOVE: usize = 256;

impl KeyContext<'_> {
    /// Applies a call on lists.
    pub(super) fn call_list(&mut self, call: KeyCall) -> KeyResult {
        match call {
            KeyCall::Push {
                key,
                end,
                values,
                condition,
            } => self.push(&key, end, values, condition),
            KeyCall::Pop { key, end, count } => self.pop(&key, end, count),
            KeyCall::Move {
                from,
                to,
                from_end,
                to_end,
            } => self.shift(&from, &to, from_end, to_end),
            KeyCall::Length { key } => Ok(number_of(
                self.list(&key)?.map_or(0, |(_, list)| list.len()),
            )),
            KeyCall::Range { key, start, stop } => self.range(&key, start, stop),
            KeyCall::Remove { key, count, value } => self.remove_equal(&key, count, &value),
            KeyCall::ElementAt { key, index } => self.element_at(&key, index),
            KeyCall::SetElement { key, index, value } => self.set_element(&key, index, value),
            KeyCall::Insert {
                key,
                is_before,
                pivot,
                value,
            } => self.insert(&key, is_before, &pivot, value),
            KeyCall::Trim { key, start, stop } => self.trim(&key, start, stop),
            KeyCall::Find {
                key,
                value,
                rank,
                count,
                compared_max,
            } => self.find(&key, &value, rank, count, compared_max),
            KeyCall::GiveBack { list, value } => self.give_back(&list, &value),
            _ => unreachable!("only calls about lists come here"),
        }
    }

    /// The list of a key, with its number.
    fn list(&self, key: &Bytes) -> Result<Option<(u64, &List)>, KeyError> {
        match self.space.find(key) {
            None => Ok(None),
            Some((number, entry)) => match &entry.value {
                Value::List(list) => Ok(Some((number, list))),
                Value::String(_) => Err(KeyError::WrongKind),
            },
        }
    }

    fn list_mut(&mut self, number: u64) -> &mut List {
        match self
            .space
            .entries
            .get_mut(&number)
            .map(|entry| &mut entry.value)
        {
            Some(Value::List(list)) => list,
            _ => unreachable!("callers have looked the list up"),
        }
    }

    /// The list to push to, which is created if it does not exist.
    fn list_to_grow(&mut self, key: &Bytes) -> Result<u64, KeyError> {
        if let Some((number, _)) = self.list(key)? {
            return Ok(number);
        }
        let number = self.make(key, Value::List(List::default()));
        self.write(number);
        Ok(number)
    }

    fn put(&mut self, number: u64, place: i64, value: Bytes) {
        self.list_mut(number).put(place, value.clone());
        self.write_element(number, place, value);
    }

    fn push_one(&mut self, number: u64, end: End, value: Bytes) {
        let place = self.list_mut(number).push(end, value.clone());
        self.write_element(number, place, value);
    }

    fn write_element(&mut self, list: u64, place: i64, value: Bytes) {
        self.changes
            .push(Change::External(ExternalChange::PutElement(Box::new(
                ElementRecord { list, place, value },
            ))));
    }

    fn pop_one(&mut self, number: u64, end: End) -> Option<Bytes> {
        let (place, value) = self.list_mut(number).pop(end)?;
        self.changes
            .push(Change::External(ExternalChange::RemoveElement(
                number, place,
            )));
        Some(value)
    }

    fn take(&mut self, number: u64, place: i64) {
        self.list_mut(number).take(place);
        self.changes
            .push(Change::External(ExternalChange::RemoveElement(
                number, place,
            )));
    }

    /// Finishes a change of a list: an empty list is removed.
    fn settle(&mut self, number: u64) {
        if self.list_mut(number).is_empty() {
            self.remove(number);
        } else {
            self.touch(number);
        }
    }

    fn has_grown(&mut self, key: &Bytes) {
        self.grown.insert((self.namespace.clone(), key.clone()));
    }

    fn push(
        &mut self,
        key: &Bytes,
        end: End,
        values: Vec<Bytes>,
        condition: Condition,
    ) -> KeyResult {
        for value in &values {
            within(key, value.len())?;
        }
        let there = self.list(key)?;
        let is_wanted = match condition {
            Condition::Always => true,
            Condition::IfPresent => there.is_some(),
            Condition::IfAbsent => there.is_none(),
        };
        if !is_wanted || values.is_empty() {
            return Ok(number_of(there.map_or(0, |(_, list)| list.len())));
        }
        let number = self.list_to_grow(key)?;
        for value in values {
            self.listed(key, &value);
            self.push_one(number, end, value);
        }
        self.touch(number);
        self.has_grown(key);
        Ok(number_of(self.list_mut(number).len()))
    }

    fn pop(&mut self, key: &Bytes, end: End, count: Option<u64>) -> KeyResult {
        let Some((number, list)) = self.list(key)? else {
            return Ok(match count {
                Some(_) => KeyReply::NilList,
                None => KeyReply::Nil,
            });
        };
        let Some(count) = count else {
            let value = self.pop_one(number, end).expect("no list is empty");
            self.settle(number);
            self.unlisted(key, &value);
            return Ok(KeyReply::Value(value));
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(list.len());
        let taken = list.end_of(end, count).map(Bytes::len);
        check_bytes(taken)?;
        self.budget.elements(count)?;
        let values = (0..count).filter_map(|_| self.pop_one(number, end));
        let values: Vec<_> = values.collect();
        if !values.is_empty() {
            self.settle(number);
        }
        for value in &values {
            self.unlisted(key, value);
        }
        Ok(KeyReply::Values(values))
    }

    fn shift(&mut self, from: &Bytes, to: &Bytes, from_end: End, to_end: End) -> KeyResult {
        let Some((source, _)) = self.list(from)? else {
            return Ok(KeyReply::Nil);
        };
        self.list(to)?;
        within(to, 0)?;
        let value = self.pop_one(source, from_end).expect("no list is empty");
        // A list with one element that is rotated must not be removed in between.
        let target = if from == to {
            source
        } else {
            self.settle(source);
            self.list_to_grow(to)?
        };
        self.push_one(target, to_end, value.clone());
        self.listed(to, &value);
        self.took(from, to, from_end, &value);
        self.touch(target);
        self.has_grown(to);
        Ok(KeyReply::Value(value))
    }

    fn range(&mut self, key: &Bytes, start: i64, stop: i64) -> KeyResult {
        let Some((_, list)) = self.list(key)? else {
            return Ok(KeyReply::Values(Vec::new()));
        };
        let (first, count) = list.bounds(start, stop);
        let steps = list.steps_to(first) + count;
        self.budget.elements(count)?;
        self.budget.steps(steps)?;
        let values = self.list(key)?.map(|(_, list)| list.range(start, stop));
        let values = values.unwrap_or_default();
        check_bytes(values.iter().map(|(_, value)| value.len()))?;
        let values = values.into_iter().map(|(_, value)| value.clone());
        Ok(KeyReply::Values(values.collect()))
    }

    fn remove_equal(&mut self, key: &Bytes, count: i64, value: &Bytes) -> KeyResult {
        let Some((number, _)) = self.list(key)? else {
            return Ok(KeyReply::Number(0));
        };
        let places = self.list_mut(number).places_of(value, count);
        for place in &places {
            self.take(number, *place);
        }
        if !places.is_empty() {
            self.settle(number);
            self.unlisted(key, value);
        }
        Ok(number_of(places.len()))
    }

    fn element_at(&mut self, key: &Bytes, index: i64) -> KeyResult {
        self.spend_way(key, index)?;
        let found = self.list(key)?.and_then(|(_, list)| list.at(index));
        Ok(found.map_or(KeyReply::Nil, |(_, value)| KeyReply::Value(value.clone())))
    }

    fn set_element(&mut self, key: &Bytes, index: i64, value: Bytes) -> KeyResult {
        within(key, value.len())?;
        self.spend_way(key, index)?;
        let (number, list) = self.list(key)?.ok_or(KeyError::NoSuchKey)?;
        let (place, _) = list.at(index).ok_or(KeyError::OutOfRange)?;
        self.put(number, place, value);
        self.touch(number);
        Ok(KeyReply::Done)
    }

    /// Counts the steps to an index of a list, if the list exists.
    fn spend_way(&mut self, key: &Bytes, index: i64) -> Result<(), KeyError> {
        let Some((_, list)) = self.list(key)? else {
            return Ok(());
        };
        let (first, _) = list.bounds(index, index);
        let steps = list.steps_to(first);
        self.budget.steps(steps)
    }

    fn insert(&mut self, key: &Bytes, is_before: bool, pivot: &Bytes, value: Bytes) -> KeyResult {
        within(key, value.len())?;
        let Some((number, list)) = self.list(key)? else {
            return Ok(KeyReply::Number(0));
        };
        let Some(at) = list.places_of(pivot, 1).first().copied() else {
            return Ok(KeyReply::Number(-1));
        };
        self.budget.steps(0)?;
        let (place, moves) = self.list_mut(number).room_beside(at, is_before);
        self.budget
            .steps(moves.len().saturating_mul(STEPS_OF_A_MOVE))?;
        for (old, new) in moves {
            if let Some(moved) = self.list_mut(number).take(old) {
                self.put(number, new, moved);
            }
        }
        self.put(number, place, value);
        self.touch(number);
        Ok(number_of(self.list_mut(number).len()))
    }

    fn trim(&mut self, key: &Bytes, start: i64, stop: i64) -> KeyResult {
        let Some((number, list)) = self.list(key)? else {
            return Ok(KeyReply::Done);
        };
        let (first, count) = list.bounds(start, stop);
        let behind = list.len() - first - count;
        let before = list.iter().take(first);
        let behind = list.iter().rev().take(behind);
        let gone: Vec<_> = before.chain(behind).map(|(place, _)| place).collect();
        for place in &gone {
            self.take(number, *place);
        }
        if !gone.is_empty() {
            self.settle(number);
        }
        Ok(KeyReply::Done)
    }

    fn find(
        &mut self,
        key: &Bytes,
        value: &Bytes,
        rank: i64,
        count: Option<u64>,
        compared_max: u64,
    ) -> KeyResult {
        let length = self.list(key)?.map_or(0, |(_, list)| list.len());
        self.budget.steps(length)?;
        let list = self.list(key)?;
        let found = list.map_or_else(Vec::new, |(_, list)| {
            let wanted = match count {
                None => 1,
                Some(0) => u64::MAX,
                Some(count) => count,
            };
            indexes_of(list, value, rank, wanted, compared_max)
        });
        self.budget.elements(found.len())?;
        Ok(match count {
            Some(_) => KeyReply::Indexes(found),
            None => found
                .first()
                .map_or(KeyReply::Nil, |index| KeyReply::Number(*index)),
        })
    }
}

/// The indexes of elements that equal `value`, starting with the `rank`th; counted from the right if `rank` is
/// negative.
fn indexes_of(list: &List, value: &Bytes, rank: i64, wanted: u64, compared_max: u64) -> Vec<i64> {
    let limited = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
    let compared = limited(if compared_max == 0 {
        u64::MAX
    } else {
        compared_max
    });
    let skipped = limited(rank.unsigned_abs().saturating_sub(1));
    let length = list.len();
    let matches: Vec<usize> = if rank < 0 {
        let from_right = list.iter().rev().enumerate().take(compared);
        let matches = from_right.filter(|(_, (_, each))| *each == value);
        let indexes = matches.map(|(index, _)| length - 1 - index);
        indexes.skip(skipped).take(limited(wanted)).collect()
    } else {
        let from_left = list.iter().enumerate().take(compared);
        let matches = from_left.filter(|(_, (_, each))| *each == value);
        let indexes = matches.map(|(index, _)| index);
        indexes.skip(skipped).take(limited(wanted)).collect()
    };
    let as_number = |index: usize| i64::try_from(index).unwrap_or(i64::MAX);
    matches.into_iter().map(as_number).collect()
}

//! A plain model of raw keys: slow and obviously correct.

use std::collections::{BTreeMap, VecDeque};

use ganger_types::Bytes;
use ganger_types::keys::{Condition, End, Expiry, KeyCall, KeyError, KeyReply};

type KeyResult = Result<KeyReply, KeyError>;

/// The value of a key in the model.
#[derive(Clone, Debug, PartialEq)]
enum Value {
    Text(Vec<u8>),
    List(VecDeque<Bytes>),
}

#[derive(Default)]
pub struct Model {
    keys: BTreeMap<Bytes, (Value, Option<u64>)>,
    pub now: u64,
}

impl Model {
    fn expire(&mut self) {
        let now = self.now;
        self.keys.retain(|_, (_, at)| at.is_none_or(|at| at > now));
    }

    fn text(&self, key: &Bytes) -> Result<Option<Vec<u8>>, KeyError> {
        match self.keys.get(key) {
            None => Ok(None),
            Some((Value::Text(text), _)) => Ok(Some(text.clone())),
            Some(_) => Err(KeyError::WrongKind),
        }
    }

    fn list(&self, key: &Bytes) -> Result<VecDeque<Bytes>, KeyError> {
        match self.keys.get(key) {
            None => Ok(VecDeque::new()),
            Some((Value::List(list), _)) => Ok(list.clone()),
            Some(_) => Err(KeyError::WrongKind),
        }
    }

    fn put_list(&mut self, key: &Bytes, list: VecDeque<Bytes>) {
        let at = self.keys.get(key).and_then(|(_, at)| *at);
        if list.is_empty() {
            self.keys.remove(key);
        } else {
            self.keys.insert(key.clone(), (Value::List(list), at));
        }
    }

    fn until(&self, key: &Bytes, expiry: Expiry) -> Option<u64> {
        match expiry {
            Expiry::Never => None,
            Expiry::Kept => self.keys.get(key).and_then(|(_, at)| *at),
            Expiry::After(left) => Some(self.now + u64::try_from(left.as_micros()).expect("small")),
            Expiry::At(_) => unreachable!("the model has no wall clock"),
        }
    }

    pub fn call(&mut self, one: &KeyCall) -> KeyResult {
        self.expire();
        let answer = self.apply(one);
        self.expire();
        answer
    }

    #[allow(clippy::too_many_lines, reason = "one arm a call, as plain as can be")]
    fn apply(&mut self, one: &KeyCall) -> KeyResult {
        let count = |n: usize| Ok(KeyReply::Number(i64::try_from(n).expect("small")));
        let value = |found: Option<Bytes>| Ok(found.map_or(KeyReply::Nil, KeyReply::Value));
        match one {
            KeyCall::Get { key } => value(self.text(key)?.map(Bytes::from)),
            KeyCall::Set {
                key,
                value: new,
                expiry,
                condition,
                gets,
            } => {
                let old = if *gets { Some(self.text(key)?) } else { None };
                let is_there = self.keys.contains_key(key);
                let is_wanted = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => !is_there,
                    Condition::IfPresent => is_there,
                };
                if is_wanted {
                    let until = self.until(key, *expiry);
                    self.keys
                        .insert(key.clone(), (Value::Text(new.to_vec()), until));
                }
                match old {
                    Some(old) => value(old.map(Bytes::from)),
                    None if is_wanted => Ok(KeyReply::Done),
                    None => Ok(KeyReply::Nil),
                }
            }
            KeyCall::Append { key, value: more } => {
                let mut text = self.text(key)?.unwrap_or_default();
                text.extend_from_slice(more);
                let length = text.len();
                let until = self.until(key, Expiry::Kept);
                self.keys.insert(key.clone(), (Value::Text(text), until));
                count(length)
            }
            KeyCall::Delete { keys } => count(
                keys.iter()
                    .filter(|key| self.keys.remove(*key).is_some())
                    .count(),
            ),
            KeyCall::Exists { keys } => count(
                keys.iter()
                    .filter(|key| self.keys.contains_key(*key))
                    .count(),
            ),
            KeyCall::Expire { key, expiry } => {
                let until = self.until(key, *expiry);
                let Some((_, at)) = self.keys.get_mut(key) else {
                    return count(0);
                };
                let was = at.is_some();
                *at = until;
                count(usize::from(until.is_some() || was))
            }
            KeyCall::Push {
                key, end, values, ..
            } => {
                let mut list = self.list(key)?;
                for value in values {
                    match end {
                        End::Left => list.push_front(value.clone()),
                        End::Right => list.push_back(value.clone()),
                    }
                }
                let length = list.len();
                self.put_list(key, list);
                count(length)
            }
            KeyCall::Pop { key, end, count } => {
                let mut list = self.list(key)?;
                if list.is_empty() {
                    return Ok(match count {
                        Some(_) => KeyReply::NilList,
                        None => KeyReply::Nil,
                    });
                }
                let mut taken = Vec::new();
                for _ in 0..count.unwrap_or(1) {
                    taken.extend(match end {
                        End::Left => list.pop_front(),
                        End::Right => list.pop_back(),
                    });
                }
                self.put_list(key, list);
                match count {
                    Some(_) => Ok(KeyReply::Values(taken)),
                    None => value(taken.pop()),
                }
            }
            KeyCall::Move {
                from,
                to,
                from_end,
                to_end,
            } => {
                let mut source = self.list(from)?;
                if source.is_empty() {
                    return Ok(KeyReply::Nil);
                }
                self.list(to)?;
                let moved = match from_end {
                    End::Left => source.pop_front(),
                    End::Right => source.pop_back(),
                }
                .expect("it has one");
                let mut target = if from == to {
                    source
                } else {
                    self.put_list(from, source);
                    self.list(to)?
                };
                match to_end {
                    End::Left => target.push_front(moved.clone()),
                    End::Right => target.push_back(moved.clone()),
                }
                self.put_list(to, target);
                value(Some(moved))
            }
            KeyCall::Range { key, start, stop } => {
                let list = self.list(key)?;
                let kept = within(&list, *start, *stop);
                Ok(KeyReply::Values(kept.into_iter().collect()))
            }
            KeyCall::Trim { key, start, stop } => {
                let list = self.list(key)?;
                if !list.is_empty() {
                    self.put_list(key, within(&list, *start, *stop));
                }
                Ok(KeyReply::Done)
            }
            KeyCall::Remove {
                key,
                count: limit,
                value,
            } => {
                let list = self.list(key)?;
                let mut equal: Vec<usize> =
                    (0..list.len()).filter(|at| list[*at] == *value).collect();
                if *limit < 0 {
                    equal.reverse();
                }
                if *limit != 0 {
                    equal.truncate(usize::try_from(limit.unsigned_abs()).expect("small"));
                }
                let kept = list
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| !equal.contains(at));
                let kept = kept.map(|(_, each)| each.clone()).collect();
                self.put_list(key, kept);
                count(equal.len())
            }
            KeyCall::Insert {
                key,
                is_before,
                pivot,
                value,
            } => {
                let mut list = self.list(key)?;
                if list.is_empty() {
                    return count(0);
                }
                let Some(at) = list.iter().position(|each| each == pivot) else {
                    return Ok(KeyReply::Number(-1));
                };
                list.insert(if *is_before { at } else { at + 1 }, value.clone());
                let length = list.len();
                self.put_list(key, list);
                count(length)
            }
            KeyCall::SetElement { key, index, value } => {
                let mut list = self.list(key)?;
                if list.is_empty() {
                    return Err(KeyError::NoSuchKey);
                }
                let at = position(&list, *index).ok_or(KeyError::OutOfRange)?;
                list[at] = value.clone();
                self.put_list(key, list);
                Ok(KeyReply::Done)
            }
            KeyCall::ElementAt { key, index } => {
                let list = self.list(key)?;
                value(position(&list, *index).map(|at| list[at].clone()))
            }
            KeyCall::Length { key } => count(self.list(key)?.len()),
            KeyCall::Count => count(self.keys.len()),
            other => unreachable!("{other:?} is not drawn"),
        }
    }
}

fn position(list: &VecDeque<Bytes>, index: i64) -> Option<usize> {
    let length = i64::try_from(list.len()).expect("small");
    let at = if index < 0 { index + length } else { index };
    usize::try_from(at).ok().filter(|at| *at < list.len())
}

fn within(list: &VecDeque<Bytes>, start: i64, stop: i64) -> VecDeque<Bytes> {
    let length = i64::try_from(list.len()).expect("small");
    let absolute = |index: i64| if index < 0 { index + length } else { index };
    let inside = absolute(start)..=absolute(stop);
    let numbered = list.iter().zip(0_i64..);
    let kept = numbered.filter(|(_, at)| inside.contains(at));
    kept.map(|(each, _)| each.clone()).collect()
}

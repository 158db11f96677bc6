//! Calls on keys of any type, and the dispatch to calls on strings and lists.

use ganger_types::keys::{Expiry, KeyCall, KeyError, KeyKind, KeyReply, TimeLeft};
use ganger_types::{Bytes, Elapsed, limits};

use super::KeyContext;

pub(super) type KeyResult = Result<KeyReply, KeyError>;

/// A new expiry, in terms of the elapsed clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewExpiry {
    /// The key expires at once: the time is in the past.
    Past,
    Never,
    At(Elapsed),
    /// The expiry stays as it was.
    Kept,
}

impl KeyContext<'_> {
    /// Applies one call to the keys.
    pub(super) fn call(&mut self, call: KeyCall) -> KeyResult {
        match call {
            KeyCall::Get { key } => self.get(&key),
            KeyCall::GetMany { keys } => self.get_many(&keys),
            KeyCall::Set {
                key,
                value,
                expiry,
                condition,
                gets,
            } => self.set(&key, value, expiry, condition, gets),
            KeyCall::SetMany { pairs } => self.set_many(pairs),
            KeyCall::GetAndDelete { key } => self.get_and_delete(&key),
            KeyCall::Append { key, value } => self.append(&key, &value),
            KeyCall::Add { key, by } => self.add(&key, by),
            KeyCall::StringLength { key } => {
                let length = self.string(&key)?.map_or(0, |(_, value)| value.len());
                Ok(number_of(length))
            }
            KeyCall::Delete { keys } => Ok(self.delete(&keys)),
            KeyCall::Exists { keys } => {
                let there = keys.iter().filter(|key| self.number(key).is_some());
                Ok(number_of(there.count()))
            }
            KeyCall::Kind { key } => Ok(KeyReply::Kind(self.kind(&key))),
            KeyCall::Names {
                pattern,
                after,
                is_whole,
            } => self.names(&pattern, after, is_whole),
            KeyCall::Scan {
                cursor,
                count,
                pattern,
                kind,
            } => self.scan(cursor, count, pattern.as_ref(), kind),
            KeyCall::Count => Ok(number_of(self.space.names.len())),
            KeyCall::Clear => {
                let all: Vec<_> = self.space.entries.keys().copied().collect();
                for number in all {
                    self.remove(number);
                }
                Ok(KeyReply::Done)
            }
            KeyCall::Expire { key, expiry } => Ok(KeyReply::Number(self.expire(&key, expiry))),
            KeyCall::TimeLeft { key } => Ok(KeyReply::TimeLeft(self.time_left(&key))),
            KeyCall::Revision { key } => {
                let found = self.space.find(&key);
                Ok(KeyReply::Revision(
                    found.map_or(0, |(_, entry)| entry.revision),
                ))
            }
            of_a_list => self.call_list(of_a_list),
        }
    }

    pub(super) fn number(&self, key: &Bytes) -> Option<u64> {
        self.space.names.get(key).copied()
    }

    fn kind(&self, key: &Bytes) -> Option<KeyKind> {
        self.space.find(key).map(|(_, entry)| entry.kind())
    }

    fn delete(&mut self, keys: &[Bytes]) -> KeyReply {
        let mut deleted = 0;
        for key in keys {
            if let Some(number) = self.number(key) {
                self.remove(number);
                deleted += 1;
            }
        }
        KeyReply::Number(deleted)
    }

    fn expire(&mut self, key: &Bytes, expiry: Expiry) -> i64 {
        let Some((number, entry)) = self.space.find(key) else {
            return 0;
        };
        let has_expiry = entry.expires_at.is_some();
        let at = match self.until(expiry) {
            NewExpiry::Past => {
                self.remove(number);
                return 1;
            }
            NewExpiry::Kept => return i64::from(has_expiry),
            NewExpiry::Never if !has_expiry => return 0,
            NewExpiry::Never => None,
            NewExpiry::At(at) => Some(at),
        };
        self.expire_at(number, at);
        self.write(number);
        1
    }

    pub(super) fn until(&self, expiry: Expiry) -> NewExpiry {
        let left = match expiry {
            Expiry::Never => return NewExpiry::Never,
            Expiry::Kept => return NewExpiry::Kept,
            Expiry::After(left) => left,
            Expiry::At(at) => at.since(self.now.wall),
        };
        if left.is_zero() {
            NewExpiry::Past
        } else {
            NewExpiry::At(self.now.elapsed.after(left))
        }
    }

    fn time_left(&self, key: &Bytes) -> TimeLeft {
        match self.space.find(key) {
            None => TimeLeft::Absent,
            Some((_, entry)) => entry.expires_at.map_or(TimeLeft::Unlimited, |at| {
                TimeLeft::For(at.since(self.now.elapsed))
            }),
        }
    }
}

/// Refuses a key or a value that is too long.
pub(super) fn within(key: &Bytes, value: usize) -> Result<(), KeyError> {
    if key.len() > limits::KEY_NAME_MAX || value > limits::KEY_VALUE_MAX {
        return Err(KeyError::TooLong);
    }
    Ok(())
}

/// A length or a count as a reply.
pub(super) fn number_of(size: usize) -> KeyReply {
    KeyReply::Number(i64::try_from(size).unwrap_or(i64::MAX))
}

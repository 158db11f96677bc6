//! Calls on strings.

use ganger_types::Bytes;
use ganger_types::keys::{Condition, Expiry, KeyError, KeyReply};

use super::budget::check_bytes;
use super::calls::{KeyResult, NewExpiry, number_of, within};
use super::{KeyContext, Value};

impl KeyContext<'_> {
    /// The string of a key, with its number.
    pub(super) fn string(&self, key: &Bytes) -> Result<Option<(u64, &Bytes)>, KeyError> {
        match self.space.find(key) {
            None => Ok(None),
            Some((number, entry)) => match &entry.value {
                Value::String(value) => Ok(Some((number, value))),
                Value::List(_) => Err(KeyError::WrongKind),
            },
        }
    }

    pub(super) fn get(&mut self, key: &Bytes) -> KeyResult {
        self.space.unused_items.forget(key);
        let found = self.string(key)?;
        Ok(found.map_or(KeyReply::Nil, |(_, value)| KeyReply::Value(value.clone())))
    }

    pub(super) fn get_many(&mut self, keys: &[Bytes]) -> KeyResult {
        let values = keys.iter().map(|key| self.string(key).ok().flatten());
        check_bytes(values.map(|found| found.map_or(0, |(_, value)| value.len())))?;
        self.budget.elements(keys.len())?;
        for key in keys {
            self.space.unused_items.forget(key);
        }
        let each = keys.iter().map(|key| {
            let found = self.string(key).ok().flatten();
            found.map(|(_, value)| value.clone())
        });
        Ok(KeyReply::Options(each.collect()))
    }

    pub(super) fn set(
        &mut self,
        key: &Bytes,
        value: Bytes,
        expiry: Expiry,
        condition: Condition,
        gets: bool,
    ) -> KeyResult {
        within(key, value.len())?;
        let old = if gets { Some(self.get(key)?) } else { None };
        let is_wanted = match condition {
            Condition::Always => true,
            Condition::IfAbsent => self.number(key).is_none(),
            Condition::IfPresent => self.number(key).is_some(),
        };
        if is_wanted {
            let until = self.until(expiry);
            self.put_string(key, value, until);
        }
        let said = if is_wanted {
            KeyReply::Done
        } else {
            KeyReply::Nil
        };
        Ok(old.unwrap_or(said))
    }

    pub(super) fn set_many(&mut self, pairs: Vec<(Bytes, Bytes)>) -> KeyResult {
        for (key, value) in &pairs {
            within(key, value.len())?;
        }
        for (key, value) in pairs {
            self.put_string(&key, value, NewExpiry::Never);
        }
        Ok(KeyReply::Done)
    }

    pub(super) fn get_and_delete(&mut self, key: &Bytes) -> KeyResult {
        let Some((number, value)) = self.string(key)? else {
            return Ok(KeyReply::Nil);
        };
        let value = value.clone();
        self.remove(number);
        Ok(KeyReply::Value(value))
    }

    pub(super) fn append(&mut self, key: &Bytes, value: &Bytes) -> KeyResult {
        let old = self.string(key)?.map(|(_, old)| old.clone());
        let old = old.unwrap_or_default();
        let length = old.len() + value.len();
        within(key, length)?;
        // As in Redis, appending nothing to a missing key creates an empty string.
        let joined = Bytes::from([&old[..], &value[..]].concat());
        self.put_string(key, joined, NewExpiry::Kept);
        Ok(number_of(length))
    }

    pub(super) fn add(&mut self, key: &Bytes, by: i64) -> KeyResult {
        within(key, 0)?;
        let old = match self.string(key)? {
            None => 0,
            Some((_, value)) => whole_number(value).ok_or(KeyError::NotANumber)?,
        };
        let sum = old.checked_add(by).ok_or(KeyError::Overflow)?;
        self.put_string(key, Bytes::from(sum.to_string()), NewExpiry::Kept);
        Ok(KeyReply::Number(sum))
    }

    /// Writes a string in place of any value.
    fn put_string(&mut self, key: &Bytes, value: Bytes, until: NewExpiry) {
        self.space.unused_items.forget_leased(key);
        let number = match self.number(key) {
            Some(number) => {
                let entry = self.space.entries.get_mut(&number).expect("it has a name");
                let old = std::mem::replace(&mut entry.value, Value::String(value));
                self.drop_elements(number, key, &old);
                number
            }
            None => {
                self.made(key);
                self.make(key, Value::String(value))
            }
        };
        match until {
            NewExpiry::Past => return self.remove(number),
            NewExpiry::Never => self.expire_at(number, None),
            NewExpiry::At(at) => self.expire_at(number, Some(at)),
            NewExpiry::Kept => {}
        }
        self.write(number);
    }
}

/// Parses a whole number in canonical form: no plus sign, no spaces, no leading zeros.
fn whole_number(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::whole_number;

    #[test]
    fn only_plain_numbers_are_counted_with() {
        assert_eq!(whole_number(b"0"), Some(0));
        assert_eq!(whole_number(b"-9223372036854775808"), Some(i64::MIN));
        for text in [
            "",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
        ] {
            assert_eq!(whole_number(text.as_bytes()), None, "{text:?}");
        }
    }
}

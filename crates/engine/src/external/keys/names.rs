//! Names of keys, a page at a time: `KEYS` and `SCAN`.

use std::ops::Bound;

use ganger_types::Bytes;
use ganger_types::keys::{KeyError, KeyKind, KeyReply};
use ganger_types::limits::{KEY_PAGE_KEYS_MAX, KEY_PAGE_STEPS_MAX};

use super::KeyContext;
use super::calls::KeyResult;
use super::glob::Glob;

/// Steps that count for looking at one name, besides the comparison.
const LOOK_STEPS: usize = 16;

fn compiled(pattern: &[u8]) -> Result<Glob, KeyError> {
    Glob::new(pattern).ok_or(KeyError::PatternTooLong)
}

impl KeyContext<'_> {
    /// Returns a page of matching names, in the order of their bytes.
    pub(super) fn names(
        &mut self,
        pattern: &Bytes,
        after: Option<Bytes>,
        is_whole: bool,
    ) -> KeyResult {
        let glob = compiled(pattern)?;
        let prefix = glob.prefix();
        let from = match after {
            Some(name) if &name[..] >= prefix => Bound::Excluded(name),
            _ => Bound::Included(Bytes::copy_from_slice(prefix)),
        };
        let (mut steps, mut last) = (0, None);
        let mut found = Vec::new();
        let all = self.space.names.range((from, Bound::Unbounded));
        let all = all.map(|(name, _)| name);
        for (count, name) in all.take_while(|name| name.starts_with(prefix)).enumerate() {
            if count >= KEY_PAGE_KEYS_MAX || steps >= KEY_PAGE_STEPS_MAX {
                if is_whole {
                    return Err(KeyError::ReplyTooLarge);
                }
                self.budget.steps(steps)?;
                return Ok(KeyReply::Names(found, last));
            }
            steps += glob.cost(name.len()) + LOOK_STEPS;
            if glob.matches(name) {
                found.push(name.clone());
            }
            last = Some(name.clone());
        }
        self.budget.steps(steps)?;
        self.budget.elements(found.len())?;
        Ok(KeyReply::Names(found, None))
    }

    /// Returns a page of names in the order in which the keys were created. The cursor is the number of the last key
    /// that was looked at.
    pub(super) fn scan(
        &mut self,
        cursor: u64,
        count: u64,
        pattern: Option<&Bytes>,
        kind: Option<KeyKind>,
    ) -> KeyResult {
        let glob = pattern.map(|pattern| compiled(pattern)).transpose()?;
        let count = usize::try_from(count.max(1)).unwrap_or(usize::MAX);
        let count = count.min(KEY_PAGE_KEYS_MAX);
        let (mut names, mut steps, mut last) = (Vec::new(), 0, 0);
        let mut rest = self.space.entries.range(cursor.saturating_add(1)..);
        for (number, entry) in rest.by_ref().take(count) {
            last = *number;
            steps += LOOK_STEPS;
            let is_like = |glob: &Glob| {
                steps += glob.cost(entry.name.len());
                glob.matches(&entry.name)
            };
            if glob.as_ref().is_none_or(is_like) && kind.is_none_or(|kind| kind == entry.kind()) {
                names.push(entry.name.clone());
            }
            if steps >= KEY_PAGE_STEPS_MAX {
                break;
            }
        }
        let next = if rest.next().is_some() { last } else { 0 };
        self.budget.steps(steps)?;
        self.budget.elements(names.len())?;
        Ok(KeyReply::Page(next, names))
    }
}

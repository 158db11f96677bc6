//! The values of a property in the secondary index, found by jumping from one to the next.
//!
//! An entry is the property, the namespace, and the value with its length before it. So values are sorted by length
//! first, and those that begin alike are one range for each length.

use ganger_types::Namespace;

use super::secondary_index::{GRAPH, LABEL, beginning};
use crate::encoding::Cursor;
use crate::{IndexedValue, ValueCount, ValuePage, ValueQuery};

/// Bytes behind every continuation of an entry: the length of a name is less.
const BEHIND: [u8; 2] = [0xFF, 0xFF];
/// Largest length of a value.
const VALUE_BYTES_MAX: usize = ganger_types::limits::NAME_BYTES_MAX;

/// The secondary index, as the table of a store has it.
pub trait Entries {
    /// Why the table could not be read.
    type Error;

    /// The first entry from `from` on and before `to`.
    ///
    /// # Errors
    /// If the table cannot be read.
    fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Self::Error>;

    /// The number of jobs with entries from `from` on and before `to`, and of those that have not ended, of at most
    /// `max` jobs.
    ///
    /// # Errors
    /// If the table cannot be read.
    fn count(&mut self, from: &[u8], to: &[u8], max: u64) -> Result<(u64, u64), Self::Error>;
}

/// Collects a page of values.
///
/// # Errors
/// If the table cannot be read.
pub fn page<E: Entries>(
    entries: &mut E,
    namespace: &Namespace,
    of: &IndexedValue,
    query: &ValueQuery,
) -> Result<ValuePage, E::Error> {
    let space = namespace.as_bytes();
    let base = match of {
        IndexedValue::LabelKey => beginning(LABEL, &[space]),
        IndexedValue::Label(key) => beginning(LABEL, &[space, key.as_bytes()]),
        IndexedValue::Graph => beginning(GRAPH, &[space]),
    };
    // Behind the key of a label comes its value; other values are the end of their entry.
    let behind: &[u8] = match of {
        IndexedValue::LabelKey => &BEHIND,
        IndexedValue::Label(_) | IndexedValue::Graph => &[0],
    };
    let end = [&base[..], &BEHIND].concat();
    let of_value = |value: &[u8]| with_value(&base, value);
    let mut page = ValuePage::default();
    let mut from = match &query.after {
        Some(after) => [&of_value(after)[..], behind].concat(),
        None => with_length(&base, query.prefix.len(), &query.prefix),
    };
    while let Some(entry) = entries.first(&from, &end)? {
        let Ok(value) = Cursor::new(&entry[base.len()..], "entry").bytes() else {
            break;
        };
        if !value.starts_with(&query.prefix) {
            let is_before = value.len() >= query.prefix.len() && value < &query.prefix[..];
            let length = if is_before {
                value.len()
            } else {
                (value.len() + 1).max(query.prefix.len())
            };
            if length > VALUE_BYTES_MAX {
                break;
            }
            from = with_length(&base, length, &query.prefix);
            continue;
        }
        if page.values.len() == query.limit {
            page.has_more = true;
            break;
        }
        let (first, next) = (of_value(value), [&of_value(value)[..], behind].concat());
        let (jobs, live) = match query.count_max {
            0 => (0, 0),
            max => entries.count(&first, &next, max)?,
        };
        page.values.push(ValueCount {
            value: value.to_vec(),
            jobs,
            live,
            has_more: query.count_max > 0 && jobs >= query.count_max,
        });
        from = next;
    }
    Ok(page)
}

/// An entry up to a value, with its length before it.
fn with_value(base: &[u8], value: &[u8]) -> Vec<u8> {
    with_length(base, value.len(), value)
}

/// The first entry whose value has this length and begins with these bytes.
fn with_length(base: &[u8], length: usize, bytes: &[u8]) -> Vec<u8> {
    let mut entry = base.to_vec();
    crate::encoding::Writer::new(&mut entry).length(length);
    entry.extend_from_slice(bytes);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::LabelKey;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    /// Entries, each with its number of jobs.
    struct Table {
        rows: BTreeMap<Vec<u8>, u64>,
        looks: usize,
    }

    impl Entries for Table {
        type Error = Infallible;

        fn first(&mut self, from: &[u8], to: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
            self.looks += 1;
            let mut rows = self.rows.range(from.to_vec()..to.to_vec());
            Ok(rows.next().map(|(entry, _)| entry.clone()))
        }

        fn count(&mut self, from: &[u8], to: &[u8], max: u64) -> Result<(u64, u64), Infallible> {
            let rows = self.rows.range(from.to_vec()..to.to_vec());
            Ok((rows.map(|(_, jobs)| jobs).sum::<u64>().min(max), 0))
        }
    }

    fn table() -> Table {
        let mut rows = BTreeMap::new();
        let mut put = |key: &[u8], value: &[u8], jobs| {
            rows.insert(beginning(LABEL, &[b"default", key, value]), jobs);
        };
        put(b"tenant", b"acme", 3);
        put(b"tenant", b"acorn", 1);
        put(b"tenant", b"b", 2);
        put(b"tenant", b"zz", 7);
        put(b"tenant", &[b'a'; 200], 1);
        put(b"order", b"1", 1);
        rows.insert(beginning(LABEL, &[b"default2", b"other", b"x"]), 1);
        rows.insert(beginning(GRAPH, &[b"default", b"g1"]), 1);
        Table { rows, looks: 0 }
    }

    fn found(of: &IndexedValue, query: &ValueQuery) -> (Vec<(String, u64)>, bool, usize) {
        let mut table = table();
        let Ok(page) = super::page(&mut table, &Namespace::default(), of, query);
        let values = page.values.into_iter();
        let values = values.map(|it| (String::from_utf8_lossy(&it.value).into_owned(), it.jobs));
        (values.collect(), page.has_more, table.looks)
    }

    fn all(prefix: &str) -> ValueQuery {
        ValueQuery {
            prefix: prefix.into(),
            limit: 10,
            count_max: 5,
            ..ValueQuery::default()
        }
    }

    #[test]
    fn values_are_found_without_a_look_at_each_job() {
        let tenant = IndexedValue::Label(LabelKey::from_static("tenant"));
        let (keys, _, looks) = found(&IndexedValue::LabelKey, &all(""));
        assert_eq!(keys, [("order".into(), 1), ("tenant".into(), 5)]);
        assert_eq!(looks, 3);
        let (values, ..) = found(&tenant, &all("a"));
        let long = "a".repeat(200);
        let expected = [("acme", 3), ("acorn", 1), (&long, 1)];
        assert_eq!(
            values,
            expected.map(|(value, jobs)| (value.to_owned(), jobs))
        );
        assert_eq!(found(&tenant, &all("aco")).0, [("acorn".into(), 1)]);
        assert!(found(&tenant, &all("c")).0.is_empty());
        let (graphs, ..) = found(&IndexedValue::Graph, &all("g"));
        assert_eq!(graphs, [("g1".into(), 1)]);
    }

    #[test]
    fn a_page_goes_on_after_a_value() {
        let tenant = IndexedValue::Label(LabelKey::from_static("tenant"));
        let two = ValueQuery {
            limit: 2,
            count_max: 0,
            ..all("")
        };
        let (first, has_more, _) = found(&tenant, &two);
        assert_eq!(first, [("b".into(), 0), ("zz".into(), 0)]);
        assert!(has_more);
        let rest = ValueQuery {
            after: Some(b"zz".to_vec()),
            ..two
        };
        let (next, has_more, _) = found(&tenant, &rest);
        assert_eq!(next, [("acme".into(), 0), ("acorn".into(), 0)]);
        assert!(has_more);
    }
}

//! Rows of raw keys.

use ganger_types::{
    Bytes, Change, Elapsed, ElementRecord, ExternalChange, ExternalRow, KeyRecord, Namespace,
};

use crate::store::Loaded;
use crate::suite::{Script, StoreFixture};

fn key(number: u64, value: Option<&'static str>) -> KeyRecord {
    KeyRecord {
        number,
        namespace: Namespace::default(),
        name: Bytes::from(format!("key \0 {number}")),
        value: value.map(|text| Bytes::from_static(text.as_bytes())),
        expires_at: value.map(|_| Elapsed(number)),
    }
}

fn element(list: u64, place: i64, value: &'static str) -> ElementRecord {
    ElementRecord {
        list,
        place,
        value: Bytes::from_static(value.as_bytes()),
    }
}

fn put_key(record: KeyRecord) -> Change {
    Change::External(ExternalChange::PutKey(Box::new(record)))
}

fn put_element(record: ElementRecord) -> Change {
    Change::External(ExternalChange::PutElement(Box::new(record)))
}

/// Keys are loaded by number, and elements by list and place, in whatever order they were written.
pub fn raw_keys_and_elements_are_given_back_in_order<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    let places = [i64::MAX, 0, -1, 256, i64::MIN, -70_000];
    let mut changes: Vec<_> = places
        .map(|place| put_element(element(300, place, "")))
        .into();
    changes.push(put_element(element(2, 7, "seven")));
    changes.extend([key(300, None), key(2, None), key(70, Some(""))].map(put_key));
    script.put(changes);
    let mut sorted = places;
    sorted.sort_unstable();
    let mut expected: Vec<Loaded> = [key(2, None), key(70, Some("")), key(300, None)]
        .map(|row| Loaded::External(ExternalRow::Key(Box::new(row))))
        .into();
    expected.push(Loaded::External(ExternalRow::Element(Box::new(element(
        2, 7, "seven",
    )))));
    expected
        .extend(sorted.map(|place| {
            Loaded::External(ExternalRow::Element(Box::new(element(300, place, ""))))
        }));
    assert_eq!(script.loaded(), expected);
    script.crash();
    assert_eq!(script.loaded(), expected);
}

/// Raw keys and elements change independently of each other.
pub fn raw_keys_and_elements_are_replaced_and_removed<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    script.put(vec![
        put_key(key(1, None)),
        put_key(key(2, Some("old"))),
        put_key(key(3, Some("gone"))),
        put_element(element(1, -1, "a")),
        put_element(element(1, 0, "b")),
        put_element(element(1, 1, "c")),
    ]);
    script.put(vec![
        Change::External(ExternalChange::RemoveKey(3)),
        put_key(key(2, Some("new"))),
        Change::External(ExternalChange::RemoveElement(1, 0)),
        put_element(element(1, 1, "d")),
        // Created and removed within one commit.
        put_key(key(4, None)),
        put_element(element(4, 0, "e")),
        Change::External(ExternalChange::RemoveElement(4, 0)),
        Change::External(ExternalChange::RemoveKey(4)),
    ]);
    let expected = vec![
        Loaded::External(ExternalRow::Key(Box::new(key(1, None)))),
        Loaded::External(ExternalRow::Key(Box::new(key(2, Some("new"))))),
        Loaded::External(ExternalRow::Element(Box::new(element(1, -1, "a")))),
        Loaded::External(ExternalRow::Element(Box::new(element(1, 1, "d")))),
    ];
    assert_eq!(script.loaded(), expected);
    script.crash();
    assert_eq!(script.loaded(), expected);
}

//! Rows of external systems: counts them, and compares raw keys with the elements of lists. The engine's audit
//! checks the content of the rows of qless.

use std::collections::{BTreeMap, BTreeSet};

use ganger_store::Loaded;
use ganger_types::{Bytes, ExternalRow, Namespace};

use super::AuditReport;

/// What is collected from the rows of external systems.
#[derive(Default)]
pub(super) struct ExternalRows {
    names: BTreeSet<(Namespace, Bytes)>,
    /// Numbers of keys with two rows of the same name.
    duplicates: Vec<u64>,
    strings: BTreeSet<u64>,
    lists: BTreeSet<u64>,
    /// Number of elements of each list, by the key's number.
    elements: BTreeMap<u64, u64>,
    /// Number of all rows.
    count: u64,
}

impl ExternalRows {
    /// Adds a row; returns false if the row is of another kind.
    pub(super) fn add(&mut self, row: &Loaded) -> bool {
        let Loaded::External(row) = row else {
            return false;
        };
        self.count += 1;
        match row {
            ExternalRow::Key(key) => {
                if !self.names.insert((key.namespace.clone(), key.name.clone())) {
                    self.duplicates.push(key.number);
                }
                let kind = match key.value {
                    Some(_) => &mut self.strings,
                    None => &mut self.lists,
                };
                kind.insert(key.number);
            }
            ExternalRow::Element(element) => {
                *self.elements.entry(element.list).or_default() += 1;
            }
            ExternalRow::Qless(..) => {}
        }
        true
    }

    pub(super) fn compare(&self, report: &mut AuditReport) {
        report.external_rows += self.count;
        for number in &self.duplicates {
            report.add("keys", number, "another key has the same name");
        }
        for number in &self.lists {
            if !self.elements.contains_key(number) {
                report.add("keys", number, "a list without elements");
            }
        }
        for number in self.elements.keys() {
            if self.strings.contains(number) {
                report.add("elements", number, "elements of a key that is a string");
            } else if !self.lists.contains(number) {
                report.add("elements", number, "elements of a list that is not there");
            }
        }
    }
}

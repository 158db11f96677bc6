//! Documents of answers: conversion of records and replies.

pub mod alert;
pub mod attempt;
pub mod attention;
pub mod audit;
pub mod change;
pub mod cluster;
pub mod delivery;
pub mod event;
pub mod event_sums;
pub mod graph;
pub mod graphs;
pub mod history;
pub mod input;
pub mod job;
pub mod names;
pub mod operation;
pub mod queue;
pub mod reason;
pub mod schedule;
pub mod series;
pub mod server;
pub mod statistics;
pub mod submission;
pub mod whoami;
pub mod worker;

use std::collections::BTreeMap;

use ganger_types::{LabelKey, LabelValue, Priority, Tag};
use serde::{Serialize as _, Serializer};
use serde_json::Number;

use crate::names::{Named, TagName, text};

/// Labels as an object.
pub fn labels(pairs: &[(LabelKey, LabelValue)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| (text(key.as_bytes()), text(value.as_bytes())))
        .collect()
}

/// Tags as a list.
pub fn tags(tags: &[Tag]) -> Vec<TagName> {
    tags.iter().cloned().map(Named).collect()
}

/// Tags as texts, in their order; bytes that are not UTF-8 are replaced.
pub fn texts(tags: &[Tag]) -> Vec<String> {
    tags.iter().map(|tag| text(tag.as_bytes())).collect()
}

/// A priority as a number: whole, or with decimals if it has a fraction.
pub fn priority(priority: Priority) -> Number {
    let (whole, rest) = (
        priority.to_whole(),
        priority.millionths().rem_euclid(1_000_000),
    );
    if rest == 0 {
        return Number::from(whole);
    }
    let sign = if priority.millionths() < 0 { "-" } else { "" };
    let size = priority.millionths().unsigned_abs();
    let text = format!("{sign}{}.{:06}", size / 1_000_000, size % 1_000_000);
    text.trim_end_matches('0')
        .parse()
        .unwrap_or_else(|_| Number::from(whole))
}

/// For `#[serde(serialize_with)]`: a priority as a number.
#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes fields by reference"
)]
pub(crate) fn as_number<S: Serializer>(given: &Priority, serializer: S) -> Result<S::Ok, S::Error> {
    priority(*given).serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_are_whole_numbers_where_they_can_be() {
        let shown = |millionths| priority(Priority::from_millionths(millionths)).to_string();
        assert_eq!(shown(-3_000_000), "-3");
        assert_eq!(shown(1_500_000), "1.5");
        assert_eq!(shown(-500_000), "-0.5");
    }
}

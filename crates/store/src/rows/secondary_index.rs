//! The secondary index: entries by which jobs are found without reading all of them.
//!
//! An entry is a letter for the property, the namespace, and the property's value; most jobs have none. The table is
//! called `marks` in the file.

use ganger_types::query::JobQuery;
use ganger_types::{Graph, JobId, JobRecord, JobState, Namespace};

use super::names::{name, two_parts};
use crate::select::failed_group;

/// A key of the secondary index.
pub type IndexEntry = Vec<u8>;

/// Letter of the entries of labels.
pub const LABEL: u8 = b'l';
/// Letter of the entries of graphs.
pub const GRAPH: u8 = b'g';

/// Returns the beginning of all entries with these parts.
pub fn beginning(letter: u8, parts: &[&[u8]]) -> IndexEntry {
    entry(letter, parts)
}

fn entry(letter: u8, parts: &[&[u8]]) -> IndexEntry {
    let mut entry = vec![letter];
    entry.extend_from_slice(&name(parts));
    entry
}

/// Prefix of the entries of ids.
pub const ID_FIRST: &[u8] = b"i";
/// First key after all entries of ids.
pub const ID_END: &[u8] = b"j";

/// Returns the entry for an id that a client chose.
pub fn id_entry(namespace: &Namespace, id: &JobId) -> IndexEntry {
    entry(b'i', &[namespace.as_bytes(), id.as_bytes()])
}

/// Returns the entry for the members of a graph.
pub fn graph_entry(namespace: &Namespace, graph: &Graph) -> IndexEntry {
    entry(b'g', &[namespace.as_bytes(), graph.as_bytes()])
}

/// Returns what the entries of all graphs of a namespace begin with, and a key behind all of them.
pub fn graph_entries(namespace: &Namespace) -> (IndexEntry, IndexEntry) {
    let first = entry(b'g', &[namespace.as_bytes()]);
    let mut end = first.clone();
    // The name's length follows, which is never as large.
    end.extend_from_slice(&[u8::MAX; 4]);
    (first, end)
}

/// Returns the graph of an entry that [`graph_entry`] made; `None` for any other.
pub fn graph_of(entry: &[u8]) -> Option<Graph> {
    let (_, graph) = two_parts(entry.strip_prefix(b"g")?)?;
    Graph::new(graph).ok()
}

/// Returns the entry for failed or cancelled jobs.
fn bad_end_entry(namespace: &Namespace, state: JobState) -> IndexEntry {
    entry(b'e', &[namespace.as_bytes(), &[state.number()]])
}

/// Whether the job's id cannot be derived from its number.
fn has_chosen_id(record: &JobRecord) -> bool {
    record.id_is_given || record.id.parts() != Some((record.key, record.id_tag))
}

/// Whether a job has any index entries.
pub fn has_entries(record: &JobRecord) -> bool {
    has_chosen_id(record)
        || !record.tags.is_empty()
        || !record.labels.is_empty()
        || record.graph.is_some()
        || record.schedule.is_some()
        || matches!(record.state, JobState::Failed | JobState::Cancelled)
}

/// Returns all index entries of a job, sorted, without duplicates.
pub fn of(record: &JobRecord) -> Vec<IndexEntry> {
    let namespace = record.namespace.as_bytes();
    let mut entries = Vec::new();
    if has_chosen_id(record) {
        entries.push(id_entry(&record.namespace, &record.id));
    }
    entries.extend(
        record
            .tags
            .iter()
            .map(|tag| entry(b't', &[namespace, tag.as_bytes()])),
    );
    entries.extend(
        record
            .labels
            .iter()
            .map(|(k, v)| entry(b'l', &[namespace, k.as_bytes(), v.as_bytes()])),
    );
    entries.extend(
        record
            .graph
            .iter()
            .map(|graph| graph_entry(&record.namespace, graph)),
    );
    entries.extend(
        record
            .schedule
            .iter()
            .map(|id| entry(b's', &[namespace, id.as_bytes()])),
    );
    entries.extend(failed_group(record).map(|group| entry(b'f', &[namespace, group.as_bytes()])));
    if matches!(record.state, JobState::Failed | JobState::Cancelled) {
        entries.push(bad_end_entry(&record.namespace, record.state));
    }
    entries.sort_unstable();
    entries.dedup();
    entries
}

/// Returns an entry that every job matching the query has, the most selective first; `None` if the index does not
/// help.
pub fn of_query(query: &JobQuery) -> Option<IndexEntry> {
    let namespace = query.namespace.as_bytes();
    let telling = || {
        let graph = query
            .graph
            .as_ref()
            .map(|graph| graph_entry(&query.namespace, graph));
        let schedule = || {
            query
                .schedule
                .as_ref()
                .map(|id| entry(b's', &[namespace, id.as_bytes()]))
        };
        let label = || {
            let label = query.labels.first();
            label.map(|(k, v)| entry(b'l', &[namespace, k.as_bytes(), v.as_bytes()]))
        };
        let group = || {
            query
                .group
                .as_ref()
                .map(|group| entry(b'f', &[namespace, group.as_bytes()]))
        };
        let tag = || {
            query
                .tags
                .first()
                .map(|tag| entry(b't', &[namespace, tag.as_bytes()]))
        };
        graph
            .or_else(schedule)
            .or_else(label)
            .or_else(group)
            .or_else(tag)
    };
    let ended = || {
        let state = query
            .states
            .sole()
            .filter(|s| matches!(s, JobState::Failed | JobState::Cancelled))?;
        Some(bad_end_entry(&query.namespace, state))
    };
    telling().or_else(ended)
}

//! Marks: entries by which jobs are found without reading them all.
//!
//! A mark is a letter, the namespace, and what is marked. Most jobs have none.

use ganger_store::select::failed_group;
use ganger_types::query::JobQuery;
use ganger_types::{JobId, JobRecord, JobState, Namespace};

use crate::names::name;

/// A job's entry in the table of marks.
pub(crate) type IndexEntry = Vec<u8>;

fn entry(letter: u8, parts: &[&[u8]]) -> IndexEntry {
    let mut entry = vec![letter];
    entry.extend_from_slice(&name(parts));
    entry
}

/// Where the entries of ids begin, and where they have ended.
pub(crate) const ID_FIRST: &[u8] = b"i";
pub(crate) const ID_END: &[u8] = b"j";

/// The entry of an id that a client chose.
pub(crate) fn id_entry(namespace: &Namespace, id: &JobId) -> IndexEntry {
    entry(b'i', &[namespace.as_bytes(), id.as_bytes()])
}

/// The entry of jobs that ended badly in this way.
fn bad_end_entry(namespace: &Namespace, state: JobState) -> IndexEntry {
    entry(b'e', &[namespace.as_bytes(), &[state.number()]])
}

/// Whether the job's id cannot be told from its number.
fn has_chosen_id(record: &JobRecord) -> bool {
    record.id_is_given || record.id.parts() != Some((record.key, record.id_tag))
}

/// Whether a job has any marks.
pub(crate) fn has_entries(record: &JobRecord) -> bool {
    has_chosen_id(record)
        || !record.tags.is_empty()
        || !record.labels.is_empty()
        || record.graph.is_some()
        || record.schedule.is_some()
        || matches!(record.state, JobState::Failed | JobState::Cancelled)
}

/// All marks of a job, sorted, each once.
pub(crate) fn of(record: &JobRecord) -> Vec<IndexEntry> {
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
            .map(|graph| entry(b'g', &[namespace, graph.as_bytes()])),
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

/// A mark that every job of this listing has, the most telling first.
pub(crate) fn of_query(query: &JobQuery) -> Option<IndexEntry> {
    let namespace = query.namespace.as_bytes();
    let telling = || {
        let graph = query
            .graph
            .as_ref()
            .map(|graph| entry(b'g', &[namespace, graph.as_bytes()]));
        let schedule = || {
            query
                .schedule
                .as_ref()
                .map(|id| entry(b's', &[namespace, id.as_bytes()]))
        };
        let label = || {
            let label = query.label.as_ref();
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
                .tag
                .as_ref()
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

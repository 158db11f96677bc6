//! Selection: the meaning of a [`JobQuery`] for all stores.

use ganger_types::limits::PAGE_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{JobRecord, JobState};

use crate::encoding::JobHeader;
use ganger_types::StoredJob;

/// The maximum number of jobs on a page of `query`.
pub fn page_limit(query: &JobQuery) -> usize {
    query.limit.clamp(1, PAGE_JOBS_MAX)
}

/// Whether `job` meets the conditions of `query`, apart from `after` and `limit`.
pub fn matches(query: &JobQuery, job: &StoredJob) -> bool {
    let record = &job.record;
    let held =
        || query.worker.is_none() || job.lease.as_ref().map(|l| &l.worker) == query.worker.as_ref();
    record.namespace == query.namespace
        && query
            .queue
            .as_ref()
            .is_none_or(|queue| record.queue == *queue)
        && query.kind.as_ref().is_none_or(|kind| record.kind == *kind)
        && query.states.contains(record.state)
        && query
            .created_from
            .is_none_or(|from| record.created_at >= from)
        && query
            .created_before
            .is_none_or(|before| record.created_at < before)
        && held()
        && matches_end(query, record)
        && matches_words(query, record)
        && matches_identity(query, record)
        && matches_failure(query, record)
}

/// Whether the job ended within the times of the query. A live job did not.
fn matches_end(query: &JobQuery, record: &JobRecord) -> bool {
    if query.finished_from.is_none() && query.finished_before.is_none() {
        return true;
    }
    record.finished.as_ref().is_some_and(|end| {
        query.finished_from.is_none_or(|from| end.at >= from)
            && query.finished_before.is_none_or(|before| end.at < before)
    })
}

fn matches_identity(query: &JobQuery, record: &JobRecord) -> bool {
    let begins = |prefix: &Option<Vec<u8>>, name: &[u8]| {
        prefix
            .as_ref()
            .is_none_or(|prefix| name.starts_with(prefix))
    };
    begins(&query.id_prefix, record.id.as_bytes())
        && begins(&query.kind_prefix, record.kind.as_bytes())
        && query
            .tracked
            .is_none_or(|tracked| record.tracked == tracked)
        && query.attempt_min.is_none_or(|min| record.attempt >= min)
        && (query.unique_key.is_none() || record.unique == query.unique_key)
}

fn matches_words(query: &JobQuery, record: &JobRecord) -> bool {
    query.tags.iter().all(|tag| record.tags.contains(tag))
        && query
            .labels
            .iter()
            .all(|label| record.labels.contains(label))
        && (query.graph.is_none() || record.graph == query.graph)
        && (query.schedule.is_none() || record.schedule == query.schedule)
}

/// Whether a job matches group and failure text. A group contains failed jobs only; the text also matches jobs that
/// are retried.
fn matches_failure(query: &JobQuery, record: &JobRecord) -> bool {
    let failure = record.failure.as_ref();
    query
        .group
        .as_ref()
        .is_none_or(|group| failed_group(record) == Some(group))
        && query.failure_text.as_ref().is_none_or(|text| {
            failure.is_some_and(|failure| failure.message.contains(text.as_str()))
        })
}

/// The group in which a failed job is listed.
pub fn failed_group(record: &JobRecord) -> Option<&ganger_types::Group> {
    let failure = record
        .failure
        .as_ref()
        .filter(|_| record.state == JobState::Failed)?;
    Some(&failure.group)
}

/// Whether a record with this header may match; the rest of the record decides.
pub fn may_match(query: &JobQuery, front: &JobHeader<'_>) -> bool {
    // A leased job is stored in its state before the lease.
    let may_run = query.states.contains(JobState::Running) && !front.state.is_terminal();
    (may_run || query.states.contains(front.state))
        && front.namespace == query.namespace.as_bytes()
        && query
            .queue
            .as_ref()
            .is_none_or(|queue| front.queue == queue.as_bytes())
        && query
            .kind
            .as_ref()
            .is_none_or(|kind| front.kind == kind.as_bytes())
        && query
            .kind_prefix
            .as_ref()
            .is_none_or(|prefix| front.kind.starts_with(prefix))
        && query
            .created_from
            .is_none_or(|from| front.created_at >= from)
        && query
            .created_before
            .is_none_or(|before| front.created_at < before)
}

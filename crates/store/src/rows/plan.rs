//! Where a listing or a count finds its candidates, as far as tables and the secondary index help.

use ganger_types::query::JobQuery;
use ganger_types::{JobState, JobStates};

use crate::{Count, Looked};

use super::secondary_index::{self, IndexEntry};

/// The source of a listing's candidates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Jobs with this index entry.
    IndexEntry(IndexEntry),
    /// Jobs that are leased.
    Leases,
    /// Finished jobs, all of them.
    Finished,
    /// Live jobs, all of them.
    Live,
    /// Jobs of every kind, live and finished.
    All,
}

impl Source {
    /// Returns the smallest source that has every job of a query.
    pub fn of(query: &JobQuery) -> Self {
        let states = query.possible_states();
        if query.worker.is_some() || states.sole() == Some(JobState::Running) {
            return Self::Leases;
        }
        match secondary_index::of_query(query) {
            Some(mark) => Self::IndexEntry(mark),
            None if states.is_within(JobStates::ENDED) => Self::Finished,
            None if states.is_within(JobStates::LIVE) => Self::Live,
            None => Self::All,
        }
    }
}

/// Splits a count into a part that the index answers and a part that needs the records.
#[derive(Clone, Debug)]
pub struct CountPlan {
    /// Query for the jobs whose records must be read; without states if there are none.
    pub rest: JobQuery,
    /// States of finished jobs to count by columns; `None` if none are.
    pub of_ended: Option<JobStates>,
    /// Whether the number of index entries is the answer.
    pub is_by_index: bool,
}

impl CountPlan {
    /// Makes the plan of a count.
    pub fn new(query: &JobQuery) -> Self {
        let mut rest = JobQuery {
            after: None,
            newest_first: false,
            ..query.clone()
        };
        let is_by_index = is_by_index(query);
        let of_ended = is_by_columns(query).then(|| query.states.and(JobStates::ENDED));
        if is_by_index {
            rest.states = JobStates::NONE;
        } else if of_ended.is_some() {
            rest.states = query.possible_states().and(JobStates::LIVE);
        }
        Self {
            rest,
            of_ended: of_ended.filter(|states| !is_by_index && !states.is_empty()),
            is_by_index,
        }
    }

    /// Returns the index entry that counted jobs have, if the query asks for one.
    pub fn entry(&self) -> Option<IndexEntry> {
        (count_indexed_filters(&self.rest) == 1)
            .then(|| secondary_index::of_query(&self.rest))
            .flatten()
    }

    /// Adds the count by the index to that of the records.
    pub fn sum(&self, indexed: u64, records: Count) -> Count {
        let is_cut = self.rest.budget.records.is_some_and(|most| indexed >= most);
        Count {
            jobs: indexed + records.jobs,
            looked: Looked {
                records: indexed + records.looked.records,
                is_cut: is_cut || records.looked.is_cut,
                ..records.looked
            },
        }
    }

    /// Whether records must be read.
    pub fn needs_records(&self) -> bool {
        !self.rest.states.is_empty()
    }
}

/// Number of conditions of the query that the secondary index covers.
fn count_indexed_filters(query: &JobQuery) -> usize {
    let filters = [
        query.tags.len(),
        query.labels.len(),
        usize::from(query.graph.is_some()),
        usize::from(query.schedule.is_some()),
        usize::from(query.group.is_some()),
    ];
    filters.into_iter().sum()
}

/// Whether the query has no other conditions than namespace, queue, states and one index entry.
fn is_by_columns(query: &JobQuery) -> bool {
    let plain = JobQuery {
        tags: query.tags.clone(),
        labels: query.labels.clone(),
        graph: query.graph.clone(),
        schedule: query.schedule.clone(),
        group: query.group.clone(),
        ..query.without_conditions()
    };
    count_indexed_filters(query) <= 1 && *query == plain
}

/// Whether one index entry is the query's only condition.
fn is_by_index(query: &JobQuery) -> bool {
    is_by_columns(query)
        && count_indexed_filters(query) == 1
        && query.queue.is_none()
        && query.states.is_all()
}

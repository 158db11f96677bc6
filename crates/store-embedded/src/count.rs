//! Counts jobs from columns and the secondary index where these suffice, otherwise by reading records.
//!
//! An index entry exists for every job that has its property, and columns hold the queue and state of finished jobs.
//! Only live jobs, and conditions without column or index, need the records, which are read in slices as for a
//! [`list`].

use ganger_types::JobStates;
use ganger_types::query::JobQuery;
use rusqlite::{Connection, params_from_iter};

use crate::fault::Fault;
use crate::list::Listing;
use crate::row::from_sql;
use crate::secondary_index;

/// Splits a count into a part that the index answers and a part that needs the records.
pub(crate) struct CountPlan {
    /// Query for the jobs whose records must be read.
    rest: JobQuery,
    /// States of finished jobs to count by columns; `None` if none are.
    of_ended: Option<JobStates>,
    is_by_index: bool,
}

impl CountPlan {
    pub(crate) fn new(query: &JobQuery) -> Self {
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
            rest.states = query.states.and(JobStates::LIVE);
        }
        Self {
            rest,
            of_ended: of_ended.filter(|states| !is_by_index && !states.is_empty()),
            is_by_index,
        }
    }

    /// Number of jobs that the index or the columns count.
    pub(crate) fn indexed(&self, connection: &Connection) -> Result<u64, Fault> {
        if self.is_by_index {
            let mark = secondary_index::of_query(&self.rest).unwrap_or_default();
            let sql = "SELECT count(*) FROM marks WHERE mark = ?1";
            return number(connection, sql, &[&mark]);
        }
        self.of_ended
            .map_or(Ok(0), |states| ended(connection, &self.rest, states))
    }

    /// Listing that counts the remaining jobs by their records; `None` if none remain.
    pub(crate) fn listing(&self) -> Option<Listing<'_>> {
        (!self.rest.states.is_empty()).then(|| Listing::counting(&self.rest))
    }
}

/// Number of conditions of the query that the secondary index covers.
fn count_indexed_filters(query: &JobQuery) -> usize {
    let filters = [
        query.tag.is_some(),
        query.label.is_some(),
        query.graph.is_some(),
        query.schedule.is_some(),
        query.group.is_some(),
    ];
    filters.into_iter().filter(|is_given| *is_given).count()
}

/// Whether the query has no other conditions than namespace, queue, states and one index entry.
fn is_by_columns(query: &JobQuery) -> bool {
    count_indexed_filters(query) <= 1
        && query.kind.is_none()
        && query.failure_text.is_none()
        && query.worker.is_none()
        && query.created_from.is_none()
        && query.created_before.is_none()
}

/// Whether one index entry is the query's only condition.
fn is_by_index(query: &JobQuery) -> bool {
    is_by_columns(query)
        && count_indexed_filters(query) == 1
        && query.queue.is_none()
        && query.states.is_all()
}

/// Counts finished jobs in these states by their columns.
fn ended(connection: &Connection, query: &JobQuery, states: JobStates) -> Result<u64, Fault> {
    let mark = (count_indexed_filters(query) == 1)
        .then(|| secondary_index::of_query(query))
        .flatten();
    let mut values: Vec<&[u8]> = vec![query.namespace.as_bytes()];
    let mut places = "SELECT id FROM places WHERE namespace = ?1".to_owned();
    if let Some(queue) = &query.queue {
        values.push(queue.as_bytes());
        places.push_str(" AND queue = ?2");
    }
    let from = if let Some(mark) = &mark {
        values.push(mark);
        let place = values.len();
        format!("marks CROSS JOIN finished USING (key) WHERE mark = ?{place} AND")
    } else {
        "finished WHERE".to_owned()
    };
    let outcomes: Vec<String> = states
        .iter()
        .map(|state| state.number().to_string())
        .collect();
    let outcomes = outcomes.join(", ");
    let sql =
        format!("SELECT count(*) FROM {from} outcome IN ({outcomes}) AND place IN ({places})");
    number(connection, &sql, &values)
}

fn number(connection: &Connection, sql: &str, values: &[&[u8]]) -> Result<u64, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let count = statement.query_row(params_from_iter(values), |row| row.get(0))?;
    Ok(from_sql(count))
}

//! Counting: from the tables' columns and marks where they tell all, else by looking at what a listing would.
//!
//! A mark tells of all jobs that have it; of the ended ones their queue and state stand in columns besides the record.
//! Only live jobs, and conditions that no column knows, need the records, which are read in slices as for a [`list`].

use ganger_types::JobStates;
use ganger_types::query::JobQuery;
use rusqlite::{Connection, params_from_iter};

use crate::fault::Fault;
use crate::list::Listing;
use crate::row::from_sql;
use crate::secondary_index;

/// A count in the making.
pub(crate) struct CountPlan {
    /// What is to be counted by looking.
    rest: JobQuery,
    /// What the index is asked before; `None`: nothing.
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

    /// Those that the index tells of.
    pub(crate) fn indexed(&self, connection: &Connection) -> Result<u64, Fault> {
        if self.is_by_index {
            let mark = secondary_index::of_query(&self.rest).unwrap_or_default();
            let sql = "SELECT count(*) FROM marks WHERE mark = ?1";
            return number(connection, sql, &[&mark]);
        }
        self.of_ended
            .map_or(Ok(0), |states| ended(connection, &self.rest, states))
    }

    /// What is left to be counted one by one; `None` if nothing is.
    pub(crate) fn listing(&self) -> Option<Listing<'_>> {
        (!self.rest.states.is_empty()).then(|| Listing::counting(&self.rest))
    }
}

/// How many of the words that have marks are asked for.
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

/// Whether namespace, queue, states and a single mark are all that is asked for.
fn is_by_columns(query: &JobQuery) -> bool {
    count_indexed_filters(query) <= 1
        && query.kind.is_none()
        && query.failure_text.is_none()
        && query.worker.is_none()
        && query.created_from.is_none()
        && query.created_before.is_none()
}

/// Whether a mark is all that is asked for.
fn is_by_index(query: &JobQuery) -> bool {
    is_by_columns(query)
        && count_indexed_filters(query) == 1
        && query.queue.is_none()
        && query.states.is_all()
}

/// Ended jobs in these states, by their columns.
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

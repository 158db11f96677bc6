//! Counts jobs from columns and the secondary index where these suffice, otherwise by reading records.
//!
//! An index entry exists for every job that has its property, and columns hold the queue and state of finished jobs.
//! Only live jobs, and conditions without column or index, need the records, which are read in slices as for a
//! [`list`].

use ganger_store::rows::plan::CountPlan;
use ganger_store::rows::row::from_sql;
use ganger_types::JobStates;
use rusqlite::{Connection, params_from_iter};

use crate::fault::Fault;

/// Number of jobs that the index or the columns count.
pub(crate) fn indexed(connection: &Connection, plan: &CountPlan) -> Result<u64, Fault> {
    if plan.is_by_index {
        let mark = plan.entry().unwrap_or_default();
        return number(connection, plan, "marks WHERE mark = ?1", &[&mark]);
    }
    plan.of_ended
        .map_or(Ok(0), |states| ended(connection, plan, states))
}

/// Counts finished jobs in these states by their columns.
fn ended(connection: &Connection, plan: &CountPlan, states: JobStates) -> Result<u64, Fault> {
    let (query, mark) = (&plan.rest, plan.entry());
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
    let rows = format!("{from} outcome IN ({outcomes}) AND place IN ({places})");
    number(connection, plan, &rows, &values)
}

/// Counts rows, at most as many as the budget allows.
fn number(
    connection: &Connection,
    plan: &CountPlan,
    rows: &str,
    values: &[&[u8]],
) -> Result<u64, Fault> {
    let sql = match plan.rest.budget.records {
        None => format!("SELECT count(*) FROM {rows}"),
        Some(most) => format!("SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT {most})"),
    };
    let mut statement = connection.prepare_cached(&sql)?;
    let count = statement.query_row(params_from_iter(values), |row| row.get(0))?;
    Ok(from_sql(count))
}

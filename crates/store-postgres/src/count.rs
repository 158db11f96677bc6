//! Counts jobs from columns and the secondary index, where these suffice.

use ganger_store::rows::plan::CountPlan;
use ganger_store::rows::row::from_sql;
use ganger_types::{JobStates, Queue};
use tokio_postgres::types::Type;

use crate::fault::Fault;
use crate::session::Parameter;
use crate::tables::Tables;

/// Number of jobs that the index or the columns count.
pub(crate) fn indexed(tables: &Tables<'_>, plan: &CountPlan) -> Result<u64, Fault> {
    if plan.is_by_index {
        let mark = plan.entry().unwrap_or_default();
        let rows = "{s}.marks WHERE mark = $1";
        return number(tables, plan, rows, &[(&mark, Type::BYTEA)]);
    }
    plan.of_ended
        .map_or(Ok(0), |states| ended(tables, plan, states))
}

/// Counts finished jobs in these states by their columns.
fn ended(tables: &Tables<'_>, plan: &CountPlan, states: JobStates) -> Result<u64, Fault> {
    let outcomes: Vec<i16> = states.iter().map(|state| state.number().into()).collect();
    let namespace = plan.rest.namespace.as_bytes();
    let queue = plan.rest.queue.as_ref().map(Queue::as_bytes);
    let columns = "outcome = ANY($1) AND place IN (SELECT id FROM {s}.places
        WHERE namespace = $2 AND ($3::bytea IS NULL OR queue = $3))";
    let mut parameters: Vec<Parameter<'_>> = vec![
        (&outcomes, Type::INT2_ARRAY),
        (&namespace, Type::BYTEA),
        (&queue, Type::BYTEA),
    ];
    let mark = plan.entry();
    let from = match &mark {
        Some(mark) => {
            parameters.push((mark, Type::BYTEA));
            "{s}.marks JOIN {s}.finished USING (key) WHERE mark = $4 AND"
        }
        None => "{s}.finished WHERE",
    };
    number(tables, plan, &format!("{from} {columns}"), &parameters)
}

/// Counts rows, at most as many as the budget allows.
fn number(
    tables: &Tables<'_>,
    plan: &CountPlan,
    rows: &str,
    parameters: &[Parameter<'_>],
) -> Result<u64, Fault> {
    let sql = match plan.rest.budget.records {
        None => format!("SELECT count(*) FROM {rows}"),
        Some(most) => format!("SELECT count(*) FROM (SELECT 1 FROM {rows} LIMIT {most}) r"),
    };
    let rows = tables.query(&sql, parameters)?;
    let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    Ok(from_sql(count))
}

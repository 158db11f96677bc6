//! Inserts several tasks in one transaction: all or none.

use std::collections::{HashMap, HashSet};

use crate::rows::{Column, Table};

use crate::postgres::copy::{self, CopyOptions};
use crate::postgres::locks;
use crate::postgres::session::Session;
use crate::postgres::session_error::{SessionError, Stage};
use crate::postgres::tables;
use crate::postgres::task_rows::{TaskRows, member};

/// Inserts tasks. `in_doubt` means that an earlier transaction with them may have been committed.
pub(crate) async fn insert(
    session: &mut Session,
    tasks: &[&TaskRows<'_>],
    options: CopyOptions,
    in_doubt: bool,
) -> Result<(), SessionError> {
    for (table, columns) in required_tables(tasks) {
        tables::ensure_table(session, table, &columns).await?;
    }
    session.begin(Stage::Rows, lock_keys(tasks)).await?;
    let done = insert_missing(session, tasks, options, in_doubt).await;
    session.end(Stage::Rows, done).await
}

/// Returns the keys of the tasks' locks.
pub(crate) fn lock_keys(tasks: &[&TaskRows<'_>]) -> Vec<i64> {
    tasks
        .iter()
        .map(|task| locks::task_key(&task.insert.uuid))
        .collect()
}

/// Returns the tables that tasks need with all columns, sorted so that concurrent inserters lock them in the same order.
/// The first task with a column decides its type, as if the tasks were inserted one after the other.
fn required_tables<'a>(tasks: &[&'a TaskRows<'_>]) -> Vec<(&'a Table, Vec<&'a Column>)> {
    let mut required: HashMap<&Table, (Vec<&Column>, HashSet<&str>)> = HashMap::new();
    for group in tasks.iter().flat_map(|task| &task.groups) {
        let (columns, names) = required.entry(&group.table).or_default();
        for column in &group.columns {
            if names.insert(&column.name) {
                columns.push(column);
            }
        }
    }
    let mut required: Vec<_> = required
        .into_iter()
        .map(|(table, (columns, _))| (table, columns))
        .collect();
    required.sort_unstable_by_key(|(table, _)| *table);
    required
}

async fn insert_missing(
    session: &mut Session,
    tasks: &[&TaskRows<'_>],
    options: CopyOptions,
    in_doubt: bool,
) -> Result<(), SessionError> {
    let mut missing = Vec::with_capacity(tasks.len());
    for task in tasks {
        let may_be_inserted = in_doubt || task.may_be_inserted();
        if !(may_be_inserted && is_inserted(session, task).await?) {
            missing.push(*task);
        }
    }
    for batch in copy::copy_batches(&missing) {
        copy::insert(session, &batch, options).await?;
    }
    Ok(())
}

/// Whether a task is in the database. One row proves that all are there, since they are inserted in one transaction.
pub(crate) async fn is_inserted(
    session: &mut Session,
    task: &TaskRows<'_>,
) -> Result<bool, SessionError> {
    for group in &task.groups {
        let Some(row) = group.rows.first() else {
            continue;
        };
        // The index covers the first two columns.
        let sql = format!(
            "select from {} where entity_id = $1::text and time_index = $2::text::timestamptz \
             and instanceid = $3::text limit 1",
            group.table.sql_name()
        );
        let entity = task.entity(row);
        let (id, time) = (member(entity, "id"), member(entity, "time_index"));
        let instance = task.instance_id(row);
        let rows = session
            .query(Stage::Rows, &sql, &[&id, &time, &instance])
            .await?;
        if !rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

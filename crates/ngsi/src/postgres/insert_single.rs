//! Inserts one task in its own transaction, after the batch failed. If an entity does not fit its table, all entities of
//! its group are saved as JSON, so that no value is lost.

use crate::rows::{Group, Row, failed_batch_id};
use serde_json::json;

use crate::postgres::copy::{self, CopyBatch, CopyLine, CopyOptions};
use crate::postgres::insert_batch::{is_inserted, lock_keys};
use crate::postgres::session::Session;
use crate::postgres::session_error::{SessionError, Stage};
use crate::postgres::tables;
use crate::postgres::task_rows::{TaskRows, member};

/// Allows rolling back the following statements alone.
const SAVEPOINT: &str = "savepoint part";
const ROLL_BACK: &str = "rollback to savepoint part";
const RELEASE: &str = "release savepoint part";

/// Whether a task was already in the database.
enum TaskState {
    /// The task was missing and has been inserted.
    NewlyInserted,
    /// The task was already there, so this transaction must be rolled back.
    AlreadyInserted,
}

/// Inserts a task. `in_doubt` means that an earlier transaction with it may have been committed.
pub(crate) async fn insert(
    session: &mut Session,
    task: &TaskRows<'_>,
    options: CopyOptions,
    in_doubt: bool,
) -> Result<(), SessionError> {
    let mut schema_errors = Vec::with_capacity(task.groups.len());
    for group in &task.groups {
        schema_errors.push(ensure_table(session, group).await?);
    }
    session.begin(Stage::Rows, lock_keys(&[task])).await?;
    let done = insert_groups(session, task, options, in_doubt, &schema_errors).await;
    match done {
        Ok(TaskState::AlreadyInserted) => session.execute(Stage::Rows, "rollback").await,
        Ok(TaskState::NewlyInserted) => session.end(Stage::Rows, Ok(())).await,
        Err(error) => session.end(Stage::Rows, Err(error)).await,
    }
}

/// Creates the table of a group. If its columns cannot be created, creates the table without them and returns the reason.
async fn ensure_table(
    session: &mut Session,
    group: &Group,
) -> Result<Option<String>, SessionError> {
    let columns: Vec<_> = group.columns.iter().collect();
    let Err(error) = tables::ensure_table(session, &group.table, &columns).await else {
        return Ok(None);
    };
    match error.permanent_error() {
        Some(reason) if !error.is_conflict() => {
            tables::ensure_table(session, &group.table, &[]).await?;
            Ok(Some(reason))
        }
        _ => Err(error),
    }
}

async fn insert_groups(
    session: &mut Session,
    task: &TaskRows<'_>,
    options: CopyOptions,
    in_doubt: bool,
    schema_errors: &[Option<String>],
) -> Result<TaskState, SessionError> {
    let may_be_inserted = in_doubt || task.may_be_inserted();
    if may_be_inserted && is_inserted_in_savepoint(session, task).await? {
        return Ok(TaskState::AlreadyInserted);
    }
    for (index, (group, schema_error)) in task.groups.iter().zip(schema_errors).enumerate() {
        let error = match schema_error {
            Some(error) => Some(error.clone()),
            None => insert_group(session, task, group, options).await?,
        };
        let Some(error) = error else { continue };
        let batch = failed_batch_id(&task.insert.uuid, index);
        if may_be_inserted && is_saved(session, task, group, &batch).await? {
            return Ok(TaskState::AlreadyInserted);
        }
        save(session, task, group, &batch, &error, options).await?;
    }
    Ok(TaskState::NewlyInserted)
}

/// Whether a task is in the database. If the database cannot parse its time, no row can have it.
async fn is_inserted_in_savepoint(
    session: &mut Session,
    task: &TaskRows<'_>,
) -> Result<bool, SessionError> {
    session.execute(Stage::Rows, SAVEPOINT).await?;
    let found = is_inserted(session, task).await;
    match end_savepoint(session, found).await? {
        Ok(found) => Ok(found),
        Err(_) => Ok(false),
    }
}

/// Inserts the rows of a group; returns the error if one does not fit.
async fn insert_group(
    session: &mut Session,
    task: &TaskRows<'_>,
    group: &Group,
    options: CopyOptions,
) -> Result<Option<String>, SessionError> {
    let batch = CopyBatch {
        table: &group.table,
        columns: &group.columns,
        rows: group.rows.iter().map(|row| (task, row)).collect(),
    };
    session.execute(Stage::Rows, SAVEPOINT).await?;
    let inserted = copy::insert(session, &batch, options).await;
    Ok(end_savepoint(session, inserted).await?.err())
}

/// Ends a savepoint. Rolls back to it after a permanent error, which becomes the inner error.
async fn end_savepoint<T>(
    session: &Session,
    done: Result<T, SessionError>,
) -> Result<Result<T, String>, SessionError> {
    match done {
        Ok(done) => {
            session.execute(Stage::Rows, RELEASE).await?;
            Ok(Ok(done))
        }
        Err(error) => match error.permanent_error() {
            Some(reason) if !error.is_conflict() => {
                session.execute(Stage::Rows, ROLL_BACK).await?;
                Ok(Err(reason))
            }
            _ => Err(error),
        },
    }
}

/// Whether an earlier attempt saved the entities of a group as JSON. No index supports this query, so it runs only once
/// the entities do not fit again, which they do unless the table was changed.
async fn is_saved(
    session: &mut Session,
    task: &TaskRows<'_>,
    group: &Group,
    batch: &str,
) -> Result<bool, SessionError> {
    let sql = format!(
        "select from {} where entity_id = $1::text and instanceid is null \
         and __original_ngsi_entity__ ->> 'failedBatchID' = $2::text limit 1",
        group.table.sql_name()
    );
    let id = group
        .rows
        .first()
        .and_then(|row| member(task.entity(row), "id"));
    let rows = session.query(Stage::Rows, &sql, &[&id, &batch]).await?;
    Ok(!rows.is_empty())
}

/// Saves the entities of a group as JSON.
async fn save(
    session: &mut Session,
    task: &TaskRows<'_>,
    group: &Group,
    batch: &str,
    error: &str,
    options: CopyOptions,
) -> Result<(), SessionError> {
    let sql = format!(
        "copy {} (entity_id, entity_type, time_index, __original_ngsi_entity__) from stdin",
        group.table.sql_name()
    );
    let line = |row: &Row| {
        let entity = task.entity(row);
        let original = json!({ "data": entity, "error": error, "failedBatchID": batch });
        let mut line = CopyLine::default();
        line.push_field(member(entity, "id"));
        line.push_field(member(entity, "type"));
        // PostgreSQL reads this as the start time of the transaction.
        line.push_field(Some("now"));
        line.push_field(Some(&original.to_string()));
        line.finish()
    };
    let lines = group.rows.iter().map(line);
    copy::copy(session, &sql, lines, options.bytes_max).await
}

//! A transaction for one task, after it did not go well with all: a type of which an entity does not fit is saved as
//! JSON instead, so that no value is lost.

use crate::rows::{Group, Row, failed_batch_id};
use serde_json::json;

use crate::postgres::copy::{self, Line, Manner, Portion};
use crate::postgres::faults::{Fault, Stage};
use crate::postgres::insert_batch::{is_there, keys};
use crate::postgres::session::Session;
use crate::postgres::tables;
use crate::postgres::work::{Work, member};

/// Takes back what follows it if that does not go well.
const SAVEPOINT: &str = "savepoint part";
const ROLL_BACK: &str = "rollback to savepoint part";
const RELEASE: &str = "release savepoint part";

/// Whether a task had to be inserted.
enum Found {
    /// It was not there, and has been inserted.
    Missing,
    /// It was there already: nothing of this transaction may stay.
    There,
}

/// Inserts a task. `in_doubt` says that an earlier transaction with it may have been committed.
pub(crate) async fn insert(
    session: &mut Session,
    work: &Work<'_>,
    manner: Manner,
    in_doubt: bool,
) -> Result<(), Fault> {
    let mut unmade = Vec::with_capacity(work.groups.len());
    for group in &work.groups {
        unmade.push(make_sure(session, group).await?);
    }
    session.begin(Stage::Inserting, keys(&[work])).await?;
    let done = insert_groups(session, work, manner, in_doubt, &unmade).await;
    match done {
        Ok(Found::There) => session.execute(Stage::Inserting, "rollback").await,
        Ok(Found::Missing) => session.end(Stage::Inserting, Ok(())).await,
        Err(fault) => session.end(Stage::Inserting, Err(fault)).await,
    }
}

/// Makes what a group needs. If its columns cannot be made, at least the table, and the answer says why.
async fn make_sure(session: &mut Session, group: &Group) -> Result<Option<String>, Fault> {
    let columns: Vec<_> = group.columns.iter().collect();
    let Err(fault) = tables::make_sure(session, &group.table, &columns).await else {
        return Ok(None);
    };
    match fault.misfit() {
        Some(error) if !fault.is_race() => {
            tables::make_sure(session, &group.table, &[]).await?;
            Ok(Some(error))
        }
        _ => Err(fault),
    }
}

async fn insert_groups(
    session: &mut Session,
    work: &Work<'_>,
    manner: Manner,
    in_doubt: bool,
    unmade: &[Option<String>],
) -> Result<Found, Fault> {
    let may_be_there = in_doubt || work.may_be_there();
    if may_be_there && is_there_or_misfit(session, work).await? {
        return Ok(Found::There);
    }
    for (place, (group, unmade)) in work.groups.iter().zip(unmade).enumerate() {
        let error = match unmade {
            Some(error) => Some(error.clone()),
            None => insert_or_misfit(session, work, group, manner).await?,
        };
        let Some(error) = error else { continue };
        let batch = failed_batch_id(&work.insert.uuid, place);
        if may_be_there && is_saved(session, work, group, &batch).await? {
            return Ok(Found::There);
        }
        save(session, work, group, &batch, &error, manner).await?;
    }
    Ok(Found::Missing)
}

/// Whether a row of the task is there. A time that the database cannot read is in no row.
async fn is_there_or_misfit(session: &mut Session, work: &Work<'_>) -> Result<bool, Fault> {
    session.execute(Stage::Inserting, SAVEPOINT).await?;
    let found = is_there(session, work).await;
    match after(session, found).await? {
        Ok(found) => Ok(found),
        Err(_) => Ok(false),
    }
}

/// Inserts the rows of a group; gives the error if one does not fit.
async fn insert_or_misfit(
    session: &mut Session,
    work: &Work<'_>,
    group: &Group,
    manner: Manner,
) -> Result<Option<String>, Fault> {
    let portion = Portion {
        table: &group.table,
        columns: &group.columns,
        rows: group.rows.iter().map(|row| (work, row)).collect(),
    };
    session.execute(Stage::Inserting, SAVEPOINT).await?;
    let inserted = copy::insert(session, &portion, manner).await;
    Ok(after(session, inserted).await?.err())
}

/// Ends what a savepoint began: a misfit is taken back and given as the inner error.
async fn after<T>(session: &Session, done: Result<T, Fault>) -> Result<Result<T, String>, Fault> {
    match done {
        Ok(done) => {
            session.execute(Stage::Inserting, RELEASE).await?;
            Ok(Ok(done))
        }
        Err(fault) => match fault.misfit() {
            Some(error) if !fault.is_race() => {
                session.execute(Stage::Inserting, ROLL_BACK).await?;
                Ok(Err(error))
            }
            _ => Err(fault),
        },
    }
}

/// Whether the entities of a group have been saved as JSON by an earlier attempt. That is looked up only once they do
/// not fit this time either, which is as it was then unless somebody changed the table: no index helps to find it.
async fn is_saved(
    session: &mut Session,
    work: &Work<'_>,
    group: &Group,
    batch: &str,
) -> Result<bool, Fault> {
    let sql = format!(
        "select from {} where entity_id = $1::text and instanceid is null \
         and __original_ngsi_entity__ ->> 'failedBatchID' = $2::text limit 1",
        group.table.sql_name()
    );
    let id = group
        .rows
        .first()
        .and_then(|row| member(work.entity(row), "id"));
    let rows = session
        .query(Stage::Inserting, &sql, &[&id, &batch])
        .await?;
    Ok(!rows.is_empty())
}

/// Saves the entities of a group as JSON.
async fn save(
    session: &mut Session,
    work: &Work<'_>,
    group: &Group,
    batch: &str,
    error: &str,
    manner: Manner,
) -> Result<(), Fault> {
    let sql = format!(
        "copy {} (entity_id, entity_type, time_index, __original_ngsi_entity__) from stdin",
        group.table.sql_name()
    );
    let line = |row: &Row| {
        let entity = work.entity(row);
        let original = json!({ "data": entity, "error": error, "failedBatchID": batch });
        let mut line = Line::default();
        line.add(member(entity, "id"));
        line.add(member(entity, "type"));
        // The beginning of the transaction, in the words of PostgreSQL.
        line.add(Some("now"));
        line.add(Some(&original.to_string()));
        line.end()
    };
    let lines = group.rows.iter().map(line);
    copy::copy(session, &sql, lines, manner.bytes_max).await
}

//! One transaction for several tasks: all of them, or none.

use std::collections::{HashMap, HashSet};

use crate::rows::{Column, Table};

use crate::postgres::copy::{self, Manner};
use crate::postgres::faults::{Fault, Stage};
use crate::postgres::locks;
use crate::postgres::session::Session;
use crate::postgres::tables;
use crate::postgres::work::{Work, member};

/// Inserts tasks. `in_doubt` says that an earlier transaction with them may have been committed.
pub(crate) async fn insert(
    session: &mut Session,
    works: &[&Work<'_>],
    manner: Manner,
    in_doubt: bool,
) -> Result<(), Fault> {
    for (table, columns) in wanted(works) {
        tables::make_sure(session, table, &columns).await?;
    }
    session.begin(Stage::Inserting, keys(works)).await?;
    let done = insert_missing(session, works, manner, in_doubt).await;
    session.end(Stage::Inserting, done).await
}

/// The keys of the tasks' locks.
pub(crate) fn keys(works: &[&Work<'_>]) -> Vec<i64> {
    works
        .iter()
        .map(|work| locks::of_task(&work.insert.uuid))
        .collect()
}

/// The tables that tasks need, in one order for everybody, with all columns. Which task is the first to name a column
/// says what it is, as if they were inserted one after the other.
fn wanted<'a>(works: &[&'a Work<'_>]) -> Vec<(&'a Table, Vec<&'a Column>)> {
    let mut wanted: HashMap<&Table, (Vec<&Column>, HashSet<&str>)> = HashMap::new();
    for group in works.iter().flat_map(|work| &work.groups) {
        let (columns, names) = wanted.entry(&group.table).or_default();
        for column in &group.columns {
            if names.insert(&column.name) {
                columns.push(column);
            }
        }
    }
    let mut wanted: Vec<_> = wanted
        .into_iter()
        .map(|(table, (columns, _))| (table, columns))
        .collect();
    wanted.sort_unstable_by_key(|(table, _)| *table);
    wanted
}

async fn insert_missing(
    session: &mut Session,
    works: &[&Work<'_>],
    manner: Manner,
    in_doubt: bool,
) -> Result<(), Fault> {
    let mut missing = Vec::with_capacity(works.len());
    for work in works {
        let may_be_there = in_doubt || work.may_be_there();
        if !(may_be_there && is_there(session, work).await?) {
            missing.push(*work);
        }
    }
    for portion in copy::portions(&missing) {
        copy::insert(session, &portion, manner).await?;
    }
    Ok(())
}

/// Whether a row of a task is in the database. Then all are: they came in one transaction.
pub(crate) async fn is_there(session: &mut Session, work: &Work<'_>) -> Result<bool, Fault> {
    for group in &work.groups {
        let Some(row) = group.rows.first() else {
            continue;
        };
        // The first two columns are those of the index.
        let sql = format!(
            "select from {} where entity_id = $1::text and time_index = $2::text::timestamptz \
             and instanceid = $3::text limit 1",
            group.table.sql_name()
        );
        let entity = work.entity(row);
        let (id, time) = (member(entity, "id"), member(entity, "time_index"));
        let instance = work.instance_id(row);
        let rows = session
            .query(Stage::Inserting, &sql, &[&id, &time, &instance])
            .await?;
        if !rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

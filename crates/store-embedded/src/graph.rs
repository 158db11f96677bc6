//! Graphs: members and edges page by page, states alone, and names by leaps over the secondary index.

use ganger_store::encoding::JobHeader;
use ganger_store::graph::{
    GraphEdge, GraphEntry, GraphMember, GraphPage, GraphPosition, GraphQuery, MemberState,
};
use ganger_store::rows::RowError;
use ganger_store::rows::row::{from_sql, open, record_at, row_key, show, to_sql};
use ganger_store::rows::secondary_index::{graph_entries, graph_entry, graph_of};
use ganger_types::{Graph, JobKey, JobState, Namespace, Timestamp};
use rusqlite::{Connection, OptionalExtension as _};

use crate::fault::Fault;
use crate::load::read_input;

/// Members after a number: live row, finished row, outcome, whether there is a lease, and the time of the end.
const MEMBERS: &str = "SELECT key, jobs.body, finished.body, finished.outcome, leases.key IS NOT NULL,
        finished.ended_at
    FROM marks LEFT JOIN jobs USING (key) LEFT JOIN finished USING (key) LEFT JOIN leases USING (key)
    WHERE mark = ?1 AND marks.key > ?2 ORDER BY marks.key LIMIT ?3";

/// Reads a page of members and edges.
pub(crate) fn page(connection: &Connection, query: &GraphQuery) -> Result<GraphPage, Fault> {
    let mut page = GraphPage::default();
    if let Some(GraphPosition {
        job,
        slot: Some(slot),
    }) = query.after
        && !edges(connection, (job, slot), query.limit, &mut page)?
    {
        return Ok(page);
    }
    let entry = graph_entry(&query.namespace, &query.graph);
    let after = query.after.map_or(-1, |position| to_sql(position.job.0));
    let mut statement = connection.prepare_cached(MEMBERS)?;
    let mut rows = statement.query((&entry, after, i64::MAX))?;
    while let Some(row) = rows.next()? {
        if page.rows() >= query.limit && !page.members.is_empty() {
            let last = page.members.last();
            page.next = last.map(|member| GraphPosition {
                job: member.key,
                slot: None,
            });
            return Ok(page);
        }
        let member = member(row)?;
        let key = member.key;
        page.members.push(member);
        if !edges(connection, (key, 0), query.limit, &mut page)? {
            return Ok(page);
        }
    }
    Ok(page)
}

fn member(row: &rusqlite::Row<'_>) -> Result<GraphMember, Fault> {
    let key = JobKey(from_sql(row.get(0)?));
    let live = row.get_ref(1)?.as_blob().ok();
    let finished = row.get_ref(2)?.as_blob().ok();
    let record = match (live, finished) {
        (Some(sealed), _) => record_at("jobs", key, sealed)?,
        (None, Some(sealed)) => record_at("finished", key, sealed)?,
        (None, None) => return Err(missing(key)),
    };
    let is_leased: bool = row.get(4)?;
    let state = if live.is_some() && is_leased {
        JobState::Running
    } else {
        record.state
    };
    Ok(GraphMember {
        key,
        id: record.id,
        name: record.name,
        kind: record.kind,
        state,
        created_at: record.created_at,
        ended_at: record.finished.map(|end| end.at),
    })
}

fn missing(key: JobKey) -> Fault {
    Fault::row("marks", key, "the job that it leads to is not there")
}

/// Adds the edges of a job from a slot on. Returns whether these were all; otherwise the page is full.
fn edges(
    connection: &Connection,
    (job, from): (JobKey, u32),
    limit: usize,
    page: &mut GraphPage,
) -> Result<bool, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT slot, body FROM inputs WHERE job = ?1 AND slot >= ?2 ORDER BY slot",
    )?;
    let mut rows = statement.query((to_sql(job.0), from))?;
    let mut looked_at = 0;
    while let Some(row) = rows.next()? {
        let slot = row.get(0)?;
        // Rows of values are no edges, but reading them takes time too.
        if looked_at > 0 && page.rows().max(looked_at) >= limit {
            let slot = Some(slot);
            page.next = Some(GraphPosition { job, slot });
            return Ok(false);
        }
        looked_at += 1;
        page.edges
            .extend(GraphEdge::of(read_input(job, slot, row, 1)?));
    }
    Ok(true)
}

/// Reads the states of members without decoding their records.
pub(crate) fn states(
    connection: &Connection,
    (namespace, graph): (&Namespace, &Graph),
    after: Option<JobKey>,
    limit: usize,
) -> Result<Vec<MemberState>, Fault> {
    let entry = graph_entry(namespace, graph);
    let after = after.map_or(-1, |key| to_sql(key.0));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement = connection.prepare_cached(MEMBERS)?;
    let mut rows = statement.query((&entry, after, limit))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = JobKey(from_sql(row.get(0)?));
        let ended_at: Option<i64> = row.get(5)?;
        found.push(MemberState {
            key,
            state: state(key, row)?,
            ended_at: ended_at.map(|at| Timestamp(from_sql(at))),
        });
    }
    Ok(found)
}

fn state(key: JobKey, row: &rusqlite::Row<'_>) -> Result<JobState, Fault> {
    if let Ok(sealed) = row.get_ref(1)?.as_blob() {
        if row.get(4)? {
            return Ok(JobState::Running);
        }
        return Ok(header("jobs", key, sealed)?.state);
    }
    let outcome: Option<u8> = row.get(3)?;
    let state = outcome.and_then(JobState::from_number);
    state.ok_or_else(|| missing(key))
}

fn created_at(key: JobKey, row: &rusqlite::Row<'_>) -> Result<Timestamp, Fault> {
    let (table, column) = match row.get_ref(1)? {
        rusqlite::types::ValueRef::Null => ("finished", 2),
        _ => ("jobs", 1),
    };
    let sealed = row.get_ref(column)?.as_blob().map_err(|_| missing(key))?;
    Ok(header(table, key, sealed)?.created_at)
}

fn header<'a>(table: &str, key: JobKey, sealed: &'a [u8]) -> Result<JobHeader<'a>, Fault> {
    let at = row_key(key);
    let header = JobHeader::of(open(table, &at, sealed)?);
    Ok(header.map_err(|error| RowError::unreadable(table, show(&at), &error))?)
}

/// Reads names of graphs, the last one first. Each step leaps over all members of a graph.
pub(crate) fn names(
    connection: &Connection,
    namespace: &Namespace,
    before: Option<&Graph>,
    limit: usize,
) -> Result<Vec<GraphEntry>, Fault> {
    let (first, end) = graph_entries(namespace);
    let mut before = before.map_or(end, |graph| graph_entry(namespace, graph));
    let mut previous = connection.prepare_cached(
        "SELECT mark FROM marks WHERE mark < ?1 AND mark >= ?2 ORDER BY mark DESC LIMIT 1",
    )?;
    let mut lowest = connection.prepare_cached(MEMBERS)?;
    let mut found = Vec::new();
    while found.len() < limit {
        let next: Option<Vec<u8>> = previous
            .query_row((&before, &first), |row| row.get(0))
            .optional()?;
        let Some(entry) = next else { break };
        let mut rows = lowest.query((&entry, -1, 1))?;
        if let (Some(graph), Some(row)) = (graph_of(&entry), rows.next()?) {
            let first = JobKey(from_sql(row.get(0)?));
            found.push(GraphEntry {
                graph,
                first,
                submitted_at: created_at(first, row)?,
            });
        }
        before = entry;
    }
    Ok(found)
}

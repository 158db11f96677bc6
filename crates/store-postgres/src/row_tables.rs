//! The statements that write rows: checkpoints behind the log, and commits that are too large for it.
//!
//! A checkpoint is one transaction that locks the fence, writes the merged rows of consecutive commits, and says in
//! `checkpoint` up to which commit the rows go.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join, try_join_all};
use ganger_store::merge::MergedCommit;
use ganger_store::rows::counts::Counts;
use ganger_store::rows::row::{from_sql, open_record, row_key, to_sql};
use ganger_store::rows::secondary_index::{self, IndexEntry};
use ganger_types::{Commit, JobKey, JobRecord, Namespace, Queue};
use tokio_postgres::types::Type;

use crate::backend::{LogRecord, RowTables, RowWrite};
use crate::columns::{Column, Insert};
use crate::fault::Fault;
use crate::fence::{Fence, Ownership};
use crate::header::Header;
use crate::log;
use crate::names::Names;
use crate::plan::{Change, Counted, Places, Plan, Planner, parts_of, places_of, rewritten};
use crate::record::in_rows;
use crate::schema::RANGE_BITS;
use crate::session::{Parameter, Ready, Session, Wire};

/// Time for the statements of a transaction that writes rows, and for the end of one that waits for no standby.
const TRANSACTION_MAX: Duration = Duration::from_secs(120);
/// Statements in one flight.
const FLIGHT: usize = 16;

/// The connection that writes rows, and what is known of the tables.
pub struct PostgresRows {
    names: Arc<Names>,
    ours: Ownership,
    session: Session,
    places: Places,
    new_from: JobKey,
    /// Ranges of job numbers that have tables.
    parts: BTreeSet<u64>,
}

impl PostgresRows {
    /// Takes over a connection of this owner.
    pub(crate) fn new(session: Session, names: &Arc<Names>, ours: Ownership) -> Self {
        Self {
            names: Arc::clone(names),
            ours,
            session,
            places: Places::new(),
            new_from: JobKey(0),
            parts: BTreeSet::new(),
        }
    }

    /// Makes the tables for ranges of job numbers that have none yet, and one range ahead.
    fn add_parts(&mut self, merged: &MergedCommit<'_>) -> Result<(), Fault> {
        let mut parts = parts_of(merged, RANGE_BITS);
        parts.extend(parts.last().map(|part| part + 1));
        let shard = i32::try_from(self.names.number).unwrap_or(i32::MAX);
        for part in parts.difference(&self.parts.clone()) {
            let number = to_sql(*part);
            self.session.run(async |wire| {
                let sql = "SELECT ganger.add_range($1, $2)";
                wire.query_once(sql, &[(&shard, Type::INT4), (&number, Type::INT8)])
                    .await
            })?;
            self.parts.insert(*part);
        }
        Ok(())
    }

    fn transact(
        &mut self,
        commits: &[Arc<Commit>],
        merged: &MergedCommit<'_>,
        kind: RowWrite,
        before: &Header,
    ) -> Result<Header, Fault> {
        let mut header = before.clone();
        if let Some(last) = commits.last() {
            (header.sequence, header.meta) = (last.sequence, last.meta);
        }
        let transaction = Transaction {
            names: &self.names,
            ours: &self.ours,
            kind,
            new_from: self.new_from,
            before: before.sequence,
        };
        let places = &mut self.places;
        let session = &mut self.session;
        let header = session.run_for(TRANSACTION_MAX, async |wire| {
            transaction.run(wire, merged, places, header).await
        })?;
        let commit = async |wire: &Wire| wire.batch("COMMIT").await;
        match kind {
            // Rows that follow the log are committed without waiting for a standby.
            RowWrite::Behind { .. } => session.run_for(TRANSACTION_MAX, commit)?,
            // However long its statements took, this commit waits for a standby like any other.
            RowWrite::AtOnce { .. } => {
                session.run(commit)?;
                session.has_committed();
            }
        }
        Ok(header)
    }
}

impl RowTables for PostgresRows {
    fn is_alive(&mut self) -> bool {
        self.session.is_alive()
    }

    fn read_tables(&mut self) -> Result<Option<(u64, Vec<u8>)>, Fault> {
        let sql = self.names.sql(
            "SELECT sequence, meta, greatest((SELECT max(key) FROM {s}.jobs), (SELECT max(key) FROM {s}.finished)),
                ARRAY(SELECT part FROM {s}.ranges)
             FROM {s}.checkpoint",
        );
        let rows = self
            .session
            .run(async |wire| wire.query_once(&sql, &[]).await)?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let (sequence, sealed): (i64, Vec<u8>) = (row.try_get(0)?, row.try_get(1)?);
        let header = Header::open(&sealed, from_sql(sequence))?;
        let largest: Option<i64> = row.try_get(2)?;
        let after = largest.map_or(0, |key| from_sql(key) + 1);
        self.new_from = JobKey(after).max(header.meta.next_key);
        let parts: Vec<i64> = row.try_get(3)?;
        self.parts = parts.into_iter().map(from_sql).collect();
        self.places.clear();
        Ok(Some((from_sql(sequence), sealed)))
    }

    fn written(&mut self) -> Result<Option<u64>, Fault> {
        let sql = self.names.sql("SELECT sequence FROM {s}.checkpoint");
        let rows = self
            .session
            .run(async |wire| wire.query_once(&sql, &[]).await)?;
        let sequence = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(sequence.map(from_sql))
    }

    fn fence(&mut self) -> Result<Option<Fence>, Fault> {
        let names = &self.names;
        self.session
            .run(async |wire| log::fence(wire, names, "").await)
    }

    fn write(
        &mut self,
        commits: &[Arc<Commit>],
        write: RowWrite,
        before: &Header,
    ) -> Result<Header, Fault> {
        let merged = MergedCommit::new(commits.iter().flat_map(|commit| &commit.changes));
        self.add_parts(&merged)?;
        let header = self.transact(commits, &merged, write, before)?;
        let largest = merged.jobs.last_key_value();
        let after = largest.map_or(0, |(key, _)| key.0 + 1);
        self.new_from = self.new_from.max(JobKey(after));
        Ok(header)
    }

    fn records(&mut self, after: u64) -> Result<Vec<LogRecord>, Fault> {
        log::records(&mut self.session, &self.names, after)
    }

    fn empty(&mut self, slot: usize) -> Result<bool, Fault> {
        log::empty(&mut self.session, &self.names, &self.ours, slot)
    }

    /// Drops the tables of the oldest range of job numbers if no live job is in it or before it, and nothing else is.
    fn drop_oldest_part(&mut self) -> Result<(), Fault> {
        let Some(oldest) = self.parts.first().copied() else {
            return Ok(());
        };
        if oldest + 1 >= self.new_from.0 >> RANGE_BITS {
            return Ok(());
        }
        let (epoch, owner) = (to_sql(self.ours.epoch), &*self.ours.owner);
        let part = to_sql(oldest);
        let after = to_sql((oldest + 1) << RANGE_BITS);
        let shard = i32::try_from(self.names.number).unwrap_or(i32::MAX);
        let sql = self.names.sql(
            "WITH own AS MATERIALIZED (SELECT 1 FROM {s}.fence
                WHERE what = 'rows' AND epoch = $1 AND owner = $5 AND state = 'open'
                  AND NOT EXISTS (SELECT 1 FROM {s}.jobs WHERE key < $2)
                FOR SHARE OF fence)
             SELECT ganger.drop_range($3, $4) FROM own",
        );
        let rows = self.session.run(async |wire| {
            let parameters: [Parameter<'_>; 5] = [
                (&epoch, Type::INT8),
                (&after, Type::INT8),
                (&shard, Type::INT4),
                (&part, Type::INT8),
                (&owner, Type::TEXT),
            ];
            wire.query_once(&sql, &parameters).await
        })?;
        if rows.first().map_or(Ok(false), |row| row.try_get(0))? {
            tracing::info!(shard, part, "the tables of a range of old jobs are dropped");
            self.parts.remove(&oldest);
        }
        Ok(())
    }

    fn take_warning(&mut self) -> Option<String> {
        self.session.take_warning()
    }
}

/// One transaction that writes rows.
struct Transaction<'a> {
    names: &'a Names,
    ours: &'a Ownership,
    kind: RowWrite,
    new_from: JobKey,
    /// Sequence up to which the rows are written before it.
    before: u64,
}

impl Transaction<'_> {
    /// Writes everything, and leaves the transaction open.
    async fn run(
        &self,
        wire: &Wire,
        merged: &MergedCommit<'_>,
        places: &mut Places,
        mut header: Header,
    ) -> Result<Header, Fault> {
        self.begin(wire).await?;
        for (namespace, queue) in places_of(merged) {
            let name = (namespace.clone(), queue.clone());
            if let Entry::Vacant(unknown) = places.entry(name) {
                unknown.insert(self.place(wire, namespace, queue).await?);
            }
        }
        let old = self.old_entries(wire, merged).await?;
        let plan = Planner::new(self.names, self.new_from, places, &old).plan(merged)?;
        self.execute(wire, &plan, &mut header.counts).await?;
        self.end(wire, &header).await?;
        Ok(header)
    }

    /// Begins the transaction and locks the fence until its end.
    async fn begin(&self, wire: &Wire) -> Result<(), Fault> {
        let (begin, rows, wanted) = match self.kind {
            // The log has what it writes, so no standby needs it yet. It is flushed here: readers believe the rows.
            RowWrite::Behind { .. } => (
                "BEGIN; SET LOCAL synchronous_commit = local",
                "what = 'rows'",
                1,
            ),
            RowWrite::AtOnce { .. } => ("BEGIN", "what IN ('log', 'rows')", 2),
        };
        let sql = self.names.sql(&format!(
            "SELECT what FROM {{s}}.fence WHERE {rows} AND epoch = $1 AND owner = $2 AND state = 'open' ORDER BY what FOR SHARE"
        ));
        let (epoch, owner) = (to_sql(self.ours.epoch), &*self.ours.owner);
        let lock = wire.ready(&sql, &[Type::INT8, Type::TEXT]).await?;
        let parameters: [Parameter<'_>; 2] = [(&epoch, Type::INT8), (&owner, Type::TEXT)];
        let (started, locked) = join(wire.batch(begin), wire.query(&lock, &parameters)).await;
        started?;
        if locked?.len() == wanted {
            return Ok(());
        }
        Err(match self.refusal(wire).await? {
            Fault::Fenced { theirs } => Fault::Fenced { theirs },
            _ => Fault::row("fence", "rows", "it has another epoch than the log's"),
        })
    }

    /// Returns why this owner may not write.
    async fn refusal(&self, wire: &Wire) -> Result<Fault, Fault> {
        let fence = log::fence(wire, self.names, "").await?;
        Ok(log::refusal(fence.as_ref(), self.ours))
    }

    /// Returns the number of a (namespace, queue), which it gets now if it has none.
    async fn place(&self, wire: &Wire, namespace: &Namespace, queue: &Queue) -> Result<i64, Fault> {
        if let Some(number) = find_place(wire, self.names, namespace, queue).await? {
            return Ok(number);
        }
        let sql = self
            .names
            .sql("INSERT INTO {s}.places (namespace, queue) VALUES ($1, $2) RETURNING id");
        let (namespace, queue) = (namespace.as_bytes(), queue.as_bytes());
        let rows = wire
            .query_once(&sql, &[(&namespace, Type::BYTEA), (&queue, Type::BYTEA)])
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Fault::row("places", "?", "it was not inserted"))?;
        Ok(row.try_get(0)?)
    }

    /// Reads the index entries of stored rows that are replaced or removed.
    async fn old_entries(
        &self,
        wire: &Wire,
        merged: &MergedCommit<'_>,
    ) -> Result<HashMap<JobKey, Vec<IndexEntry>>, Fault> {
        let mut entries = HashMap::new();
        let keys = rewritten(merged, self.new_from);
        let (Some(first), Some(last)) = (keys.first(), keys.last()) else {
            return Ok(entries);
        };
        let sql = self.names.sql(
            "SELECT key, 'jobs', body FROM {s}.jobs WHERE key = ANY($1) AND marked
             UNION ALL SELECT key, 'finished', body FROM {s}.finished
             WHERE key = ANY($1) AND key BETWEEN $2 AND $3 AND marked",
        );
        let parameters: [Parameter<'_>; 3] = [
            (&keys, Type::INT8_ARRAY),
            (first, Type::INT8),
            (last, Type::INT8),
        ];
        for row in wire.query_once(&sql, &parameters).await? {
            let (number, table, body): (i64, &str, &[u8]) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let key = JobKey(from_sql(number));
            let found = match open_record::<JobRecord>(table, &row_key(key), body) {
                Ok(record) => secondary_index::of(&record),
                Err(error) => {
                    tracing::error!(%error, "a damaged row is replaced or removed");
                    self.all_entries(wire, number).await?
                }
            };
            entries.entry(key).or_insert_with(Vec::new).extend(found);
        }
        Ok(entries)
    }

    /// Reads all index entries of a job whose row does not say them.
    async fn all_entries(&self, wire: &Wire, key: i64) -> Result<Vec<IndexEntry>, Fault> {
        let sql = self.names.sql("SELECT mark FROM {s}.marks WHERE key = $1");
        let rows = wire.query_once(&sql, &[(&key, Type::INT8)]).await?;
        let entries = rows.iter().map(|row| row.try_get(0));
        Ok(entries.collect::<Result<_, _>>()?)
    }

    async fn execute(&self, wire: &Wire, plan: &Plan, counts: &mut Counts) -> Result<(), Fault> {
        for flight in plan.changes.chunks(FLIGHT) {
            let mut sent = Vec::with_capacity(flight.len());
            for change in flight {
                sent.push(change_statement(wire, change).await?);
            }
            let answers = try_join_all(
                sent.iter()
                    .map(|(ready, parameters)| wire.execute(ready, parameters)),
            )
            .await?;
            for (change, count) in flight.iter().zip(answers) {
                if let Some(counted) = count_of(counts, change.counted) {
                    *counted = counted.saturating_sub(count);
                }
            }
        }
        let (copied, inserted): (Vec<_>, Vec<_>) = plan
            .inserts
            .iter()
            .partition(|(insert, _)| insert.is_copied());
        for flight in inserted.chunks(FLIGHT) {
            let mut sent = Vec::with_capacity(flight.len());
            for (insert, _) in flight {
                sent.push(insert_statement(wire, insert).await?);
            }
            let answers = try_join_all(
                sent.iter()
                    .map(|(ready, parameters)| wire.query(ready, parameters)),
            )
            .await?;
            for ((insert, counted), rows) in flight.iter().zip(answers) {
                let Some(count) = count_of(counts, *counted) else {
                    continue;
                };
                if insert.conflict.is_empty() {
                    *count += as_count(insert.rows());
                    continue;
                }
                for row in rows {
                    *count += u64::from(row.try_get::<_, bool>(0)?);
                }
            }
        }
        for (insert, counted) in copied {
            let rows = wire.copy_in(&insert.copy_sql(), insert.copied()).await?;
            if let Some(count) = count_of(counts, *counted) {
                *count += rows;
            }
        }
        Ok(())
    }

    /// Returns why the rows of commits up to this one may not be written.
    async fn not_written(&self, wire: &Wire, last: u64) -> Result<Fault, Fault> {
        Ok(if log::has_record(wire, self.names, last).await? {
            // A transaction that was believed to have failed has written these commits.
            Fault::Lost("the rows were written by an earlier attempt".to_owned())
        } else {
            Fault::lost_record(last)
        })
    }

    /// Says up to which commit the rows go. A database that was restored meanwhile, under a connection or behind a pooler,
    /// lacks the commits in its log, and their rows are not written.
    async fn end(&self, wire: &Wire, header: &Header) -> Result<(), Fault> {
        let slot = match self.kind {
            RowWrite::Behind { slot } => slot,
            RowWrite::AtOnce { target, place } => {
                let sql = log::append_sql(self.names, target);
                if log::append(wire, &sql, &self.ours.owner, place, &in_rows(place)).await? != 1 {
                    return Err(self.refusal(wire).await?);
                }
                target.slot
            }
        };
        let sql = self.names.sql(&format!(
            "UPDATE {{s}}.checkpoint SET sequence = $1, slot = $2, meta = $3 WHERE sequence = $4 AND {}",
            log::has_record_sql(self.names)
        ));
        let ready = wire
            .ready(&sql, &[Type::INT8, Type::INT4, Type::BYTEA, Type::INT8])
            .await?;
        let (sequence, before) = (to_sql(header.sequence), to_sql(self.before));
        let slot = i32::try_from(slot).unwrap_or(i32::MAX);
        let sealed = header.seal();
        let parameters: [Parameter<'_>; 4] = [
            (&sequence, Type::INT8),
            (&slot, Type::INT4),
            (&sealed, Type::BYTEA),
            (&before, Type::INT8),
        ];
        if wire.execute(&ready, &parameters).await? != 1 {
            return Err(self.not_written(wire, header.sequence).await?);
        }
        Ok(())
    }
}

/// Returns the number of a (namespace, queue); `None` if no job of it has ended.
async fn find_place(
    wire: &Wire,
    names: &Names,
    namespace: &Namespace,
    queue: &Queue,
) -> Result<Option<i64>, Fault> {
    let sql = names.sql("SELECT id FROM {s}.places WHERE namespace = $1 AND queue = $2");
    let (namespace, queue) = (namespace.as_bytes(), queue.as_bytes());
    let rows = wire
        .query_once(&sql, &[(&namespace, Type::BYTEA), (&queue, Type::BYTEA)])
        .await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

type Sent<'a> = (Ready, Vec<Parameter<'a>>);

async fn change_statement<'a>(wire: &Wire, change: &'a Change) -> Result<Sent<'a>, Fault> {
    let columns = change.columns.iter().map(Column::parameter);
    let mut parameters: Vec<Parameter<'a>> = columns.collect();
    if let Some((first, last)) = &change.bounds {
        parameters.push((first, Type::INT8));
        parameters.push((last, Type::INT8));
    }
    let types: Vec<_> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
    Ok((wire.ready(&change.sql, &types).await?, parameters))
}

async fn insert_statement<'a>(wire: &Wire, insert: &'a Insert) -> Result<Sent<'a>, Fault> {
    let columns = insert.columns.iter().map(Column::parameter);
    let parameters: Vec<Parameter<'a>> = columns.collect();
    let types: Vec<_> = parameters.iter().map(|(_, kind)| kind.clone()).collect();
    Ok((wire.ready(&insert.sql(), &types).await?, parameters))
}

fn count_of(counts: &mut Counts, counted: Counted) -> Option<&mut u64> {
    match counted {
        Counted::Nothing => None,
        Counted::Jobs => Some(&mut counts.jobs),
        Counted::Leases => Some(&mut counts.leases),
        Counted::Finished => Some(&mut counts.finished),
    }
}

fn as_count(number: usize) -> u64 {
    u64::try_from(number).expect("a count fits 64 bits")
}

//! The statements on the control tables of the nodes. Each is a transaction of its own, so that none stays open if its
//! node stands still.

use std::time::Duration;

use ganger_types::ShardId;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::NodeName;
use super::judge::{Judgement, NodeRow, PlaceRow, Table};
use crate::fault::Fault;
use crate::formats::Formats;
use crate::session::{Parameter, Wire};

/// Makes the tables of the nodes. `{node}` stands for the role of the nodes. Earlier programs made the first table with
/// fewer columns, and one that nothing used.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS ganger.node (id text PRIMARY KEY, incarnation text NOT NULL, address text NOT NULL,
    version text NOT NULL, beat int8 NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    since timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 50);
ALTER TABLE ganger.node ADD COLUMN IF NOT EXISTS lease_ms int8 NOT NULL DEFAULT 6000,
    ADD COLUMN IF NOT EXISTS is_draining boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS format_min int NOT NULL DEFAULT 1, ADD COLUMN IF NOT EXISTS format_max int NOT NULL DEFAULT 1;
DROP TABLE IF EXISTS ganger.active;
CREATE TABLE IF NOT EXISTS ganger.plan (one int PRIMARY KEY CHECK (one = 1), version int8 NOT NULL)
    WITH (fillfactor = 10);
INSERT INTO ganger.plan VALUES (1, 0) ON CONFLICT DO NOTHING;
CREATE TABLE IF NOT EXISTS ganger.place (shard int PRIMARY KEY, node text NOT NULL DEFAULT '',
    holder text NOT NULL DEFAULT '', incarnation text NOT NULL DEFAULT '', moved_at timestamptz)
    WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON ganger.node, ganger.place TO {node};
GRANT SELECT, UPDATE ON ganger.plan TO {node};
";

/// Raises the beat of the node's own row; false if another process has taken its name. A beat need not survive the loss
/// of the database, and does not wait for its standby.
pub(super) async fn raise(wire: &Wire, name: &NodeName, has_joined: bool) -> Result<bool, Fault> {
    if has_joined {
        let sql =
            "WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'local', true))
             UPDATE ganger.node SET beat = beat + 1, at = clock_timestamp() FROM quick
             WHERE id = $1 AND incarnation = $2";
        let own: [Parameter<'_>; 2] = [(&name.node, Type::TEXT), (&name.incarnation, Type::TEXT)];
        if wire.execute_once(sql, &own).await? == 1 {
            return Ok(true);
        }
        // Without a row, others have forgotten this node, and it comes again.
        let sql = "SELECT 1 FROM ganger.node WHERE id = $1";
        if !wire.query_once(sql, &own[..1]).await?.is_empty() {
            return Ok(false);
        }
    }
    let lease_ms = i64::try_from(name.lease.as_millis()).unwrap_or(i64::MAX);
    let Formats { min, max } = name.formats;
    let [min, max] = [min, max].map(|format| i32::try_from(format).unwrap_or(i32::MAX));
    let sql = "INSERT INTO ganger.node (id, incarnation, address, version, beat, lease_ms, format_min, format_max)
         VALUES ($1, $2, $3, $4, 0, $5, $6, $7)
         ON CONFLICT (id) DO UPDATE SET incarnation = $2, address = $3, version = $4, beat = 0, lease_ms = $5,
            format_min = $6, format_max = $7, at = clock_timestamp(), since = clock_timestamp(), is_draining = false";
    wire.execute_once(
        sql,
        &[
            (&name.node, Type::TEXT),
            (&name.incarnation, Type::TEXT),
            (&name.address, Type::TEXT),
            (&name.version, Type::TEXT),
            (&lease_ms, Type::INT8),
            (&min, Type::INT4),
            (&max, Type::INT4),
        ],
    )
    .await?;
    // Nodes that left no trace but their names.
    let sql = "DELETE FROM ganger.node WHERE id <> $1 AND at < clock_timestamp() - interval '1 day'
         AND NOT EXISTS (SELECT 1 FROM ganger.place WHERE holder = id)";
    wire.execute_once(sql, &[(&name.node, Type::TEXT)]).await?;
    Ok(true)
}

/// Reads the control tables. New shards get their rows.
pub(super) async fn look(wire: &Wire) -> Result<Table, Fault> {
    let sql = "SELECT id, incarnation, address, version, beat, lease_ms, is_draining,
            extract(epoch FROM clock_timestamp() - since)::float8, extract(epoch FROM clock_timestamp() - at)::float8,
            format_min, format_max
         FROM ganger.node ORDER BY id";
    let nodes = wire.query_once(sql, &[]).await?;
    let nodes: Result<_, _> = nodes.iter().map(node).collect();
    let sql = "SELECT s.number, s.id, p.node, p.holder, p.incarnation,
            extract(epoch FROM clock_timestamp() - p.moved_at)::float8, plan.version, p.shard IS NULL,
            (SELECT format FROM ganger.cluster)
         FROM ganger.shard s CROSS JOIN ganger.plan LEFT JOIN ganger.place p ON p.shard = s.number
         ORDER BY s.number";
    let mut rows = wire.query_once(sql, &[]).await?;
    let missing = |row: &Row| row.try_get::<_, bool>(7);
    if rows.iter().map(missing).any(|it| matches!(it, Ok(true))) {
        let insert = "INSERT INTO ganger.place (shard) SELECT number FROM ganger.shard ON CONFLICT DO NOTHING";
        wire.execute_once(insert, &[]).await?;
        rows = wire.query_once(sql, &[]).await?;
    }
    let version = rows.first().map_or(Ok(0), |row| row.try_get(6))?;
    let format: Option<i32> = rows.first().map_or(Ok(None), |row| row.try_get(8))?;
    let places: Result<_, Fault> = rows.iter().map(place).collect();
    Ok(Table {
        version,
        format: format.and_then(|it| u32::try_from(it).ok()).unwrap_or(0),
        nodes: nodes?,
        places: places?,
    })
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

fn format(row: &Row, column: usize) -> Result<u32, Fault> {
    let format: i32 = row.try_get(column)?;
    Ok(u32::try_from(format).unwrap_or(0))
}

fn node(row: &Row) -> Result<NodeRow, Fault> {
    let lease_ms: i64 = row.try_get(5)?;
    Ok(NodeRow {
        name: row.try_get(0)?,
        incarnation: row.try_get(1)?,
        address: row.try_get(2)?,
        version: row.try_get(3)?,
        beat: row.try_get(4)?,
        lease: Duration::from_millis(u64::try_from(lease_ms).unwrap_or(0)),
        is_draining: row.try_get(6)?,
        age: seconds(row.try_get(7)?),
        silent_for: seconds(row.try_get(8)?),
        formats: Formats {
            min: format(row, 9)?,
            max: format(row, 10)?,
        },
    })
}

fn place(row: &Row) -> Result<PlaceRow, Fault> {
    let number: i32 = row.try_get(0)?;
    let id: String = row.try_get(1)?;
    let text = |column: usize| {
        let text: Option<String> = row.try_get(column)?;
        Ok::<_, Fault>(text.unwrap_or_default())
    };
    let moved: Option<f64> = row.try_get(5)?;
    Ok(PlaceRow {
        number: u32::try_from(number).unwrap_or(0),
        id: ShardId::new(&id).ok_or_else(|| Fault::row("shard", number, "its id is no shard"))?,
        node: text(2)?,
        holder: text(3)?,
        incarnation: text(4)?,
        is_new: false,
        moved: moved.map(seconds),
    })
}

/// Stores new places; false if the places have changed since they were read, or a node that counts as dead has beaten.
///
/// The rows of the dead are locked: a beat on its way comes before, and then nothing is stored, or after, and then its
/// node sees that it has lost its shards.
pub(super) async fn store(wire: &Wire, version: i64, judgement: &Judgement) -> Result<bool, Fault> {
    let (mut ids, mut incarnations, mut beats) = (Vec::new(), Vec::new(), Vec::new());
    for (id, incarnation, beat) in &judgement.dead {
        ids.push(id.as_str());
        incarnations.push(incarnation.as_str());
        beats.push(*beat);
    }
    let dead = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    let changes = &judgement.changes;
    let shards = changes
        .iter()
        .map(|it| i32::try_from(it.shard).unwrap_or(i32::MAX));
    let shards: Vec<i32> = shards.collect();
    let nodes: Vec<&str> = changes.iter().map(|it| it.node.as_str()).collect();
    let freed = changes
        .iter()
        .map(|it| it.freed.as_deref().unwrap_or_default());
    let freed: Vec<&str> = freed.collect();
    let planned: Vec<bool> = changes.iter().map(|it| it.is_planned).collect();
    let sql = "WITH dead AS MATERIALIZED (SELECT n.id FROM ganger.node n
            JOIN unnest($2::text[], $3::text[], $4::int8[]) AS d(id, incarnation, beat)
            ON n.id = d.id AND n.incarnation = d.incarnation AND n.beat = d.beat FOR UPDATE OF n),
         turn AS (UPDATE ganger.plan SET version = version + 1
            WHERE version = $1 AND (SELECT count(*) FROM dead) = $5 RETURNING version)
         UPDATE ganger.place p SET node = c.node,
            holder = CASE WHEN p.incarnation = c.freed THEN '' ELSE p.holder END,
            incarnation = CASE WHEN p.incarnation = c.freed THEN '' ELSE p.incarnation END,
            moved_at = CASE WHEN c.planned THEN clock_timestamp() ELSE p.moved_at END
         FROM turn, unnest($6::int4[], $7::text[], $8::text[], $9::bool[]) AS c(shard, node, freed, planned)
         WHERE p.shard = c.shard";
    let stored = wire
        .execute_once(
            sql,
            &[
                (&version, Type::INT8),
                (&ids, Type::TEXT_ARRAY),
                (&incarnations, Type::TEXT_ARRAY),
                (&beats, Type::INT8_ARRAY),
                (&dead, Type::INT8),
                (&shards, Type::INT4_ARRAY),
                (&nodes, Type::TEXT_ARRAY),
                (&freed, Type::TEXT_ARRAY),
                (&planned, Type::BOOL_ARRAY),
            ],
        )
        .await?;
    Ok(stored > 0)
}

impl PlaceRow {
    /// Holds a shard that nobody holds, if it is still placed where it was.
    pub(super) async fn hold_as(&mut self, wire: &Wire, name: &NodeName) -> Result<(), Fault> {
        let sql = "UPDATE ganger.place SET holder = $2, incarnation = $3
             WHERE shard = $1 AND node = $4 AND holder = ''";
        let shard = i32::try_from(self.number).unwrap_or(i32::MAX);
        let held = wire
            .execute_once(
                sql,
                &[
                    (&shard, Type::INT4),
                    (&name.node, Type::TEXT),
                    (&name.incarnation, Type::TEXT),
                    (&self.node, Type::TEXT),
                ],
            )
            .await?;
        if held == 1 {
            self.holder.clone_from(&name.node);
            self.incarnation.clone_from(&name.incarnation);
            self.is_new = true;
        }
        Ok(())
    }
}

pub(super) async fn release(wire: &Wire, incarnation: &str, shard: u32) -> Result<(), Fault> {
    let sql = "UPDATE ganger.place SET holder = '', incarnation = '' WHERE shard = $1 AND incarnation = $2";
    let shard = i32::try_from(shard).unwrap_or(i32::MAX);
    let parameters: [Parameter<'_>; 2] = [(&shard, Type::INT4), (&incarnation, Type::TEXT)];
    wire.execute_once(sql, &parameters).await?;
    Ok(())
}

/// Releases a shard that this process cannot serve, and places it on another node.
pub(super) async fn give_up(
    wire: &Wire,
    name: &NodeName,
    shard: u32,
    next: &str,
) -> Result<(), Fault> {
    let sql = "WITH turn AS (UPDATE ganger.plan SET version = version + 1
            WHERE EXISTS (SELECT 1 FROM ganger.place WHERE shard = $1 AND incarnation = $2) RETURNING version)
         UPDATE ganger.place SET holder = '', incarnation = '', node = CASE WHEN node = $3 THEN $4 ELSE node END
         FROM turn WHERE shard = $1 AND incarnation = $2";
    let shard = i32::try_from(shard).unwrap_or(i32::MAX);
    let parameters: [Parameter<'_>; 4] = [
        (&shard, Type::INT4),
        (&name.incarnation, Type::TEXT),
        (&name.node, Type::TEXT),
        (&next, Type::TEXT),
    ];
    wire.execute_once(sql, &parameters).await?;
    Ok(())
}

pub(super) async fn leave(wire: &Wire, incarnation: &str) -> Result<(), Fault> {
    let free = "UPDATE ganger.place SET holder = '', incarnation = '' WHERE incarnation = $1";
    let remove = "DELETE FROM ganger.node WHERE incarnation = $1";
    for sql in [free, remove] {
        wire.execute_once(sql, &[(&incarnation, Type::TEXT)])
            .await?;
    }
    Ok(())
}

/// Places a shard on a node that takes shards. Returns whether there are such a shard and node.
pub(super) async fn move_to(wire: &Wire, shard: &str, node: &str) -> Result<bool, Fault> {
    let sql = "WITH turn AS (UPDATE ganger.plan SET version = version + 1
            WHERE EXISTS (SELECT 1 FROM ganger.node WHERE id = $2 AND NOT is_draining) RETURNING version)
         UPDATE ganger.place p SET node = $2, moved_at = clock_timestamp()
         FROM turn, ganger.shard s WHERE p.shard = s.number AND s.id = $1";
    let parameters: [Parameter<'_>; 2] = [(&shard, Type::TEXT), (&node, Type::TEXT)];
    Ok(wire.execute_once(sql, &parameters).await? == 1)
}

/// Gives the cluster this format, if it has the one before. Returns whether it had.
pub(super) async fn raise_format(wire: &Wire, format: u32) -> Result<bool, Fault> {
    let sql = "UPDATE ganger.cluster SET format = $1 WHERE format = $1 - 1";
    let format = i32::try_from(format).unwrap_or(i32::MAX);
    Ok(wire.execute_once(sql, &[(&format, Type::INT4)]).await? == 1)
}

pub(super) async fn set_draining(
    wire: &Wire,
    node: &str,
    is_draining: bool,
) -> Result<bool, Fault> {
    let sql = "UPDATE ganger.node SET is_draining = $2 WHERE id = $1";
    let parameters: [Parameter<'_>; 2] = [(&node, Type::TEXT), (&is_draining, Type::BOOL)];
    Ok(wire.execute_once(sql, &parameters).await? == 1)
}

//! The nodes of a cluster, and which of them serves its shards.
//!
//! Every node raises a number in its own row. The node that serves raises another one in the row `active`. Others judge
//! by their own elapsed time since they saw that number change last, so no two clocks are compared. All this decides how
//! soon somebody else tries; who owns a shard is decided by the fence of the shard.

use std::sync::Arc;
use std::time::Duration;

use ganger_store::StoreError;
use tokio_postgres::types::Type;

use crate::database::{Database, QUERY_MAX};
use crate::fault::Fault;
use crate::session::{Session, Wire};

/// Makes the tables of the nodes. `{node}` stands for the role of the nodes.
pub(crate) const TABLES: &str = "
CREATE TABLE IF NOT EXISTS ganger.node (id text PRIMARY KEY, incarnation text NOT NULL, address text NOT NULL,
    version text NOT NULL, beat int8 NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    since timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 50);
CREATE TABLE IF NOT EXISTS ganger.active (one int PRIMARY KEY CHECK (one = 1), node text NOT NULL,
    incarnation text NOT NULL, address text NOT NULL, beat int8 NOT NULL) WITH (fillfactor = 10);
INSERT INTO ganger.active VALUES (1, '', '', '', 0) ON CONFLICT DO NOTHING;
GRANT SELECT, INSERT, UPDATE, DELETE ON ganger.node TO {node};
GRANT SELECT, UPDATE ON ganger.active TO {node};
";

/// Time without a beat after which a node counts as dead.
pub const OWNERSHIP_LEASE: Duration = Duration::from_secs(6);
/// Largest time between two looks that counts as watching: in a longer one this node itself, or the database, was away.
const WATCH_GAP_MAX: Duration = Duration::from_secs(2);

/// A process of a cluster.
#[derive(Clone, Debug)]
pub struct NodeName {
    /// Name of the node; no two processes at a time have the same.
    pub node: String,
    /// Random text that no other process has.
    pub incarnation: String,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Version of the program.
    pub version: String,
}

/// Which node serves the shards of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This process serves the shards.
    Ours,
    /// Another process, or nobody for the moment.
    Theirs {
        /// Name of the node; empty if there is none.
        node: String,
        /// Address of the node.
        address: String,
    },
    /// This process served, and another one does now.
    Lost {
        /// Name of the node.
        node: String,
    },
}

/// What the row `active` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Active {
    node: String,
    incarnation: String,
    address: String,
    beat: i64,
}

/// Watches the beats of the active node.
#[derive(Debug, Default)]
struct Watch {
    seen: Option<Active>,
    /// Time at which this was seen first.
    since: Duration,
    /// Time of the last look.
    looked_at: Duration,
}

impl Watch {
    /// Notes at `now` what is there; returns whether the active node counts as dead. Only time in which this node was
    /// looking counts.
    fn look(&mut self, active: &Active, now: Duration) -> bool {
        let was_away = now.saturating_sub(self.looked_at) > WATCH_GAP_MAX;
        self.looked_at = now;
        if was_away || self.seen.as_ref() != Some(active) {
            self.since = now;
            self.seen = Some(active.clone());
        }
        now.saturating_sub(self.since) >= OWNERSHIP_LEASE
    }
}

/// A node of a cluster: its beats, and its turn to serve.
pub struct Membership {
    database: Arc<Database>,
    session: Option<Session>,
    name: NodeName,
    has_joined: bool,
    is_active: bool,
    watch: Watch,
}

impl Membership {
    /// Prepares a node. Nothing is written before the first [`Membership::beat`].
    pub fn new(database: &Arc<Database>, name: NodeName) -> Self {
        Self {
            database: Arc::clone(database),
            session: None,
            name,
            has_joined: false,
            is_active: false,
            watch: Watch::default(),
        }
    }

    /// Raises the beats of this node at `now`, by a clock of this machine that counts suspended time too, and returns
    /// whose turn it is. A node that serves is replaced only if it is gone, or has not beaten for
    /// [`OWNERSHIP_LEASE`], or had the same name.
    ///
    /// # Errors
    /// If the database cannot be reached, or another process uses the name of this node.
    pub fn beat(&mut self, now: Duration) -> Result<Turn, StoreError> {
        let label = self.database.settings().label();
        let done = self.try_beat(now);
        if done.as_ref().is_err_and(Fault::is_lost) {
            self.session = None;
        }
        match done {
            Ok(Some(turn)) => Ok(turn),
            Ok(None) => Err(StoreError::Io {
                path: label,
                doing: "used",
                reason: format!(
                    "another process has the node name {:?}: give each its own with --node",
                    self.name.node
                ),
            }),
            Err(fault) => Err(fault.at(&label, "used")),
        }
    }

    fn try_beat(&mut self, now: Duration) -> Result<Option<Turn>, Fault> {
        let Self {
            database,
            session,
            name,
            has_joined,
            is_active,
            watch,
        } = self;
        if !session.as_mut().is_some_and(Session::is_alive) {
            *session = Some(Session::connect(database.settings(), "ganger/node")?);
        }
        let session = session.as_mut().expect("it was just made");
        session.run(async |wire| {
            if !join(wire, name, *has_joined).await? {
                return Ok(None);
            }
            *has_joined = true;
            if *is_active {
                if raise(wire, name).await? {
                    return Ok(Some(Turn::Ours));
                }
                let node = read(wire).await?.node;
                return Ok(Some(Turn::Lost { node }));
            }
            let active = read(wire).await?;
            let is_dead = watch.look(&active, now);
            let may_take = is_dead || active.incarnation.is_empty() || active.node == name.node;
            if may_take && take(wire, name, &active).await? {
                *is_active = true;
                return Ok(Some(Turn::Ours));
            }
            let Active { node, address, .. } = active;
            Ok(Some(Turn::Theirs { node, address }))
        })
    }

    /// Gives the turn back, once this process serves nothing more, and leaves the cluster.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn leave(&mut self) -> Result<(), StoreError> {
        let Self { session, name, .. } = self;
        let Some(session) = session else {
            return Ok(());
        };
        let left = session.run(async |wire| {
            let give = "UPDATE ganger.active SET node = '', incarnation = '', address = '' WHERE incarnation = $1";
            let remove = "DELETE FROM ganger.node WHERE incarnation = $1";
            for sql in [give, remove] {
                wire.execute_once(sql, &[(&name.incarnation, Type::TEXT)])
                    .await?;
            }
            Ok(())
        });
        let label = self.database.settings().label();
        left.map_err(|fault| fault.at(&label, "used"))
    }
}

/// Raises the beat of the node's own row; false if another process has taken its name.
async fn join(wire: &Wire, name: &NodeName, has_joined: bool) -> Result<bool, Fault> {
    let sql = if has_joined {
        "UPDATE ganger.node SET beat = beat + 1, at = clock_timestamp()
         WHERE id = $1 AND incarnation = $2 AND $3::text IS NOT NULL AND $4::text IS NOT NULL"
    } else {
        "INSERT INTO ganger.node (id, incarnation, address, version, beat) VALUES ($1, $2, $3, $4, 0)
         ON CONFLICT (id) DO UPDATE SET incarnation = $2, address = $3, version = $4, beat = 0,
            at = clock_timestamp(), since = clock_timestamp()"
    };
    let changed = wire
        .execute_once(
            sql,
            &[
                (&name.node, Type::TEXT),
                (&name.incarnation, Type::TEXT),
                (&name.address, Type::TEXT),
                (&name.version, Type::TEXT),
            ],
        )
        .await?;
    Ok(changed == 1)
}

async fn raise(wire: &Wire, name: &NodeName) -> Result<bool, Fault> {
    let sql = "UPDATE ganger.active SET beat = beat + 1 WHERE incarnation = $1";
    let raised = wire
        .execute_once(sql, &[(&name.incarnation, Type::TEXT)])
        .await?;
    Ok(raised == 1)
}

async fn read(wire: &Wire) -> Result<Active, Fault> {
    let sql = "SELECT node, incarnation, address, beat FROM ganger.active";
    let rows = wire.query_once(sql, &[]).await?;
    let row = rows
        .first()
        .ok_or_else(|| Fault::row("active", "1", "it is missing"))?;
    Ok(Active {
        node: row.try_get(0)?,
        incarnation: row.try_get(1)?,
        address: row.try_get(2)?,
        beat: row.try_get(3)?,
    })
}

/// Takes the turn from what was seen; false if that has changed meanwhile, so that of several nodes one gets it.
async fn take(wire: &Wire, name: &NodeName, seen: &Active) -> Result<bool, Fault> {
    let sql = "UPDATE ganger.active SET node = $1, incarnation = $2, address = $3, beat = 0
         WHERE incarnation = $4 AND beat = $5";
    let taken = wire
        .execute_once(
            sql,
            &[
                (&name.node, Type::TEXT),
                (&name.incarnation, Type::TEXT),
                (&name.address, Type::TEXT),
                (&seen.incarnation, Type::TEXT),
                (&seen.beat, Type::INT8),
            ],
        )
        .await?;
    Ok(taken == 1)
}

/// A node in the list of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// Name of the node.
    pub node: String,
    /// Address at which other nodes reach it.
    pub address: String,
    /// Version of its program.
    pub version: String,
    /// Whether it serves the shards.
    pub is_active: bool,
    /// Time since its last beat, by the clock of the database.
    pub silent_for: Duration,
}

/// Lists the nodes of a cluster, by name.
///
/// # Errors
/// If the database cannot be reached, or is not that of a cluster.
pub fn nodes(database: &Arc<Database>) -> Result<Vec<NodeEntry>, StoreError> {
    let label = database.settings().label();
    let sql = "SELECT n.id, n.address, n.version, n.incarnation = a.incarnation,
            extract(epoch FROM clock_timestamp() - n.at)::float8
         FROM ganger.node n, ganger.active a ORDER BY n.id";
    let rows = database.query(sql, &[], QUERY_MAX);
    let rows = rows.map_err(|fault| crate::control::explain(fault, &label))?;
    let entry = |row: &tokio_postgres::Row| -> Result<NodeEntry, tokio_postgres::Error> {
        let silent: f64 = row.try_get(4)?;
        Ok(NodeEntry {
            node: row.try_get(0)?,
            address: row.try_get(1)?,
            version: row.try_get(2)?,
            is_active: row.try_get(3)?,
            silent_for: Duration::try_from_secs_f64(silent).unwrap_or_default(),
        })
    };
    let entries: Result<Vec<_>, _> = rows.iter().map(entry).collect();
    entries.map_err(|error| Fault::from(error).at(&label, "read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn active(beat: i64) -> Active {
        Active {
            node: "a".to_owned(),
            incarnation: "x".to_owned(),
            address: "h:1".to_owned(),
            beat,
        }
    }

    #[test]
    fn a_node_is_dead_after_a_lease_without_a_beat() {
        let mut watch = Watch::default();
        for second in 0..6 {
            assert!(!watch.look(&active(0), SECOND * (100 + second)));
        }
        assert!(watch.look(&active(0), SECOND * 106));
        assert!(!watch.look(&active(1), SECOND * 107), "it has beaten");
    }

    #[test]
    fn time_in_which_nobody_looked_makes_nobody_dead() {
        let mut watch = Watch::default();
        for second in [0, 1, 2, 60, 61, 62, 63, 64, 65] {
            assert!(!watch.look(&active(0), SECOND * (100 + second)), "{second}");
        }
        assert!(watch.look(&active(0), SECOND * 166));
    }
}

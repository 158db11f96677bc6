//! The nodes of a cluster, and which of them serves which shard.
//!
//! Every node raises a number in its own row, its beat. Others judge by their own elapsed time since they saw that
//! number change, so no two clocks are compared, and only time in which their own beats succeeded counts. A shard has a
//! row with the node that is to serve it and the process that holds it. All this decides how soon somebody else tries;
//! who owns a shard is decided by the fence of the shard.

mod judge;
#[cfg(test)]
mod model;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use ganger_store::StoreError;
use ganger_types::ShardId;
use tokio_postgres::error::SqlState;

use crate::database::{Database, QUERY_MAX};
use crate::fault::Fault;
use crate::formats::{Formats, KNOWN_FOR, NextFormat};
use crate::session::{Session, Wire};
use judge::Watches;
pub(crate) use statements::TABLES;

/// Default time without a beat after which a node counts as dead.
pub const OWNERSHIP_LEASE: Duration = Duration::from_secs(6);
/// The shortest ownership lease that a node may have.
pub const OWNERSHIP_LEASE_MIN: Duration = Duration::from_secs(2);
/// The longest ownership lease that a node may have.
pub const OWNERSHIP_LEASE_MAX: Duration = Duration::from_secs(60);
/// Time between two beats.
pub const BEAT_EVERY: Duration = Duration::from_millis(500);
/// Time without a beat after which a node gets no shards of live nodes, and no requests for shards that it does not hold
/// yet: three beats. The shortest lease is longer.
pub const SILENT_AFTER: Duration = Duration::from_millis(1_500);
/// Part of the lease that is not relied on: two machines' clocks differ in speed by less.
const LEASE_DRIFT: u32 = 20;
/// Time that is not relied on besides.
const LEASE_MARGIN: Duration = Duration::from_millis(200);

/// A process of a cluster.
#[derive(Clone, Debug)]
pub struct NodeName {
    /// Name of the node; no two processes at a time have the same.
    pub node: String,
    /// Random text that no other process has.
    pub incarnation: String,
    /// Address at which other nodes reach it, `HOST:PORT`.
    pub address: String,
    /// Version of the program.
    pub version: String,
    /// Formats of the tables that the program knows.
    pub formats: Formats,
    /// Time without a beat after which others count it as dead: [`OWNERSHIP_LEASE_MIN`] to [`OWNERSHIP_LEASE_MAX`].
    pub lease: Duration,
}

impl NodeName {
    /// Returns a text that no other process has, for [`NodeName::incarnation`].
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn new_incarnation() -> Result<String, StoreError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| StoreError::Io {
            path: "the source of random bytes".to_owned(),
            doing: "read",
            reason: error.to_string(),
        })?;
        Ok(format!("{:032x}", u128::from_ne_bytes(random)))
    }

    /// Returns the time for which the node surely owns its shards, counted from the moment before it sent a beat that
    /// succeeded.
    pub fn sure_for(&self) -> Duration {
        let unsure = self.lease / LEASE_DRIFT + LEASE_MARGIN;
        self.lease.saturating_sub(unsure)
    }
}

/// A node, as another one saw it at its last beat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenNode {
    /// Name of the node.
    pub name: String,
    /// Address at which other nodes reach it, `HOST:PORT`.
    pub address: String,
    /// Version of its program.
    pub version: String,
    /// Time since its last beat, by the clock of the database.
    pub silent_for: Duration,
    /// Whether it counts as alive.
    pub is_live: bool,
    /// Whether it gives its shards away.
    pub is_draining: bool,
}

/// A shard of a cluster, as a node saw it at its last beat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenShard {
    /// Number of the shard in its database.
    pub number: u32,
    /// Id of the shard.
    pub id: ShardId,
    /// Name of the node that is to serve it; empty if there is none.
    pub node: String,
    /// Name of the node that holds it; empty if none does.
    pub holder: String,
    /// Whether this process holds it.
    pub is_ours: bool,
    /// Whether it holds it since this beat. It did not before: what it has of the shard from an earlier time is out of
    /// date.
    pub is_new: bool,
}

/// What a beat found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Time before the beat was sent, by the clock that it was given.
    pub began: Duration,
    /// The nodes, by name.
    pub nodes: Vec<SeenNode>,
    /// The shards, by number.
    pub shards: Vec<SeenShard>,
    /// Number that every change of the nodes which are to serve shards raises.
    pub version: u64,
    /// Format of the tables.
    pub format: u32,
    /// Number of shards that this beat took from dead nodes.
    pub taken_over: u64,
    /// Number of shards that this beat moved from one live node to another.
    pub moved: u64,
}

/// Why a beat failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BeatError {
    /// Another process has the name of this node.
    #[error("another process has the node name {0:?}: give each its own with --node")]
    NameTaken(String),
    /// The cluster has a format that this program does not know.
    #[error(
        "the cluster has format {found} now, and this program knows formats up to {known}: use a newer ganger"
    )]
    FormatTooNew {
        /// Format of the cluster.
        found: u32,
        /// Newest format that this program knows.
        known: u32,
    },
    /// The control tables cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a node says of the shards that nobody holds.
pub trait Holds {
    /// Whether it may hold a shard that is placed on it.
    fn may_hold(&self, shard: u32) -> bool;

    /// Whether it holds a shard that is placed on the node `placed`, which does not take it.
    fn keeps(&self, shard: u32, placed: &str) -> bool {
        let _ = (shard, placed);
        false
    }
}

/// A node that holds no shards but those that are placed on it: a function says which.
impl<F: Fn(u32) -> bool> Holds for F {
    fn may_hold(&self, shard: u32) -> bool {
        self(shard)
    }
}

/// A node of a cluster: its beats, and its part in placing the shards.
pub struct Member {
    database: Arc<Database>,
    /// The connection, with the number of its server.
    session: Option<(Session, u64)>,
    /// The host that is tried first. Raised when a beat fails: a primary whose standby was promoted lives on as a rule
    /// and confirms nothing.
    host: usize,
    name: NodeName,
    has_joined: bool,
    watches: Watches,
}

impl Member {
    /// Prepares a node. Nothing is written before the first [`Member::beat`].
    pub fn new(database: &Arc<Database>, name: NodeName) -> Self {
        Self {
            database: Arc::clone(database),
            session: None,
            host: 0,
            has_joined: false,
            watches: Watches::new(&name.node),
            name,
        }
    }

    /// Returns the name of the node.
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// Raises the beat of this node, places the shards of nodes that died, and holds shards that nobody holds: those that
    /// are placed here, if `holds.may_hold` allows it, and those of other nodes that `holds.keeps` names. `clock` is one
    /// of this machine that counts suspended time too.
    ///
    /// A shard that is ours in the result was ours after the beat: this process surely owns it for
    /// [`NodeName::sure_for`] from the moment before this call.
    ///
    /// # Errors
    /// If the database cannot be reached, or another process uses the name of this node.
    pub fn beat(
        &mut self,
        clock: &dyn Fn() -> Duration,
        holds: &dyn Holds,
    ) -> Result<Seen, BeatError> {
        let label = self.database.settings().label();
        let beaten = self.try_beat(clock, holds);
        if beaten.as_ref().is_err_and(Fault::is_lost) {
            self.session = None;
            self.host = self.host.wrapping_add(1);
        }
        match beaten {
            Ok(Some(seen)) if seen.format > self.name.formats.max => Err(BeatError::FormatTooNew {
                found: seen.format,
                known: self.name.formats.max,
            }),
            Ok(Some(seen)) => Ok(seen),
            Ok(None) => Err(BeatError::NameTaken(self.name.node.clone())),
            Err(fault) => Err(explain(fault, &label).into()),
        }
    }

    fn try_beat(
        &mut self,
        clock: &dyn Fn() -> Duration,
        holds: &dyn Holds,
    ) -> Result<Option<Seen>, Fault> {
        let patience = self.name.lease / 2;
        let Self {
            database,
            session,
            host,
            name,
            has_joined,
            watches,
        } = self;
        let session = connected(database, session, *host)?;
        session.run_for(patience, async |wire| {
            let before = clock();
            if !statements::raise(wire, name, *has_joined).await? {
                return Ok(None);
            }
            *has_joined = true;
            let mut table = statements::look(wire).await?;
            watches.look(&table.nodes, before, clock());
            let judgement = watches.judge(&table);
            let (mut taken_over, mut moved) = (0, 0);
            if !judgement.changes.is_empty()
                && statements::store(wire, table.version, &judgement).await?
            {
                taken_over = judgement.taken_over();
                moved = judgement.moved();
                table = statements::look(wire).await?;
            }
            if let NextFormat::Ready(next) = judgement.next_format
                && judgement.known_for >= KNOWN_FOR
                && statements::raise_format(wire, next).await?
            {
                tracing::info!(
                    format = next,
                    "all nodes know this format: the cluster has it from now on"
                );
                table.format = next;
            }
            for place in &mut table.places {
                let may_hold = if place.node == name.node {
                    holds.may_hold(place.number)
                } else {
                    holds.keeps(place.number, &place.node)
                };
                if place.holder.is_empty() && may_hold {
                    place.hold_as(wire, name).await?;
                }
            }
            Ok(Some(Seen {
                began: before,
                nodes: judgement.nodes,
                version: u64::try_from(table.version).unwrap_or(0),
                format: table.format,
                shards: table.shards(&name.incarnation),
                taken_over,
                moved,
            }))
        })
    }

    /// Gives a shard up that this process does not serve any more.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn release(&mut self, shard: u32) -> Result<(), StoreError> {
        let incarnation = self.name.incarnation.clone();
        self.run(async |wire| statements::release(wire, &incarnation, shard).await)
    }

    /// Gives a shard up that this process cannot serve, for another node to try, if there is one.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn give_up(&mut self, shard: u32) -> Result<(), StoreError> {
        let (name, watches) = (self.name.clone(), self.watches.clone());
        self.run(async |wire| {
            let table = statements::look(wire).await?;
            match watches.next_node(&table.nodes) {
                Some(next) => statements::give_up(wire, &name, shard, next).await,
                None => statements::release(wire, &name.incarnation, shard).await,
            }
        })
    }

    /// Asks for other nodes to take the shards of this one, and for no more shards.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn drain(&mut self) -> Result<(), StoreError> {
        let node = self.name.node.clone();
        self.run(async |wire| {
            // Without a row, the node has no shards.
            statements::set_draining(wire, &node, true).await.map(drop)
        })
    }

    /// Leaves the cluster, once this process serves nothing more.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub fn leave(&mut self) -> Result<(), StoreError> {
        let incarnation = self.name.incarnation.clone();
        self.run(async |wire| statements::leave(wire, &incarnation).await)
    }

    fn run(
        &mut self,
        work: impl AsyncFnOnce(&Wire) -> Result<(), Fault>,
    ) -> Result<(), StoreError> {
        let label = self.database.settings().label();
        let Self {
            database,
            session,
            host,
            ..
        } = self;
        let done = connected(database, session, *host).and_then(|session| session.run(work));
        if done.as_ref().is_err_and(Fault::is_lost) {
            self.session = None;
        }
        done.map_err(|fault| explain(fault, &label))
    }
}

/// Returns the connection of the node, made again if it has ended or another server has taken the place of its own: a
/// former primary that still answers would confirm what is not so any more.
fn connected<'a>(
    database: &Database,
    session: &'a mut Option<(Session, u64)>,
    host: usize,
) -> Result<&'a mut Session, Fault> {
    let is_usable =
        |(session, server): &mut (Session, u64)| *server == database.server() && session.is_alive();
    if !session.as_mut().is_some_and(is_usable) {
        *session = None;
        let server = database.server();
        *session = Some((database.connect_unchecked("ganger/node", host)?, server));
    }
    let (session, _) = session.as_mut().expect("it was just made");
    Ok(session)
}

/// Says what to do if the tables of the nodes are missing: an earlier program prepared the database.
fn explain(fault: Fault, label: &str) -> StoreError {
    if fault.is(&SqlState::UNDEFINED_TABLE) || fault.is(&SqlState::UNDEFINED_COLUMN) {
        return StoreError::Io {
            path: label.to_owned(),
            doing: "used",
            reason: "it lacks tables or columns for several nodes: run `ganger cluster migrate`"
                .to_owned(),
        };
    }
    crate::control::explain(fault, label)
}

/// Places a shard on a node, which takes it over from its owner. Returns whether there are such a shard, and such a node
/// that takes shards.
///
/// # Errors
/// If the database cannot be reached, or is not that of a cluster.
pub fn move_shard(
    database: &Arc<Database>,
    shard: &ShardId,
    node: &str,
) -> Result<bool, StoreError> {
    let label = database.settings().label();
    let placed = database.with_reader(|session| {
        session.run_for(QUERY_MAX, async |wire| {
            statements::move_to(wire, shard.as_str(), node).await
        })
    });
    placed.map_err(|fault| explain(fault, &label))
}

/// Makes a node give its shards away, or take shards again. Returns whether there is such a node.
///
/// # Errors
/// If the database cannot be reached, or is not that of a cluster.
pub fn set_draining(
    database: &Arc<Database>,
    node: &str,
    is_draining: bool,
) -> Result<bool, StoreError> {
    let label = database.settings().label();
    let changed = database.with_reader(|session| {
        session.run_for(QUERY_MAX, async |wire| {
            statements::set_draining(wire, node, is_draining).await
        })
    });
    changed.map_err(|fault| explain(fault, &label))
}

/// Gives the cluster the next format, if all live nodes know it: those that have beaten within their leases. Returns what it
/// found; [`NextFormat::Ready`] with the format that the cluster has now.
///
/// # Errors
/// If the database cannot be reached, or is not that of a cluster.
pub fn finalize(database: &Arc<Database>) -> Result<NextFormat, StoreError> {
    let label = database.settings().label();
    let done = database.with_reader(|session| {
        session.run_for(QUERY_MAX, async |wire| {
            let table = statements::look(wire).await?;
            let live = table.nodes.iter().filter(|it| it.silent_for < it.lease);
            let next = table.next_format(live);
            if let NextFormat::Ready(next) = next {
                // Another one may have been faster.
                statements::raise_format(wire, next).await?;
            }
            Ok(next)
        })
    });
    done.map_err(|fault| explain(fault, &label))
}

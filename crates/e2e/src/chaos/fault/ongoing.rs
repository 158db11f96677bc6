//! Faults that have begun: what each does to its target, and what ends it.

use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use rustix::process::Signal;

use crate::chaos::LEASE;
use crate::chaos::case::{Fault, FormerPrimary, Target};
use crate::chaos::links::End;
use crate::chaos::topology::{Database, NODES, Topology};
use crate::cluster::DATABASE;
use crate::command::wait_for;
use crate::random::Random;

/// How long a cut, a slow link and most other faults last.
const LASTS: Duration = Duration::from_secs(5);
/// How long a killed server of the database is away.
const DATABASE_AWAY: Duration = Duration::from_secs(1);
/// By what a slow link is slow.
const DELAY: Duration = Duration::from_millis(500);
/// The tables of the log of the load's shard.
const LOG_TABLES: &str = "ganger_s_1.log_0, ganger_s_1.log_1, ganger_s_1.log_2";

/// A fault that has begun.
pub(super) struct Ongoing {
    ends_at: Instant,
    ending: Ending,
}

/// What ends a fault.
enum Ending {
    /// The fault was over when it had begun.
    Nothing,
    Restart(usize),
    Continue(usize),
    RightClock(usize),
    /// Makes these directions whole and fast again.
    Mend(Vec<(End, End)>),
    StartPrimary,
    ResumePrimary,
    /// Standbys keep their places in the list while a fault of one lasts.
    StartStandby,
    ResumeStandby,
    Grant,
    FreeDisk,
    /// Waits for a session that ends by itself.
    Wait(Child),
}

impl Ending {
    fn after(self, time: Duration) -> Ongoing {
        Ongoing {
            ends_at: Instant::now() + time,
            ending: self,
        }
    }
}

impl Ongoing {
    /// Begins a fault. `node` is its target if that is a node.
    pub(super) fn begin(
        topology: &mut Topology,
        target: Target,
        node: usize,
        fault: Fault,
        random: &mut Random,
    ) -> Result<Self> {
        match target {
            Target::Owner | Target::OtherNode => at_node(topology, node, fault, random),
            Target::Primary => at_primary(topology, fault),
            Target::Standby => at_standby(topology, fault),
            Target::Pooler => {
                topology.restart_pooler()?;
                Ok(Ending::Nothing.after(Duration::ZERO))
            }
        }
    }

    /// Returns when it ends.
    pub(super) fn ends_at(&self) -> Instant {
        self.ends_at
    }

    /// Waits until it ends, and ends it.
    pub(super) fn end(self, topology: &mut Topology) -> Result<()> {
        thread::sleep(self.ends_at.saturating_duration_since(Instant::now()));
        match self.ending {
            Ending::Nothing => {}
            Ending::Restart(node) => topology.restart(node)?,
            Ending::Continue(node) => topology.nodes[node].server.signal(Signal::CONT)?,
            Ending::RightClock(node) => topology.set_clock(node, 0)?,
            Ending::Mend(directions) => topology.links.mend(&directions),
            Ending::StartPrimary => topology.cluster.postgres.start_again()?,
            Ending::ResumePrimary => topology.cluster.postgres.resume()?,
            Ending::StartStandby => standby(topology)?.instance.start_again()?,
            Ending::ResumeStandby => standby(topology)?.instance.resume()?,
            Ending::Grant => {
                let grant = format!("GRANT INSERT ON {LOG_TABLES} TO ganger_node");
                topology.cluster.sql(&grant)?;
            }
            Ending::FreeDisk => topology.free_disk()?,
            Ending::Wait(session) => {
                let ended = session.wait_with_output()?;
                let said = String::from_utf8_lossy(&ended.stderr);
                ensure!(ended.status.success(), "a session ended with {said}");
            }
        }
        Ok(())
    }
}

fn standby(topology: &mut Topology) -> Result<&mut Database> {
    let first = topology.standbys.first_mut();
    first.context("there is no standby")
}

/// Both directions between one end and others.
fn both_ways(one: End, others: impl IntoIterator<Item = End>) -> Vec<(End, End)> {
    let pairs = others.into_iter().map(|it| [(one, it), (it, one)]);
    pairs.flatten().collect()
}

/// Cuts directions for a while.
fn cut(topology: &Topology, directions: Vec<(End, End)>) -> Ongoing {
    for (from, to) in &directions {
        topology.links.cut(*from, *to);
    }
    Ending::Mend(directions).after(LASTS)
}

/// Lets everything in these directions arrive later for a while.
fn slow(topology: &Topology, directions: Vec<(End, End)>) -> Ongoing {
    for (from, to) in &directions {
        topology.links.slow(*from, *to, DELAY);
    }
    Ending::Mend(directions).after(LASTS)
}

fn at_node(
    topology: &mut Topology,
    node: usize,
    fault: Fault,
    random: &mut Random,
) -> Result<Ongoing> {
    let own = End::Node(node);
    let others = (0..NODES).filter(|other| *other != node).map(End::Node);
    let databases = (0..=topology.standbys.len()).map(End::Database);
    let all = others.clone().chain(databases.clone());
    let ongoing = match fault {
        Fault::Kill => {
            topology.nodes[node].server.kill()?;
            // Sometimes it is back before anybody has noticed.
            let is_back_soon = random.chance(30);
            let away = if is_back_soon {
                Duration::ZERO
            } else {
                LEASE * 2
            };
            Ending::Restart(node).after(away)
        }
        Fault::Pause(length) => {
            topology.nodes[node].server.signal(Signal::STOP)?;
            Ending::Continue(node).after(length)
        }
        Fault::Clock(hours) => {
            topology.nodes[node].server.kill()?;
            topology.set_clock(node, hours)?;
            topology.restart(node)?;
            Ending::RightClock(node).after(LASTS * 2)
        }
        Fault::CutFromPeers => cut(topology, both_ways(own, others)),
        Fault::CutFromDatabase => cut(topology, both_ways(own, databases)),
        Fault::IsNotHeard => cut(topology, all.map(|other| (own, other)).collect()),
        Fault::HearsNothing => cut(topology, all.map(|other| (other, own)).collect()),
        Fault::Slow => slow(topology, both_ways(own, all)),
        Fault::Promote(_) | Fault::NoRights | Fault::Dump | Fault::Snapshot | Fault::Full => {
            bail!("that is nothing for a node")
        }
    };
    Ok(ongoing)
}

fn at_primary(topology: &mut Topology, fault: Fault) -> Result<Ongoing> {
    let own = End::Database(topology.primary);
    let nodes = (0..NODES).map(End::Node);
    let ongoing = match fault {
        Fault::Kill => {
            topology.cluster.postgres.kill()?;
            Ending::StartPrimary.after(DATABASE_AWAY)
        }
        Fault::Pause(length) => {
            topology.cluster.postgres.pause()?;
            Ending::ResumePrimary.after(length)
        }
        Fault::CutFromDatabase => cut(topology, both_ways(own, nodes)),
        Fault::IsNotHeard => cut(topology, nodes.map(|node| (own, node)).collect()),
        Fault::HearsNothing => cut(topology, nodes.map(|node| (node, own)).collect()),
        Fault::Slow => slow(topology, both_ways(own, nodes)),
        Fault::Promote(former) => {
            promote(topology, former)?;
            Ending::Nothing.after(Duration::ZERO)
        }
        Fault::NoRights => {
            let revoke = format!("REVOKE INSERT ON {LOG_TABLES} FROM ganger_node");
            topology.cluster.sql(&revoke)?;
            Ending::Grant.after(LASTS)
        }
        Fault::Dump => {
            let lock = format!("BEGIN; LOCK TABLE {LOG_TABLES} IN ACCESS SHARE MODE");
            hold(topology, &lock)?
        }
        Fault::Snapshot => hold(
            topology,
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ganger.place",
        )?,
        Fault::Full => {
            topology.fill_disk()?;
            Ending::FreeDisk.after(LASTS)
        }
        Fault::CutFromPeers | Fault::Clock(_) => bail!("that is nothing for a database"),
    };
    Ok(ongoing)
}

/// Runs statements that open a transaction, and keeps it open for a while.
fn hold(topology: &Topology, statements: &str) -> Result<Ongoing> {
    let statements = format!("{statements}; SELECT pg_sleep({}); COMMIT", LASTS.as_secs());
    let session = topology.cluster.postgres.start_sql(DATABASE, &statements)?;
    Ok(Ending::Wait(session).after(LASTS))
}

fn at_standby(topology: &mut Topology, fault: Fault) -> Result<Ongoing> {
    let standby = standby(topology)?;
    match fault {
        Fault::Pause(length) => {
            standby.instance.pause()?;
            Ok(Ending::ResumeStandby.after(length))
        }
        Fault::Kill => {
            standby.instance.kill()?;
            Ok(Ending::StartStandby.after(DATABASE_AWAY))
        }
        _ => Err(anyhow!("that is nothing for a standby")),
    }
}

/// Promotes a standby, as a manager of the database does it or a person by hand. The former primary comes back as a
/// standby with a new copy.
fn promote(topology: &mut Topology, former: FormerPrimary) -> Result<()> {
    let directions = both_ways(End::Database(topology.primary), (0..NODES).map(End::Node));
    match former {
        FormerPrimary::Dead => topology.cluster.postgres.kill()?,
        FormerPrimary::CutOff => {
            for (from, to) in &directions {
                topology.links.cut(*from, *to);
            }
        }
        FormerPrimary::Alive => {}
    }
    let mut old = topology.promote(former)?;
    let number = old.number;
    topology.restart_pooler()?;
    match former {
        FormerPrimary::Dead => {}
        FormerPrimary::CutOff | FormerPrimary::Alive => {
            // A shard without owner gets none before the new primary has a standby again.
            wait_for("a node to use the new primary", || {
                let sql = "SELECT count(*) FROM pg_stat_activity
                    WHERE application_name LIKE 'ganger/1/%' OR application_name = 'ganger/node'";
                Ok((topology.cluster.sql(sql)? != "0").then_some(()))
            })?;
            old.instance.kill()?;
        }
    }
    drop(old);
    topology.add_standby(number)?;
    if former == FormerPrimary::CutOff {
        topology.links.mend(&directions);
    }
    Ok(())
}

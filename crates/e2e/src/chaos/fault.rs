//! Waits for the moment of a case, does what it says, and undoes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use ganger_postgres_instance::Instance;
use rustix::process::Signal;
use serde_json::json;

use super::LEASE;
use super::case::{Case, Fault, FormerPrimary, Moment, Target};
use super::links::End;
use super::topology::{Database, NODES, Topology, node_name};
use crate::command::{command, run_successfully, wait_for};
use crate::random::Random;

/// How long a cut, a slow link and most other faults last.
const LASTS: Duration = Duration::from_secs(5);
/// How long a killed server of the database is away.
const DATABASE_AWAY: Duration = Duration::from_secs(1);
/// By what a slow link is slow.
const DELAY: Duration = Duration::from_millis(500);
/// Characters of the payload of a job that fills the log.
const FILLER: usize = 400_000;
/// Longest wait for a statement at which a fault is to begin.
const MOMENT_MAX: Duration = Duration::from_secs(15);

/// What must be undone after a case.
#[derive(Default)]
struct Undo {
    /// Node that was killed so that another claims its shard.
    restart: Option<usize>,
    /// Node that was drained.
    drained: Option<usize>,
    drain: Option<JoinHandle<()>>,
}

/// Does what a case says, and undoes it. Returns why there was nothing to do, if so.
pub(super) fn inject(
    topology: &mut Topology,
    case: Case,
    random: &mut Random,
) -> Result<std::result::Result<(), String>> {
    let Some(owner) = topology.owner()? else {
        return Ok(Err("the shard has no owner".to_owned()));
    };
    if matches!(case.fault, Fault::Clock(_)) && !Topology::has_clocks() {
        return Ok(Err("libfaketime is not installed".to_owned()));
    }
    let mut undo = Undo::default();
    if let Err(reason) = wait_for_moment(topology, case.moment, owner, &mut undo, random)? {
        return Ok(Err(reason));
    }
    let node = match (case.target, case.moment) {
        // The owner is dead, and one of the others is about to claim.
        (Target::Owner | Target::OtherNode, Moment::Claim) | (Target::OtherNode, _) => {
            (owner + 1 + usize::from(random.chance(50))) % NODES
        }
        _ => owner,
    };
    match case.target {
        Target::Owner | Target::OtherNode => at_node(topology, node, case.fault, random)?,
        Target::Primary => at_primary(topology, case.fault)?,
        Target::Standby => at_standby(topology, case.fault)?,
        Target::Pooler => topology.restart_pooler()?,
    }
    if let Some(node) = undo.restart {
        topology.restart(node)?;
    }
    if let Some(drain) = undo.drain {
        drain.join().map_err(|_| anyhow!("the drain panicked"))?;
    }
    if let Some(node) = undo.drained {
        run_successfully(&words(&drain_words(topology, node, true)), &[])?;
    }
    Ok(Ok(()))
}

/// Waits until it is time for the fault; returns why that does not come.
fn wait_for_moment(
    topology: &mut Topology,
    moment: Moment,
    owner: usize,
    undo: &mut Undo,
    random: &mut Random,
) -> Result<std::result::Result<(), String>> {
    match moment {
        Moment::Steady => thread::sleep(Duration::from_millis(200 + random.below(800))),
        Moment::Rows => return wait_for_statement(topology, "ganger_s_1.jobs"),
        Moment::Truncate => {
            let filler = Filler::start(topology, owner);
            let found = wait_for_statement(topology, "TRUNCATE");
            filler.stop();
            return found;
        }
        Moment::Claim => {
            topology.nodes[owner].server.kill()?;
            undo.restart = Some(owner);
            // Nodes notice it after the lease, and claim at once.
            let early = Duration::from_millis(random.below(600));
            thread::sleep(LEASE.saturating_sub(Duration::from_millis(200)) + early);
        }
        Moment::HandOver => {
            let arguments = drain_words(topology, owner, false);
            // It fails if the database is away, and is undone all the same.
            undo.drain = Some(thread::spawn(move || {
                drop(command(&words(&arguments), &[]).output());
            }));
            undo.drained = Some(owner);
            thread::sleep(Duration::from_millis(random.below(600)));
        }
    }
    Ok(Ok(()))
}

/// Enqueues large jobs that nobody takes, so that tables of the log are full and emptied soon.
struct Filler {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Filler {
    fn start(topology: &Topology, node: usize) -> Self {
        let mut client = topology.nodes[node].setup.client();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let mut random = Random::new(0);
            while !over.load(Ordering::Relaxed) {
                // It does not become smaller when it is compressed.
                let pieces = (0..FILLER / 16).map(|_| format!("{:016x}", random.draw()));
                let text = pieces.collect::<Vec<_>>().concat();
                let job =
                    json!({ "queue": "filler", "kind": "filler", "shard": "1", "payload": text });
                // Whether it is taken does not matter.
                let _ = client.request("POST", "/api/v1/jobs", &job);
            }
        });
        Self { is_over, thread }
    }

    fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn drain_words(topology: &Topology, node: usize, is_undone: bool) -> Vec<String> {
    let node = node_name(node);
    let (store, file) = (topology.cluster.address(), topology.cluster.password_file());
    let mut words = [
        "cluster",
        "drain",
        &node,
        "--store",
        &store,
        "--store-password-file",
        &file,
    ]
    .map(str::to_owned)
    .to_vec();
    words.extend(is_undone.then(|| "--undo".to_owned()));
    words
}

/// Waits until a session of the nodes runs a statement with this text.
fn wait_for_statement(topology: &Topology, text: &str) -> Result<std::result::Result<(), String>> {
    let sql = format!(
        "SET statement_timeout = {}; DO $$ BEGIN LOOP
            EXIT WHEN EXISTS (SELECT 1 FROM pg_stat_activity WHERE usename = 'ganger_node'
                AND state IN ('active', 'idle in transaction') AND position('{text}' IN query) > 0);
            PERFORM pg_sleep(0.001); PERFORM pg_stat_clear_snapshot();
         END LOOP; END $$",
        MOMENT_MAX.as_millis()
    );
    match topology.cluster.sql(&sql) {
        Ok(_) => Ok(Ok(())),
        Err(error) if error.to_string().contains("statement timeout") => {
            Ok(Err(format!("no statement with {text}")))
        }
        Err(error) => Err(error),
    }
}

fn at_node(topology: &mut Topology, node: usize, fault: Fault, random: &mut Random) -> Result<()> {
    let others = (0..NODES).filter(|other| *other != node).map(End::Node);
    let databases = (0..=topology.standbys.len()).map(End::Database);
    let (others, databases): (Vec<End>, Vec<End>) = (others.collect(), databases.collect());
    let links = topology.links.clone();
    let own = End::Node(node);
    let all = || others.iter().chain(&databases);
    match fault {
        Fault::Kill => {
            topology.nodes[node].server.kill()?;
            // Sometimes it is back before anybody has noticed.
            thread::sleep(if random.chance(30) {
                Duration::ZERO
            } else {
                LEASE * 2
            });
            return topology.restart(node);
        }
        Fault::Pause(length) => {
            topology.nodes[node].server.signal(Signal::STOP)?;
            thread::sleep(length);
            return topology.nodes[node].server.signal(Signal::CONT);
        }
        Fault::Clock(hours) => {
            topology.nodes[node].server.kill()?;
            topology.set_clock(node, hours)?;
            topology.restart(node)?;
            thread::sleep(LASTS * 2);
            return topology.set_clock(node, 0);
        }
        Fault::CutFromPeers => others
            .iter()
            .for_each(|other| cut_both(topology, own, *other)),
        Fault::CutFromDatabase => databases
            .iter()
            .for_each(|other| cut_both(topology, own, *other)),
        Fault::IsNotHeard => all().for_each(|other| links.cut(own, *other)),
        Fault::HearsNothing => all().for_each(|other| links.cut(*other, own)),
        Fault::Slow => all().for_each(|other| links.slow(own, *other, DELAY)),
        Fault::Promote(_) | Fault::NoRights | Fault::Dump | Fault::Snapshot => {
            anyhow::bail!("that is nothing for a node")
        }
    }
    thread::sleep(LASTS);
    topology.links.mend();
    Ok(())
}

fn cut_both(topology: &Topology, one: End, other: End) {
    topology.links.cut(one, other);
    topology.links.cut(other, one);
}

fn at_primary(topology: &mut Topology, fault: Fault) -> Result<()> {
    let own = End::Database(topology.primary);
    match fault {
        Fault::Kill => {
            topology.cluster.postgres.kill()?;
            thread::sleep(DATABASE_AWAY);
            topology.cluster.postgres.start_again()?;
        }
        Fault::Pause(length) => pause(&topology.cluster.postgres, length)?,
        Fault::CutFromDatabase | Fault::Slow => {
            for node in (0..NODES).map(End::Node) {
                if fault == Fault::Slow {
                    topology.links.slow(node, own, DELAY);
                } else {
                    cut_both(topology, node, own);
                }
            }
            thread::sleep(LASTS);
            topology.links.mend();
        }
        Fault::Promote(former) => promote(topology, former)?,
        Fault::NoRights => {
            let tables: Vec<String> = (0..3)
                .map(|slot| format!("ganger_s_1.log_{slot}"))
                .collect();
            let tables = tables.join(", ");
            topology
                .cluster
                .sql(&format!("REVOKE INSERT ON {tables} FROM ganger_node"))?;
            thread::sleep(LASTS);
            topology
                .cluster
                .sql(&format!("GRANT INSERT ON {tables} TO ganger_node"))?;
        }
        Fault::Dump => {
            let tables = "ganger_s_1.log_0, ganger_s_1.log_1, ganger_s_1.log_2";
            hold(
                topology,
                &format!("BEGIN; LOCK TABLE {tables} IN ACCESS SHARE MODE"),
            )?;
        }
        Fault::Snapshot => hold(
            topology,
            "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM ganger.place",
        )?,
        _ => anyhow::bail!("that is nothing for a database"),
    }
    Ok(())
}

/// Runs statements that open a transaction, and keeps it open for a while.
fn hold(topology: &Topology, statements: &str) -> Result<()> {
    let seconds = LASTS.as_secs();
    topology
        .cluster
        .sql(&format!("{statements}; SELECT pg_sleep({seconds}); COMMIT"))
        .map(drop)
}

fn pause(server: &Instance, length: Duration) -> Result<()> {
    server.pause()?;
    thread::sleep(length);
    Ok(server.resume()?)
}

fn at_standby(topology: &mut Topology, fault: Fault) -> Result<()> {
    let standby = topology
        .standbys
        .first_mut()
        .context("there is a standby")?;
    match fault {
        Fault::Pause(length) => pause(&standby.instance, length),
        Fault::Kill => {
            standby.instance.kill()?;
            thread::sleep(DATABASE_AWAY);
            Ok(standby.instance.start_again()?)
        }
        _ => anyhow::bail!("that is nothing for a standby"),
    }
}

/// Promotes a standby, as a manager of the database does it or a person by hand. The former primary comes back as a
/// standby with a new copy.
fn promote(topology: &mut Topology, former: FormerPrimary) -> Result<()> {
    let old = End::Database(topology.primary);
    match former {
        FormerPrimary::Dead => topology.cluster.postgres.kill()?,
        FormerPrimary::CutOff => {
            for node in (0..NODES).map(End::Node) {
                cut_both(topology, node, old);
            }
        }
        FormerPrimary::Alive => {}
    }
    let Database {
        number,
        mut instance,
    } = topology.promote(former)?;
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
            instance.kill()?;
        }
    }
    drop(instance);
    topology.add_standby(number)?;
    topology.links.mend();
    Ok(())
}

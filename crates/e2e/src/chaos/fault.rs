//! Waits for the moment of a case, does what it says, and undoes it.

mod ongoing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};
use serde_json::json;

use self::ongoing::Ongoing;
use super::LEASE;
use super::case::{Case, Fault, Moment, Second, Target};
use super::topology::{NODES, Topology, node_name};
use crate::command::{command, run_successfully};
use crate::random::Random;

/// Characters of the payload of a job that fills the log.
const FILLER: usize = 400_000;
/// Longest wait for a statement at which a fault is to begin.
const MOMENT_MAX: Duration = Duration::from_secs(15);
/// Time after the first fault within which the second one of a case begins, in ms.
const SECOND_WITHIN_MS: u64 = 4_000;

/// What must be undone after a case, besides its faults.
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
    let second = case.second.map(|second| second.fault);
    let mut faults = [Some(case.fault), second].into_iter().flatten();
    if faults.any(|fault| matches!(fault, Fault::Clock(_))) && !Topology::has_clocks() {
        return Ok(Err("libfaketime is not installed".to_owned()));
    }
    let mut undo = Undo::default();
    if let Err(reason) = wait_for_moment(topology, case.moment, owner, &mut undo, random)? {
        return Ok(Err(reason));
    }
    let other = (owner + 1 + usize::from(random.chance(50))) % NODES;
    let node = match (case.target, case.moment) {
        // The owner is dead, and one of the others is about to claim.
        (Target::Owner | Target::OtherNode, Moment::Claim) | (Target::OtherNode, _) => other,
        _ => owner,
    };
    let first = Ongoing::begin(topology, case.target, node, case.fault, random)?;
    let mut ongoing = vec![first];
    if let Some(Second { fault, target }) = case.second {
        thread::sleep(Duration::from_millis(random.below(SECOND_WITHIN_MS)));
        let node = match target {
            Target::Owner => owner,
            _ if node == owner => other,
            // The first fault is at another node than the owner.
            _ => NODES - owner - node,
        };
        ongoing.push(Ongoing::begin(topology, target, node, fault, random)?);
    }
    ongoing.sort_by_key(Ongoing::ends_at);
    for fault in ongoing {
        fault.end(topology)?;
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

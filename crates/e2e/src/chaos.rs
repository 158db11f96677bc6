//! Faults of every kind in a cluster under load, and a check of what its clients observed.
//!
//! Three nodes serve the jobs and the graphs of one load over a PostgreSQL with standbys. In each round a fault hits one
//! part at one moment, ends again, and every node must serve; or two faults hit two parts. At the end all jobs must have
//! ended, and their history must be possible.

mod case;
mod fault;
mod links;
mod sockets;
pub(crate) mod topology;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

pub use self::case::{Case, Fault, FormerPrimary, Moment, Second, Target, all_cases, pairs};
pub use self::topology::Databases;
use self::topology::{LEASE, SHARDS, Topology, node_name};
use crate::checker::Counts;
use crate::history::{Elapsed, Exchange, Operation, Outcome, longest_gap};
use crate::load::{Load, Plan};
use crate::random::Random;
use crate::server::tail;

/// Time after a fault in which every node must serve again.
const RECOVERY_MAX: Duration = Duration::from_secs(90);
/// Time in which all jobs must have ended after the last fault.
pub(crate) const FINISH_MAX: Duration = Duration::from_secs(120);
/// Rounds after which the history is checked, and another load begins: finished jobs are kept for a time only.
const ROUNDS_OF_A_LOAD: usize = 15;
/// Longest time that a client waits for an answer before it asks another node.
pub(crate) const PATIENCE: Duration = Duration::from_secs(4);
/// Completions after a fault that show that the load goes on.
const COMPLETIONS: usize = 5;

/// What runs, and where.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the test, for the note that it was skipped.
    pub test: String,
    /// Seed of the choices and of the load. It does not determine the times.
    pub seed: u64,
    /// The servers of the database.
    pub databases: Databases,
    /// The faults, one after the other.
    pub cases: Vec<Case>,
}

/// What happened in one round.
#[derive(Clone, Debug)]
pub struct Round {
    /// The case that this round was for.
    pub case: Case,
    /// Why nothing was done; `None` if it was.
    pub void: Option<String>,
    /// Longest time without an acknowledged change, from the fault until every node served again.
    pub pause: Duration,
    /// Whether another node owned the shard of the load afterwards.
    pub has_moved: bool,
}

/// What happened in all rounds.
#[derive(Clone, Debug)]
pub struct Report {
    /// The rounds, in order.
    pub rounds: Vec<Round>,
    /// What the clients observed.
    pub counts: Counts,
}

/// Runs the rounds; each is reported as soon as it is over. `None` where this cannot run, with a note.
///
/// # Errors
/// If a node does not serve after a fault, ends by itself or panics, or if the history shows that a promise was broken.
/// The error names the directory with the logs of the nodes.
pub fn run(options: &Options, report: impl FnMut(&Round)) -> Result<Option<Report>> {
    let Some(mut topology) = Topology::start(&options.test, options.databases)? else {
        return Ok(None);
    };
    let done = run_rounds(&mut topology, options, report);
    if done.is_err() {
        topology.keep_logs();
    }
    let logs = topology.directory().display().to_string();
    done.with_context(|| format!("seed {}; logs are in {logs}", options.seed))
        .map(Some)
}

fn run_rounds(
    topology: &mut Topology,
    options: &Options,
    mut report: impl FnMut(&Round),
) -> Result<Report> {
    let servers = topology.addresses();
    let mut random = Random::new(options.seed);
    let mut all = Report {
        rounds: Vec::new(),
        counts: Counts::default(),
    };
    for (part, cases) in (0..).zip(options.cases.chunks(ROUNDS_OF_A_LOAD)) {
        let plan = Plan {
            seed: options.seed + part,
            first_producer: part * 2,
            producers: 2,
            workers: 3,
            graph_shards: SHARDS,
            backlog_max: 60,
            every: Duration::ZERO,
        };
        let load = Load::start_at(&servers, PATIENCE, plan);
        for case in cases {
            let round =
                run_round(topology, &load, *case, &mut random).with_context(|| case.to_string())?;
            report(&round);
            all.rounds.push(round);
        }
        let (_, counts) = load.finish(FINISH_MAX)?;
        all.counts.add(&counts);
    }
    topology.stop()?;
    Ok(all)
}

fn run_round(
    topology: &mut Topology,
    load: &Load,
    case: Case,
    random: &mut Random,
) -> Result<Round> {
    let begun = load.recorder().now();
    let before = topology.owner()?;
    let done = fault::inject(topology, case, random)?;
    wait_until_all_serve(topology, load)?;
    Ok(Round {
        case,
        void: done.err(),
        pause: longest_pause(&load.recorder().exchanges(), begun, load.recorder().now()),
        has_moved: topology.owner()? != before,
    })
}

/// Waits until the load goes on, and every node is ready and reads all shards.
pub(crate) fn wait_until_all_serve(topology: &mut Topology, load: &Load) -> Result<()> {
    let (begun, completed) = (Instant::now(), load.completed());
    let of_graphs = load.completed_of_graphs();
    loop {
        let mut waits_for = None;
        for (number, node) in topology.nodes.iter_mut().enumerate() {
            if let Some(ended) = node.server.exit_status()? {
                bail!(
                    "{} ended with {ended}:\n{}",
                    node_name(number),
                    tail(&node.setup.log_text())
                );
            }
            let lists = (1..=SHARDS).map(|shard| format!("/api/v1/jobs?limit=1&shard={shard}"));
            for path in lists.chain(["/readyz".to_owned()]) {
                let answer = crate::http::Client::new(node.setup.address, PATIENCE).request(
                    "GET",
                    &path,
                    &serde_json::Value::Null,
                );
                if !matches!(&answer, Ok(answer) if answer.status == 200) {
                    waits_for = Some(format!("{}: {path}: {answer:?}", node_name(number)));
                }
            }
        }
        if waits_for.is_none() && load.completed() < completed + COMPLETIONS {
            waits_for = Some("the load does not go on".to_owned());
        }
        // Graphs over shards go on only if the shards' messages reach each other.
        let more = of_graphs.map(|completed| completed + COMPLETIONS);
        if waits_for.is_none() && load.completed_of_graphs() < more {
            waits_for = Some("graphs do not go on".to_owned());
        }
        let Some(what) = waits_for else {
            return Ok(());
        };
        if begun.elapsed() > RECOVERY_MAX {
            bail!("after {RECOVERY_MAX:?}: {what}");
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the longest time between two changes that were acknowledged in this time.
fn longest_pause(exchanges: &[Exchange], from: Elapsed, to: Elapsed) -> Duration {
    let is_change = |exchange: &&Exchange| {
        let is_write = !matches!(exchange.operation, Operation::Lease { .. });
        is_write && matches!(exchange.outcome, Outcome::Done { .. })
    };
    let times = exchanges
        .iter()
        .filter(is_change)
        .map(|exchange| exchange.answered_at);
    longest_gap(times, from, to)
}

/// Returns a short description of a round, for a list.
pub fn describe(round: &Round) -> String {
    let case = round.case.to_string();
    match &round.void {
        Some(reason) => format!("{case:<50} void: {reason}"),
        None => {
            let moved = if round.has_moved {
                ", another owner"
            } else {
                ""
            };
            format!(
                "{case:<50} {:.1} s without a change{moved}",
                round.pause.as_secs_f64()
            )
        }
    }
}

//! The world of several shards: a queue of events in order of time.

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::command::{Confirm, Receive};
use ganger_types::{Answer, Change, Command, Grant, JobRef, Message, Reply, ShardId};

use super::coordinator::Coordinator;
use super::node::{Node, TurnOutcome};
use super::oracle::Oracle;
use super::planted::PlantedBug;
use super::store::Store;
use crate::clock::Clocks;
use crate::plan::{Fault, Plan};
use crate::rng::{Rng, mix};
use crate::run_log::{Recording, RunLog};
use crate::tape::Tape;
use crate::world::StepOutcome;

const SECOND: u64 = 1_000_000;

/// An event of the simulated cluster, at a time to come.
pub(crate) enum Event {
    /// The next step of the tape.
    Step(usize),
    /// A shard sends its waiting messages to another.
    Carry(usize, usize),
    /// A batch of messages arrives at a shard.
    Batch {
        to: usize,
        batch: Box<Receive>,
        starts: u64,
    },
    /// The answer to a batch arrives.
    Confirm {
        from: usize,
        confirm: Box<Confirm>,
        starts: u64,
    },
    /// A coordinator makes its next request.
    Coordinate(usize),
    /// A request that the network duplicated arrives late.
    Stray {
        node: usize,
        command: Box<Command>,
        is_prepare: bool,
    },
    /// A worker reports on an attempt.
    Report {
        node: usize,
        grant: Box<Grant>,
        how: u64,
    },
    /// A timer of a shard is due.
    Due(usize),
    /// A shard's process is started again.
    Start(usize),
    /// A partition between two shards ends.
    Mend(usize, usize),
    /// All shards check whether they have something to ask.
    Look,
}

/// The answer that a client gets.
pub(crate) enum ClientAnswer {
    Answer(Answer),
    /// No answer; the request may have had an effect.
    Nothing,
}

/// A cluster, its clients and its network in simulated time.
pub(crate) struct World {
    pub(crate) tape: Tape,
    pub(crate) plan: Plan,
    pub(crate) time: u64,
    pub(crate) shards: Vec<ShardId>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) oracle: Oracle,
    pub(crate) log: RunLog,
    pub(crate) coordinators: Vec<Coordinator>,
    /// Random numbers of events that are not steps: the network, deaths.
    pub(crate) net: Rng,
    pub(crate) is_healed: bool,
    pub(crate) answered: u64,
    /// Pairs of shards that are cut off.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// Pairs whose sender is active, with the number of its attempts.
    pub(crate) carrying: BTreeMap<(usize, usize), u32>,
    /// Start of the receiver, and the last message that it received, for the goals.
    pub(crate) had: BTreeMap<(usize, usize), (u64, u64)>,
    pub(crate) copies: BTreeMap<usize, Store>,
    /// Pairs that must detect that the first shard was restored.
    pub(crate) undetected_restores: BTreeSet<(usize, usize)>,
    /// Ids that were submitted with different contents.
    pub(crate) disputed: BTreeSet<JobRef>,
    /// Jobs that were submitted and acknowledged.
    pub(crate) jobs: Vec<JobRef>,
    /// Duration of the tape's steps.
    pub(crate) load_lasts: u64,
    events: BTreeMap<(u64, u64), Event>,
    next_event: u64,
    due: Vec<Option<u64>>,
}

impl World {
    pub(crate) fn new(tape: Tape, recording: Recording) -> Self {
        let plan = tape.plan();
        let mut rng = Rng::new(mix(tape.seed ^ 0x0005_4A2D));
        let count = rng.index(4) + 2;
        let planted = PlantedBug(tape.planted);
        let mut world = Self {
            time: 1,
            shards: Vec::new(),
            nodes: Vec::new(),
            oracle: Oracle::default(),
            log: RunLog::new(recording),
            coordinators: Vec::new(),
            net: rng.split(),
            is_healed: false,
            answered: 0,
            cut: BTreeSet::new(),
            carrying: BTreeMap::new(),
            had: BTreeMap::new(),
            copies: BTreeMap::new(),
            undetected_restores: BTreeSet::new(),
            disputed: BTreeSet::new(),
            jobs: Vec::new(),
            load_lasts: tape.steps.iter().map(|step| step.after).sum(),
            events: BTreeMap::new(),
            next_event: 0,
            due: vec![None; count],
            plan,
            tape,
        };
        for number in 1..=count {
            let id = ShardId::new(&number.to_string()).expect("a number is a good name");
            let mut clocks = Clocks::new(world.plan.rate);
            if world.suffers(Fault::WallJumps) {
                clocks.jump(hours(&mut rng));
            }
            world.shards.push(id.clone());
            world
                .nodes
                .push(Node::new(id, clocks, rng.split(), planted));
        }
        world
    }

    pub(crate) fn suffers(&self, fault: Fault) -> bool {
        !self.is_healed && self.plan.suffers(fault)
    }

    /// Whether a fault occurs now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        self.suffers(fault) && self.net.chance(self.plan.fault_rate.max(20))
    }

    pub(crate) fn reach(&mut self, goal: &'static str) {
        self.oracle.goals.reach(goal);
    }

    pub(crate) fn place(&self, shard: &ShardId) -> usize {
        let place = self.shards.iter().position(|id| id == shard);
        place.expect("every shard is known")
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        self.log.tell(self.time, line);
    }

    pub(crate) fn at(&mut self, after: u64, event: Event) {
        self.next_event += 1;
        self.events
            .insert((self.time + after, self.next_event), event);
    }

    /// A random delay of the network, sometimes a long one.
    pub(crate) fn latency(&mut self) -> u64 {
        let usual = self.net.within(500, 20_000);
        if self.suffers(Fault::Latency) && self.net.chance(250) {
            usual + self.net.below(5 * SECOND)
        } else {
            usual
        }
    }

    /// Handles all events up to a time.
    pub(crate) fn run_until(&mut self, time: u64) -> StepOutcome {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > time {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.time = self.time.max(at);
            self.happen(event)?;
        }
        self.time = self.time.max(time);
        Ok(())
    }

    /// Runs all steps of the tape.
    pub(crate) fn load(&mut self) -> StepOutcome {
        for node in 0..self.nodes.len() {
            self.start(node)?;
        }
        self.at(0, Event::Look);
        let mut at = 0;
        for place in 0..self.tape.steps.len() {
            at += self.tape.steps[place].after;
            self.at(at, Event::Step(place));
        }
        self.run_until(self.time + at)
    }

    fn happen(&mut self, event: Event) -> StepOutcome {
        self.log.event(self.time, self.next_event);
        match event {
            Event::Step(place) => self.step(place),
            Event::Carry(from, to) => self.carry(from, to),
            Event::Batch { to, batch, starts } => self.arrive(to, *batch, starts),
            Event::Confirm {
                from,
                confirm,
                starts,
            } => self.confirm(from, *confirm, starts),
            Event::Coordinate(number) => self.coordinate(number),
            Event::Stray {
                node,
                command,
                is_prepare,
            } => self.stray(node, *command, is_prepare),
            Event::Report { node, grant, how } => self.report(node, &grant, how),
            Event::Due(node) => {
                self.due[node] = None;
                self.turn(node, None).map(|_| ())
            }
            Event::Start(node) => self.start(node),
            Event::Look => {
                self.look();
                Ok(())
            }
            Event::Mend(from, to) => {
                self.cut.remove(&(from, to));
                Ok(())
            }
        }
    }

    /// Sends a request of a client; the network and the shard may fail.
    pub(crate) fn ask(
        &mut self,
        node: usize,
        command: Command,
    ) -> Result<ClientAnswer, crate::oracle::Violation> {
        if self.strikes(Fault::RequestsLost) {
            return Ok(ClientAnswer::Nothing);
        }
        let answer = self.turn(node, Some(command))?;
        if self.strikes(Fault::AnswersLost) {
            return Ok(ClientAnswer::Nothing);
        }
        Ok(answer.map_or(ClientAnswer::Nothing, |answer| {
            self.answered += 1;
            ClientAnswer::Answer(answer)
        }))
    }

    /// Runs a turn of a shard and checks it. `None` if the shard is down or dies.
    pub(crate) fn turn(
        &mut self,
        node: usize,
        command: Option<Command>,
    ) -> Result<Option<Answer>, crate::oracle::Violation> {
        if !self.nodes[node].is_up() {
            return Ok(None);
        }
        let outcome = if self.strikes(Fault::Crashes) && self.net.chance(200) {
            if self.net.chance(500) {
                TurnOutcome::DiesBefore
            } else {
                TurnOutcome::DiesAfter
            }
        } else {
            TurnOutcome::Good
        };
        let shown = self.nodes[node].id.clone();
        let is_by_time = command.is_none();
        let is_answer = matches!(command, Some(Command::Confirm(_)));
        let submitted = match &command {
            Some(Command::Enqueue(cmd)) => Some(cmd.jobs.clone()),
            _ => None,
        };
        self.log
            .tell(self.time, || format!("{shown} <- {command:?} {outcome:?}"));
        self.log.deep(&command);
        let turned = self.nodes[node].turn(self.time, command, outcome)?;
        let Some(turned) = turned else {
            self.reach("crash-before-commit");
            self.died(node);
            return Ok(None);
        };
        self.log.deep(&turned.answer);
        self.log.deep(&turned.changes);
        self.log
            .tell(self.time, || format!("{shown} -> {:?}", turned.answer));
        if is_by_time {
            self.look_at_timers(&turned.changes);
        }
        if is_answer {
            self.look_at_repairs(&turned.changes)?;
        }
        if let (
            Some(jobs),
            Some(Ok(Reply::Enqueued {
                jobs: made, repeat, ..
            })),
        ) = (&submitted, &turned.answer)
        {
            let id = self.shards[node].clone();
            self.oracle.taken(&id, jobs, (made, *repeat))?;
        }
        self.judge(node, &turned.changes)?;
        if outcome == TurnOutcome::DiesAfter {
            self.reach("crash-between-commit-and-answer");
            self.nodes[node].kill(self.time)?;
        }
        if !self.nodes[node].is_up() {
            self.died(node);
            return Ok(if outcome == TurnOutcome::DiesBefore {
                turned.answer
            } else {
                None
            });
        }
        self.arm(node);
        self.wake_carriers(node);
        Ok(turned.answer)
    }

    /// Records the goals that a turn without a command reaches.
    fn look_at_timers(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::RemoveLease(_) => self.reach("lease-expired"),
                Change::PutOutbox(record) => {
                    if let Message::Decided { is_committed, .. } = record.message
                        && !is_committed
                    {
                        self.reach("undecided-given-up-by-time");
                    }
                }
                _ => {}
            }
        }
    }

    fn judge(&mut self, node: usize, changes: &[Change]) -> StepOutcome {
        for change in changes {
            if let Change::PutOutbox(record) = change
                && let Message::Decided {
                    is_committed: false,
                    ..
                } = &record.message
            {
                self.oracle.goals.reach("inquiry-answered-no");
            }
        }
        let stores: BTreeMap<ShardId, &Store> = self
            .nodes
            .iter()
            .map(|node| (node.id.clone(), &node.store))
            .collect();
        self.oracle.committed(&self.shards[node], changes, &stores)
    }

    pub(crate) fn start(&mut self, node: usize) -> StepOutcome {
        if self.nodes[node].is_up() {
            return Ok(());
        }
        let store = &self.nodes[node].store;
        let goals = [
            ("restarted-with-messages-waiting", !store.outbox.is_empty()),
            (
                "restarted-with-an-undecided-part",
                !store.part_jobs.is_empty(),
            ),
            ("restarted-with-live-leases", !store.rows.leases.is_empty()),
        ];
        for (goal, is_reached) in goals {
            if is_reached && self.nodes[node].starts > 0 {
                self.reach(goal);
            }
        }
        let id = self.shards[node].clone();
        self.tell(|| format!("{id} starts"));
        self.nodes[node].start(self.time)?;
        self.arm(node);
        self.wake_carriers(node);
        Ok(())
    }

    pub(crate) fn kill(&mut self, node: usize) -> StepOutcome {
        let id = self.shards[node].clone();
        self.tell(|| format!("{id} is killed"));
        self.nodes[node].kill(self.time)?;
        self.died(node);
        Ok(())
    }

    fn died(&mut self, node: usize) {
        let long = if self.net.chance(200) {
            200 * SECOND
        } else {
            2 * SECOND
        };
        let after = if self.is_healed {
            0
        } else {
            self.net.below(long)
        };
        self.at(after, Event::Start(node));
    }

    /// Schedules an event for the shard's next timer.
    pub(crate) fn arm(&mut self, node: usize) {
        let Some(wait) = self.nodes[node].due_in(self.time) else {
            return;
        };
        let at = self.time + wait;
        if self.due[node].is_none_or(|armed| at < armed) {
            self.due[node] = Some(at);
            self.at(wait, Event::Due(node));
        }
    }

    fn wake_carriers(&mut self, from: usize) {
        for to in 0..self.nodes.len() {
            let waits = self.nodes[from].store.waits_for(&self.shards[to]);
            if waits && !self.carrying.contains_key(&(from, to)) {
                self.carrying.insert((from, to), 0);
                let after = self.net.within(100, 5_000);
                self.at(after, Event::Carry(from, to));
            }
        }
    }
}

/// Random microseconds of some hours, forward or back.
pub(crate) fn hours(rng: &mut Rng) -> i64 {
    let micros = i64::try_from(rng.below(6 * 3_600 * SECOND)).expect("some hours");
    if rng.chance(500) { micros } else { -micros }
}

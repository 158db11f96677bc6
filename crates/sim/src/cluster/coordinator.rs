//! Submitters: they reserve, prepare, let the decider decide, and may die at any point.

use std::collections::{BTreeSet, VecDeque};

use ganger_engine::{ReservedIds, ShardParts, ShardedSubmission};
use ganger_types::command::{Decide, Reserve};
use ganger_types::query::Query;
use ganger_types::{Bytes, Command, Graph, JobRef, Namespace, Part, Rejection, Reply, ShardId};

use super::graphs;
use super::world::{ClientAnswer, Event, World};
use crate::plan::{Fault, Feature};
use crate::rng::Rng;
use crate::world::{StepOutcome, broken};

/// Maximum number of requests for a decision without an answer.
const DECISIONS_MAX: u32 = 4;

/// Maximum number of repeats of a submission that got no answer or waits for another one.
const WAITS_MAX: u32 = 6;

/// World microseconds for which a key is kept, whatever the clocks do.
const KEY_SURE_FOR: u64 = 6 * 3_600_000_000;

/// The next step of a submission.
enum NextStep {
    /// Ask whether the idempotency key was used.
    Ask,
    /// Ask each shard which of the client's ids exist already.
    Look(VecDeque<ShardId>),
    /// Enqueue all jobs on their only shard.
    Enqueue,
    Reserve(VecDeque<ShardId>),
    Prepare(VecDeque<(ShardId, Part)>),
    Decide(bool),
    Over,
}

/// The first step of a submission.
fn first_step(spread: &ShardedSubmission) -> NextStep {
    if spread.only_shard().is_some() {
        NextStep::Enqueue
    } else if spread.idempotency_key.is_some() {
        NextStep::Ask
    } else {
        NextStep::Look(spread.given().into_keys().collect())
    }
}

/// An attempt to submit.
pub(crate) struct Coordinator {
    spread: ShardedSubmission,
    numbers: ReservedIds,
    /// Indexes of jobs that exist already.
    existed: BTreeSet<usize>,
    /// Number of waits for another submission of the same jobs.
    waits: u32,
    graph: Option<Graph>,
    ids: Vec<JobRef>,
    next: NextStep,
    /// Number of requests until the coordinator dies; `None`: it does not.
    requests_until_death: Option<u64>,
    decisions: u32,
    has_prepared: bool,
    /// World time at which the attempt began.
    began_at: u64,
}

impl World {
    /// Submits something new, or repeats a submission with an idempotency key.
    pub(crate) fn submit(&mut self, rng: &mut Rng) {
        let around = graphs::SubmissionContext {
            plan: &self.plan,
            shards: &self.shards,
            earlier: &self.jobs,
            number: self.coordinators.len(),
        };
        let mut spread = graphs::draw(&around, rng);
        if self.plan.does(Feature::IdempotencyKeys) && rng.chance(300) {
            let key = graphs::key(rng.below(6));
            let earlier = self.coordinators.iter().rev();
            let earlier = earlier
                .map(|coordinator| &coordinator.spread)
                .find(|earlier| earlier.idempotency_key.as_ref() == Some(&key));
            if let Some(earlier) = earlier {
                spread = earlier.clone();
            } else {
                for (_, job) in &mut spread.jobs {
                    job.id = None;
                }
            }
            spread.idempotency_key = Some(key);
        } else if self.plan.does(Feature::GivenIds) && rng.chance(250) {
            spread = self.repeated(rng).unwrap_or(spread);
        }
        let dies = self.suffers(Fault::WorkersDie) && rng.chance(250);
        let next = first_step(&spread);
        let number = self.coordinators.len();
        self.coordinators.push(Coordinator {
            spread,
            numbers: ReservedIds::new(),
            existed: BTreeSet::new(),
            waits: 0,
            graph: None,
            ids: Vec::new(),
            next,
            requests_until_death: dies.then(|| rng.below(9)),
            decisions: 0,
            has_prepared: false,
            began_at: self.time,
        });
        self.at(0, Event::Coordinate(number));
    }

    /// A repeat of a recent submission, unchanged or with other content under one of its ids.
    fn repeated(&mut self, rng: &mut Rng) -> Option<ShardedSubmission> {
        let recent = self.coordinators.len().saturating_sub(8);
        let has_ids = |one: &&Coordinator| {
            one.spread.idempotency_key.is_none()
                && one.spread.jobs.iter().any(|(_, job)| job.id.is_some())
        };
        let earlier: Vec<&Coordinator> =
            self.coordinators[recent..].iter().filter(has_ids).collect();
        let mut spread = rng.maybe(&earlier)?.spread.clone();
        if rng.chance(100) {
            for (shard, job) in &mut spread.jobs {
                let Some(id) = job.id.clone() else { continue };
                job.payload = Bytes::from(format!("[\"another {}\"]", self.coordinators.len()));
                let shard = shard.clone();
                self.disputed.insert(JobRef { shard, id });
            }
        }
        Some(spread)
    }

    /// Makes the next request of a coordinator.
    pub(crate) fn coordinate(&mut self, number: usize) -> StepOutcome {
        let me = &mut self.coordinators[number];
        if let Some(left) = &mut me.requests_until_death {
            if *left == 0 {
                self.coordinator_dies(number);
                return Ok(());
            }
            *left -= 1;
        }
        let next = std::mem::replace(&mut me.next, NextStep::Over);
        let next = match next {
            NextStep::Ask => self.ask_for_key(number)?,
            NextStep::Look(shards) => self.look_for_given(number, shards)?,
            NextStep::Enqueue => self.enqueue(number)?,
            NextStep::Reserve(shards) => self.reserve(number, shards)?,
            NextStep::Prepare(parts) => self.prepare(number, parts)?,
            NextStep::Decide(is_committed) => self.decide(number, is_committed)?,
            NextStep::Over => NextStep::Over,
        };
        let is_over = matches!(next, NextStep::Over);
        self.coordinators[number].next = next;
        if !is_over {
            let after = self.latency();
            self.at(after, Event::Coordinate(number));
        }
        Ok(())
    }

    fn coordinator_dies(&mut self, number: usize) {
        let me = &self.coordinators[number];
        let goal = match &me.next {
            NextStep::Prepare(parts) if parts.len() == me.spread.counts().len() => {
                "coordinator-died-after-a-reservation"
            }
            NextStep::Prepare(_) => "coordinator-died-before-the-last-part",
            NextStep::Decide(_) if me.decisions == 0 => "decider-died-between-prepare-and-decide",
            NextStep::Decide(_) => "coordinator-died-after-the-decision",
            _ => return,
        };
        let graph = me.graph.clone();
        self.reach(goal);
        self.tell(|| format!("the coordinator of {graph:?} dies"));
    }

    fn ask_for_key(&mut self, number: usize) -> Result<NextStep, crate::oracle::Violation> {
        let spread = self.coordinators[number].spread.clone();
        let (Some(key), Some(decider)) = (&spread.idempotency_key, spread.decider()) else {
            return Ok(NextStep::Over);
        };
        let query = Query::SubmissionAnswer(Namespace::default(), key.clone());
        let node = self.place(decider);
        let ClientAnswer::Answer(Ok(Reply::SubmissionAnswer(found))) =
            self.ask(node, Command::Query(Box::new(query)))?
        else {
            return Ok(NextStep::Over);
        };
        if let Some(part) = found
            && part.is_committed
            && let Some(answer) = part.answer
        {
            if answer.fingerprint != spread.fingerprint() {
                return Ok(NextStep::Over);
            }
            let numbers = answer.numbers.into_iter();
            let numbers = numbers.map(|(shard, first, tag)| (shard, (first, tag)));
            let existed = answer.existed.into_iter();
            let existed = existed
                .map(|place| usize::try_from(place).expect("few"))
                .collect();
            let answer = spread.clone().without(&existed).answer(&numbers.collect());
            let ids: Vec<JobRef> = answer
                .into_iter()
                .filter_map(|(job, existed)| (!existed).then_some(job))
                .collect();
            self.reach("key-repeated-through-another-coordinator");
            let known = self.oracle.find(&part.graph);
            if let Some(known) = known
                && self.oracle.graphs[known].ids != ids
                && !self.oracle.has_restored_store
            {
                let what = format!("the repeat under key {key} was told of {ids:?}");
                return Err(broken("P1", what));
            }
            self.oracle.acknowledged(&part.graph)?;
            return Ok(NextStep::Over);
        }
        Ok(NextStep::Look(spread.given().into_keys().collect()))
    }

    /// Enqueues all jobs on their only shard.
    fn enqueue(&mut self, number: usize) -> Result<NextStep, crate::oracle::Violation> {
        let spread = self.coordinators[number].spread.clone();
        let Some(shard) = spread.only_shard().cloned() else {
            return Ok(NextStep::Over);
        };
        let node = self.place(&shard);
        let command = Command::Enqueue(Box::new(spread.into_one(true)));
        self.may_arrive_again(node, &command, true);
        match self.ask(node, command)? {
            ClientAnswer::Answer(Ok(Reply::Enqueued { jobs, repeat, .. })) => {
                if repeat || jobs.iter().any(|job| job.existed) {
                    self.reach("repeat-of-one-shard-recognised");
                }
                let jobs = jobs.into_iter().map(|job| JobRef {
                    shard: shard.clone(),
                    id: job.id,
                });
                self.jobs.extend(jobs);
                Ok(NextStep::Over)
            }
            ClientAnswer::Answer(Ok(_)) => Ok(NextStep::Over),
            ClientAnswer::Answer(Err(refused)) => {
                self.refused(number, &shard, &refused, NextStep::Enqueue)
            }
            // It is not known whether the jobs were stored: repeat.
            ClientAnswer::Nothing => Ok(self.once_more(number, NextStep::Enqueue)),
        }
    }

    /// Asks the next shard which of the ids exist already.
    fn look_for_given(
        &mut self,
        number: usize,
        mut shards: VecDeque<ShardId>,
    ) -> Result<NextStep, crate::oracle::Violation> {
        let spread = self.coordinators[number].spread.clone();
        let Some(shard) = shards.pop_front() else {
            let rest = spread.without(&self.coordinators[number].existed);
            return Ok(NextStep::Reserve(
                rest.spread().counts().into_keys().collect(),
            ));
        };
        let given = spread.given().remove(&shard).unwrap_or_default();
        let ids = given.iter().map(|(_, id, print)| (id.clone(), *print));
        let query = Query::ExistingIds(Namespace::default(), ids.collect());
        let node = self.place(&shard);
        match self.ask(node, Command::Query(Box::new(query)))? {
            ClientAnswer::Answer(Ok(Reply::ExistingIds(found))) => {
                for ((place, id, _), is_there) in given.into_iter().zip(found) {
                    if !is_there {
                        continue;
                    }
                    let name = JobRef {
                        shard: shard.clone(),
                        id,
                    };
                    let job = &spread.jobs[place].1;
                    self.oracle.may_be_answered(&name, job, true)?;
                    self.coordinators[number].existed.insert(place);
                    self.reach("repeat-over-several-shards-recognised");
                }
                Ok(NextStep::Look(shards))
            }
            ClientAnswer::Answer(Err(refused)) => {
                let again = first_step(&spread);
                self.refused(number, &shard, &refused, again)
            }
            ClientAnswer::Answer(Ok(_)) | ClientAnswer::Nothing => Ok(NextStep::Over),
        }
    }

    /// Handles a refusal. An id may be taken only if it was submitted with other content.
    fn refused(
        &mut self,
        number: usize,
        shard: &ShardId,
        refused: &Rejection,
        again: NextStep,
    ) -> Result<NextStep, crate::oracle::Violation> {
        match refused {
            Rejection::IdTaken { job } => {
                let name = JobRef {
                    shard: shard.clone(),
                    id: job.clone(),
                };
                if !self.disputed.contains(&name) && !self.oracle.has_restored_store {
                    let what = format!("{name:?} is refused as taken, and is always the same");
                    return Err(broken("P1", what));
                }
                self.reach("id-taken-by-other-content");
                Ok(NextStep::Over)
            }
            Rejection::IdBusy { .. } => {
                self.reach("id-busy");
                Ok(self.once_more(number, again))
            }
            _ => Ok(NextStep::Over),
        }
    }

    /// Repeats a step, a limited number of times.
    fn once_more(&mut self, number: usize, again: NextStep) -> NextStep {
        let me = &mut self.coordinators[number];
        me.waits += 1;
        if me.waits > WAITS_MAX {
            return NextStep::Over;
        }
        me.existed.clear();
        again
    }

    fn reserve(
        &mut self,
        number: usize,
        mut shards: VecDeque<ShardId>,
    ) -> Result<NextStep, crate::oracle::Violation> {
        let Some(shard) = shards.pop_front() else {
            // All jobs existed already.
            return Ok(NextStep::Over);
        };
        let me = &self.coordinators[number];
        let rest = me.spread.clone().without(&me.existed);
        let jobs = rest.spread().counts()[&shard];
        let node = self.place(&shard);
        let heard = self.ask(node, Command::Reserve(Reserve { jobs }))?;
        let ClientAnswer::Answer(Ok(Reply::Reserved { first, id_tag })) = heard else {
            return Ok(NextStep::Over);
        };
        let me = &mut self.coordinators[number];
        me.numbers.insert(shard, (first, id_tag));
        if shards.is_empty() {
            return self.cut_parts(number);
        }
        Ok(NextStep::Reserve(shards))
    }

    fn cut_parts(&mut self, number: usize) -> Result<NextStep, crate::oracle::Violation> {
        let me = &mut self.coordinators[number];
        if let Err(refused) = me.spread.check() {
            return Err(broken(
                "G7",
                format!("a sound submission is refused: {refused}"),
            ));
        }
        let rest = me.spread.clone().without(&me.existed);
        let jobs = rest.spread().jobs.clone();
        let answer = rest.answer(&me.numbers);
        let ShardParts { graph, parts, .. } = rest.split(&me.numbers);
        let made = answer.into_iter();
        let ids: Vec<JobRef> = made
            .filter_map(|(job, existed)| (!existed).then_some(job))
            .collect();
        me.graph = Some(graph.clone());
        me.ids.clone_from(&ids);
        self.oracle.submitted(&graph, &jobs, &ids);
        self.tell(|| format!("graph {graph} is {ids:?}"));
        Ok(NextStep::Prepare(parts.into()))
    }

    fn prepare(
        &mut self,
        number: usize,
        mut parts: VecDeque<(ShardId, Part)>,
    ) -> Result<NextStep, crate::oracle::Violation> {
        let Some((shard, part)) = parts.pop_front() else {
            return Ok(NextStep::Decide(true));
        };
        let node = self.place(&shard);
        let command = Command::Prepare(Box::new(part));
        self.may_arrive_again(node, &command, true);
        let late = command.clone();
        match self.ask(node, command)? {
            ClientAnswer::Answer(Ok(_)) => {
                self.coordinators[number].has_prepared = true;
                Ok(if parts.is_empty() {
                    NextStep::Decide(true)
                } else {
                    NextStep::Prepare(parts)
                })
            }
            ClientAnswer::Answer(Err(refused)) => {
                match refused.code() {
                    "not_reserved" => self.reach("reservation-lost-by-a-restart"),
                    "idempotency_busy" => self.reach("key-busy"),
                    _ => {}
                }
                self.refused(number, &shard, &refused, NextStep::Over)?;
                Ok(self.give_up(number))
            }
            ClientAnswer::Nothing => {
                // A request that seems lost may only be late, and arrive after the submission was given up.
                if self.suffers(Fault::Repeats) && self.net.chance(500) {
                    let after = self.net.below(150_000_000);
                    let command = Box::new(late);
                    let is_prepare = true;
                    self.at(
                        after,
                        Event::Stray {
                            node,
                            command,
                            is_prepare,
                        },
                    );
                }
                Ok(self.give_up(number))
            }
        }
    }

    fn give_up(&mut self, number: usize) -> NextStep {
        if !self.coordinators[number].has_prepared {
            return NextStep::Over;
        }
        self.reach("submission-aborted-by-its-coordinator");
        NextStep::Decide(false)
    }

    fn decide(
        &mut self,
        number: usize,
        is_committed: bool,
    ) -> Result<NextStep, crate::oracle::Violation> {
        let me = &mut self.coordinators[number];
        me.decisions += 1;
        let tries = me.decisions;
        let (Some(graph), Some(decider)) = (me.graph.clone(), me.spread.decider().cloned()) else {
            return Ok(NextStep::Over);
        };
        let command = Command::Decide(Box::new(Decide {
            namespace: Namespace::default(),
            graph: graph.clone(),
            is_committed,
        }));
        let node = self.place(&decider);
        self.may_arrive_again(node, &command, false);
        match self.ask(node, command)? {
            ClientAnswer::Answer(Ok(_)) if is_committed => {
                if tries > 1 {
                    self.reach("decision-repeated");
                }
                self.oracle.acknowledged(&graph)?;
                self.is_first_under_its_key(number)?;
                let ids = self.coordinators[number].ids.clone();
                self.refers(&ids);
                self.jobs.extend(ids);
                Ok(NextStep::Over)
            }
            ClientAnswer::Nothing if tries < DECISIONS_MAX => Ok(NextStep::Decide(is_committed)),
            ClientAnswer::Answer(_) | ClientAnswer::Nothing => Ok(NextStep::Over),
        }
    }

    /// Checks that a key belongs to one submission while it is certainly kept (`rel P1`).
    fn is_first_under_its_key(&self, number: usize) -> StepOutcome {
        let me = &self.coordinators[number];
        let is_clear = !self.plan.suffers(Fault::WallJumps) && !self.oracle.has_restored_store;
        let Some(key) = me.spread.idempotency_key.as_ref().filter(|_| is_clear) else {
            return Ok(());
        };
        let alternative_end = self.coordinators.iter().find(|other| {
            let graph = other
                .graph
                .as_ref()
                .filter(|graph| Some(*graph) != me.graph.as_ref());
            let known = graph.and_then(|graph| self.oracle.find(graph));
            other.spread.idempotency_key.as_ref() == Some(key)
                && me.began_at.abs_diff(other.began_at) < KEY_SURE_FOR
                && known.is_some_and(|known| self.oracle.graphs[known].is_decided)
        });
        match alternative_end {
            None => Ok(()),
            Some(alternative_end) => {
                let what = format!(
                    "graphs {:?} and {:?} were both decided for under key {key}",
                    me.graph, alternative_end.graph
                );
                Err(broken("P1", what))
            }
        }
    }

    fn refers(&mut self, ids: &[JobRef]) {
        let dependencies: Vec<JobRef> = ids
            .iter()
            .filter_map(|id| self.oracle.members.get(id))
            .flat_map(|member| member.edges.values())
            .map(|(dependency, _)| dependency.clone())
            .collect();
        for dependency in dependencies
            .iter()
            .filter(|dependency| !ids.contains(dependency))
        {
            if self.oracle.members.contains_key(dependency) {
                self.reach("reference-to-a-job-elsewhere");
            } else {
                self.reach("reference-to-an-unknown-job");
            }
        }
    }

    /// Lets a request arrive a second time, much later.
    fn may_arrive_again(&mut self, node: usize, command: &Command, is_prepare: bool) {
        if self.strikes(Fault::Repeats) {
            let after = self.net.below(150_000_000);
            let command = Box::new(command.clone());
            self.at(
                after,
                Event::Stray {
                    node,
                    command,
                    is_prepare,
                },
            );
        }
    }

    pub(crate) fn stray(&mut self, node: usize, command: Command, is_prepare: bool) -> StepOutcome {
        self.reach(if is_prepare {
            "stray-prepare"
        } else {
            "stray-decision"
        });
        self.turn(node, Some(command))?;
        Ok(())
    }
}

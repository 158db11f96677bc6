//! The steps of a tape.

use ganger_types::command::{Cancel, Complete, Delete, Fail, Lease, LeaseRef, Selection, TakeFrom};
use ganger_types::query::Query;
use ganger_types::{
    Bytes, Command, Grant, Group, JobRef, Namespace, Queue, Rejection, Reply, Worker,
};

use super::again::retry;
use super::oracle::MemberState;
use super::world::{ClientAnswer, Event, World, hours};
use crate::plan::{Fault, Feature};
use crate::rng::Rng;
use crate::tape::Actor;
use crate::world::{StepOutcome, broken};

const SECOND: u64 = 1_000_000;

/// Outcomes of an attempt.
const SUCCEEDS: u64 = 0;
const FAILS: u64 = 1;
const FAILS_FOR_GOOD: u64 = 2;

impl World {
    pub(crate) fn step(&mut self, place: usize) -> StepOutcome {
        let step = self.tape.steps[place];
        let mut rng = Rng::new(step.rng);
        match step.actor {
            Actor::Producer => {
                let live: usize = self
                    .nodes
                    .iter()
                    .map(|node| node.store.rows.live.len())
                    .sum();
                if live < self.plan.live_target * 2 {
                    self.submit(&mut rng);
                }
                self.answered += 1;
                Ok(())
            }
            Actor::Worker(number) => self.work(number, &mut rng),
            Actor::Operator => self.operate(&mut rng),
            Actor::Reader => self.read(&mut rng),
            Actor::Chaos => {
                self.answered += 1;
                self.chaos(&mut rng)
            }
        }
    }

    /// Reads an acknowledged job, which must be known even if other shards are down (`rel P4`).
    fn read(&mut self, rng: &mut Rng) -> StepOutcome {
        self.answered += 1;
        let recent = self.jobs.len().saturating_sub(12);
        let Some(job) = rng.maybe(&self.jobs[recent..]).cloned() else {
            return Ok(());
        };
        let node = self.place(&job.shard);
        let query = Query::Why(Namespace::default(), job.id.clone());
        let command = Command::Query(Box::new(query));
        match self.turn(node, Some(command))? {
            Some(Err(Rejection::JobPrepared { .. })) => {
                self.reach("acknowledged-member-still-prepared");
                Ok(())
            }
            Some(Err(Rejection::JobNotFound { .. })) if !self.oracle.has_restored_store => {
                let member = self.oracle.members.get(&job);
                if member.is_some_and(|member| member.place == MemberState::Gone) {
                    return Ok(());
                }
                let what = format!("{job:?} was acknowledged, and is not found");
                Err(broken("P4", what))
            }
            _ => Ok(()),
        }
    }

    fn work(&mut self, number: usize, rng: &mut Rng) -> StepOutcome {
        let node = rng.index(self.nodes.len());
        let grants = self.lease(node, number, rng.small(3) + 1)?;
        for grant in grants {
            if self.suffers(Fault::WorkersDie) && rng.chance(100) {
                self.reach("worker-vanished");
                continue;
            }
            let how = if self.plan.does(Feature::Failures) {
                match rng.below(100) {
                    0..15 => FAILS,
                    15..25 => FAILS_FOR_GOOD,
                    _ => SUCCEEDS,
                }
            } else {
                SUCCEEDS
            };
            let mut after = rng.below(3 * SECOND);
            if self.suffers(Fault::WorkersSlow) && rng.chance(200) {
                after += self.plan.lease_ms * 2_000;
            }
            let grant = Box::new(grant);
            if self.suffers(Fault::Zombies) && rng.chance(150) {
                let late = after + self.plan.lease_ms * 3_000;
                let grant = grant.clone();
                self.at(late, Event::Report { node, grant, how });
            }
            self.at(after, Event::Report { node, grant, how });
        }
        Ok(())
    }

    pub(crate) fn lease(
        &mut self,
        node: usize,
        number: usize,
        jobs_max: u32,
    ) -> Result<Vec<Grant>, crate::oracle::Violation> {
        let lease = Lease {
            queues: vec![TakeFrom {
                queue: Queue::default(),
                weight: 1,
            }],
            worker: Some(Worker::new(format!("worker-{number}")).expect("a name is short")),
            jobs_max,
            lease_for: Some(std::time::Duration::from_millis(self.plan.lease_ms)),
            ..Lease::default()
        };
        match self.ask(node, Command::Lease(Box::new(lease)))? {
            ClientAnswer::Answer(Ok(Reply::Leased(grants))) => Ok(grants),
            _ => Ok(Vec::new()),
        }
    }

    /// Sends the report of a worker. The shard must accept it only under the live lease.
    pub(crate) fn report(&mut self, node: usize, grant: &Grant, how: u64) -> StepOutcome {
        let held = LeaseRef {
            namespace: grant.namespace.clone(),
            job: grant.job.clone(),
            token: grant.token,
        };
        let command = if how == SUCCEEDS {
            let result = Bytes::from(format!("\"{} {}\"", grant.job.to_text(), grant.attempt));
            Command::Complete(Box::new(Complete {
                held,
                result: Some(result),
                next: None,
            }))
        } else {
            Command::Fail(Box::new(Fail {
                held,
                group: Group::from_static("broken"),
                message: "it broke".into(),
                permanent: how == FAILS_FOR_GOOD,
                retry_after: None,
                lost: false,
            }))
        };
        let job = JobRef {
            shard: self.shards[node].clone(),
            id: grant.job.clone(),
        };
        let holds = self.oracle.holds(&job, grant.attempt);
        match self.ask(node, command)? {
            ClientAnswer::Answer(Ok(Reply::Reported { repeat: false, .. }))
                if !holds && !self.oracle.has_restored_store =>
            {
                let what = format!(
                    "a report of attempt {} of {job:?} was accepted after its end",
                    grant.attempt
                );
                Err(broken("L5", what))
            }
            ClientAnswer::Answer(Err(refused)) if refused.code() == "lease_lost" => {
                self.reach("stale-report-refused");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn operate(&mut self, rng: &mut Rng) -> StepOutcome {
        self.answered += 1;
        match rng.below(10) {
            0..2 if self.plan.does(Feature::Cancels) => self.cancel_graph(rng),
            2 if self.plan.does(Feature::Cancels) => self.by_hand(rng, 0),
            3 if self.plan.does(Feature::Deletes) => self.by_hand(rng, 1),
            4 | 5 if self.plan.does(Feature::Retries) => self.by_hand(rng, 2),
            6 if self.plan.does(Feature::Retries) => self.retry_any_graph(rng),
            _ => Ok(()),
        }
    }

    /// Cancels a graph on any of its shards, decided or not.
    fn cancel_graph(&mut self, rng: &mut Rng) -> StepOutcome {
        let recent = self.oracle.graphs.len().saturating_sub(6);
        let graph = rng.maybe(&self.oracle.graphs[recent..]);
        let Some(graph) = graph.filter(|graph| !graph.is_local) else {
            return Ok(());
        };
        let shards: Vec<_> = graph.shards.iter().cloned().collect();
        let (name, shard) = (graph.name.clone(), rng.pick(&shards).clone());
        let node = self.place(&shard);
        let part = (Namespace::default(), name.clone());
        let store = &self.nodes[node].store;
        let (is_there, is_undecided) = (
            store.parts.contains_key(&part),
            store.part_jobs.contains_key(&part),
        );
        let command = Command::Cancel(Box::new(Cancel {
            namespace: Namespace::default(),
            jobs: Selection::Graph(name.clone()),
            reason: "by hand".into(),
        }));
        let answer = self.turn(node, Some(command))?;
        if is_there && matches!(answer, Some(Ok(_))) {
            self.reach(if is_undecided {
                "graph-cancelled-before-its-decision"
            } else {
                "graph-cancelled"
            });
            let graph = self.oracle.find(&name).expect("it was submitted");
            self.oracle.graphs[graph].is_cancelled = true;
        } else if is_there {
            // Whether it had an effect is not known.
            let graph = self.oracle.find(&name).expect("it was submitted");
            self.oracle.touched_graph(graph);
        }
        Ok(())
    }

    /// Cancels, deletes or retries a job as a client.
    fn by_hand(&mut self, rng: &mut Rng, what: u32) -> StepOutcome {
        let members = self.oracle.members.iter();
        let fit = members.filter(|(_, member)| match what {
            0 => member.place == MemberState::Live,
            1 => matches!(member.place, MemberState::Live | MemberState::Ended(_)),
            _ => matches!(member.place, MemberState::Ended(_)),
        });
        let jobs: Vec<JobRef> = fit.map(|(job, _)| job.clone()).collect();
        let Some(job) = rng.maybe(&jobs).cloned() else {
            return Ok(());
        };
        let node = self.place(&job.shard);
        let (namespace, ids) = (Namespace::default(), vec![job.id.clone()]);
        let with_dependents = what == 2 && rng.chance(300);
        let (command, goal) = match what {
            0 => (
                Command::Cancel(Box::new(Cancel {
                    namespace,
                    jobs: Selection::Jobs(ids),
                    reason: "by hand".into(),
                })),
                "job-cancelled",
            ),
            1 => (
                Command::Delete(Delete {
                    namespace,
                    jobs: ids,
                }),
                "job-deleted",
            ),
            _ => (retry(ids, with_dependents, None), "job-retried"),
        };
        if what == 2 && with_dependents {
            self.oracle.touched_around(&job);
        } else if what == 2 {
            self.oracle.touched(&job);
        } else {
            self.oracle.ended_by_hand(&job);
        }
        let answer = self.turn(node, Some(command))?;
        if let Some(Ok(Reply::Changed { count, .. } | Reply::Retried { count, .. })) = answer {
            if count > 0 {
                self.reach(goal);
            } else if what == 1 {
                self.reach("delete-refused-because-another-shard-needs-it");
            }
        }
        Ok(())
    }

    fn chaos(&mut self, rng: &mut Rng) -> StepOutcome {
        let node = rng.index(self.nodes.len());
        match rng.below(8) {
            0..3 if self.suffers(Fault::Crashes) => self.kill(node),
            3..5 if self.suffers(Fault::Outages) => {
                self.partition(node, rng);
                Ok(())
            }
            5 if self.suffers(Fault::WallJumps) => {
                self.reach("clock-jumped");
                self.nodes[node].clocks.jump(hours(rng));
                self.arm(node);
                Ok(())
            }
            6 | 7 if self.suffers(Fault::Fences) && self.tape.seed.is_multiple_of(2) => {
                self.restore(node)
            }
            _ => Ok(()),
        }
    }

    /// Cuts a shard off from one or all others, in one direction or both.
    fn partition(&mut self, node: usize, rng: &mut Rng) {
        let others: Vec<usize> = (0..self.nodes.len())
            .filter(|other| *other != node)
            .collect();
        let others = if rng.chance(500) {
            others
        } else {
            vec![*rng.pick(&others)]
        };
        let direction = rng.below(3);
        let lasts = if rng.chance(200) {
            200 * SECOND
        } else {
            5 * SECOND
        };
        for other in others {
            let lasts = rng.below(lasts);
            for (at, pair) in [(1, (node, other)), (2, (other, node))] {
                if direction != at {
                    self.cut.insert(pair);
                    self.at(lasts, Event::Mend(pair.0, pair.1));
                }
            }
        }
    }

    /// Copies a store, or restores the copy.
    fn restore(&mut self, node: usize) -> StepOutcome {
        let Some(copy) = self.copies.remove(&node) else {
            let copy = self.nodes[node].store.clone();
            self.copies.insert(node, copy);
            return Ok(());
        };
        self.kill(node)?;
        self.oracle.has_restored_store = true;
        self.reach("store-restored");
        let id = self.shards[node].clone();
        self.tell(|| format!("{id} is restored from an older copy"));
        self.nodes[node].restore(copy);
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            for (back, pair) in [
                ((node, other), (other, node)),
                ((other, node), (node, other)),
            ] {
                let (given, has) = (self.given(back), self.received(pair));
                // If both were restored, they may agree again.
                if has > given && back.0 == node {
                    self.undetected_restores.insert(back);
                } else if has <= given {
                    self.undetected_restores.remove(&back);
                }
            }
        }
        Ok(())
    }

    /// The number of messages that a shard has sent to another, as stored.
    fn given(&self, (here, there): (usize, usize)) -> u64 {
        let record = self.nodes[here].store.peers.get(&self.shards[there]);
        record.map_or(0, |peer| peer.last_sent)
    }

    /// The number of messages that a shard has received from another, as stored.
    fn received(&self, (here, there): (usize, usize)) -> u64 {
        let record = self.nodes[here].store.peers.get(&self.shards[there]);
        record.map_or(0, |peer| peer.received)
    }
}

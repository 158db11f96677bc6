//! The end of a run: faults stop, messages arrive, honest workers finish the jobs, and everything is checked.

use ganger_types::command::{Cancel, Confirm, Reconcile, Selection};
use ganger_types::{Command, FailurePolicy, InputState, JobRef, JobState, Namespace, Outcome};

use super::oracle::MemberState;
use super::world::{Event, World};
use crate::world::{StepOutcome, broken};

const SECOND: u64 = 1_000_000;
/// Longer than a decider waits, and than a part waits until it asks again.
const QUIET: u64 = 400 * SECOND;
const ROUNDS_MAX: usize = 150;

impl World {
    /// Ends the faults, drains the cluster and checks it, as the module describes.
    pub(crate) fn finish(&mut self) -> StepOutcome {
        self.is_healed = true;
        self.cut.clear();
        for node in 0..self.nodes.len() {
            self.nodes[node].clocks.heal();
            self.start(node)?;
            self.arm(node);
        }
        self.run_until(self.time + SECOND)?;
        if self.oracle.has_restored_store {
            self.reconcile_all()?;
        }
        self.run_until(self.time + QUIET)?;
        self.nothing_waits()?;
        self.check_no_stale_waits()?;
        self.check_unneeded_are_cancelled()?;
        self.drain()?;
        self.nothing_waits()?;
        self.check_no_stale_waits()?;
        for node in 0..self.nodes.len() {
            self.nodes[node].kill(self.time)?;
            self.start(node)?;
        }
        self.outcomes()?;
        self.retry_everything()?;
        self.outcomes()
    }

    /// Lets all shards exchange messages, and reconciles by hand those that detect a restored store.
    fn reconcile_all(&mut self) -> StepOutcome {
        for round in 0..6 {
            for (from, to) in self.pairs() {
                self.send(from, to)?;
            }
            self.run_until(self.time + 20 * SECOND)?;
            if round == 0 {
                self.check_restore_is_detected()?;
            }
            for (from, to) in self.pairs() {
                if self.is_stopped(from, to) {
                    self.reconcile(from, to)?;
                }
            }
        }
        match self.pairs().find(|(from, to)| self.is_stopped(*from, *to)) {
            None => Ok(()),
            Some((from, to)) => {
                let what = format!(
                    "shard {} still does not hear shard {}, however often they are reconciled",
                    self.shards[from], self.shards[to]
                );
                Err(broken("X6", what))
            }
        }
    }

    /// All pairs of shards, in both directions.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let count = self.nodes.len();
        (0..count).flat_map(move |from| {
            (0..count)
                .filter(move |to| *to != from)
                .map(move |to| (from, to))
        })
    }

    /// Whether traffic between two shards is stopped.
    fn is_stopped(&self, here: usize, there: usize) -> bool {
        let record = self.nodes[here].store.peers.get(&self.shards[there]);
        record.is_some_and(|record| record.stopped.is_some())
    }

    /// Checks that one of two shards has detected that the other was restored.
    fn check_restore_is_detected(&self) -> StepOutcome {
        for (back, other) in &self.undetected_restores {
            if !self.is_stopped(*back, *other) && !self.is_stopped(*other, *back) {
                let what = format!(
                    "shard {} does not see that shard {} went back in time",
                    self.shards[*other], self.shards[*back]
                );
                return Err(broken("X6", what));
            }
        }
        Ok(())
    }

    /// Reconciles two shards. Messages in flight between them arrive late.
    fn reconcile(&mut self, here: usize, there: usize) -> StepOutcome {
        self.reach("reconciled");
        let peer = self.shards[there].clone();
        if let Some(batch) = self.nodes[here].batch(self.time, &peer, 100) {
            let event = Event::Batch {
                to: there,
                batch: Box::new(batch),
                starts: self.nodes[here].starts,
            };
            self.at(15 * SECOND, event);
        }
        let record = self.nodes[here].store.peers.get(&peer);
        if let Some((line, up_to)) = record.map(|record| (record.stream_epoch, record.last_sent)) {
            let confirm = Confirm {
                peer: peer.clone(),
                stream_epoch: line,
                up_to,
                tag: 0,
                checked_waits: None,
            };
            let event = Event::Confirm {
                from: here,
                confirm: Box::new(confirm),
                starts: self.nodes[here].starts,
            };
            self.at(SECOND, event);
        }
        self.turn(here, Some(Command::Reconcile(Reconcile { peer })))?;
        Ok(())
    }

    /// Checks that no message waits and no part is undecided.
    pub(super) fn nothing_waits(&self) -> StepOutcome {
        for node in &self.nodes {
            if let Some(record) = node.store.outbox.values().next() {
                let what = format!("shard {} still has {record:?}", node.id);
                return Err(broken("X3", what));
            }
            if let Some((_, graph)) = node.store.part_jobs.keys().next() {
                let what = format!("graph {graph} is not decided on shard {}", node.id);
                return Err(broken("G8", what));
            }
        }
        Ok(())
    }

    /// Checks that no job waits for a job of another shard that has ended or was removed, and that the shard of a
    /// live dependency knows its dependents. That holds for restored stores too (`rel T1`, `X6`).
    pub(super) fn check_no_stale_waits(&self) -> StepOutcome {
        for node in &self.nodes {
            let rows = &node.store.rows;
            for ((key, slot), state) in &rows.inputs {
                let InputState::Remote {
                    dependency, policy, ..
                } = state
                else {
                    continue;
                };
                let Some(job) = rows.live.get(key) else {
                    continue;
                };
                let there = &self.nodes[self.place(&dependency.shard)].store;
                let mut live = there.rows.live.values();
                let may_come = live.any(|job| job.id == dependency.id)
                    || (*policy == FailurePolicy::Wait && self.has_failed(dependency));
                let mut dependents = there.dependents.keys();
                let is_known =
                    dependents.any(|(_, shard, by, at)| (shard, by, at) == (&node.id, key, slot));
                if !may_come || !is_known {
                    let what = format!(
                        "job {}/{} waits for {dependency:?} under {policy:?}: it may come: {may_come}, its shard knows: {is_known}",
                        node.id, job.id
                    );
                    return Err(broken("T1", what));
                }
            }
        }
        Ok(())
    }

    /// Whether a job has ended without success and can be retried.
    fn has_failed(&self, job: &JobRef) -> bool {
        let rows = &self.nodes[self.place(&job.shard)].store.rows;
        let ended = rows.find(&Namespace::default(), &job.id);
        let end = ended.and_then(|record| record.finished.as_ref());
        end.is_some_and(|end| end.outcome != Outcome::Succeeded)
    }

    /// Checks, before any worker runs, that jobs that were cancelled or that no job needs have ended.
    fn check_unneeded_are_cancelled(&self) -> StepOutcome {
        if self.oracle.has_restored_store {
            return Ok(());
        }
        for (job, member) in &self.oracle.members {
            let graph = &self.oracle.graphs[member.graph];
            if member.place != MemberState::Live || graph.is_irregular {
                continue;
            }
            if graph.is_cancelled {
                let what = format!(
                    "{job:?} lives on though its graph {} was cancelled",
                    graph.name
                );
                return Err(broken("G9", what));
            }
            if self.oracle.is_unneeded(job) && !self.has_other_users(job) {
                return Err(broken(
                    "G5",
                    format!("{job:?} lives on though nobody needs it"),
                ));
            }
        }
        Ok(())
    }

    fn has_other_users(&self, job: &JobRef) -> bool {
        let graph = self.oracle.members[job].graph;
        // A job that a job of another graph needed when the member ended stays live, even if that job ends later.
        self.oracle.members.values().any(|member| {
            let takes = member
                .edges
                .values()
                .any(|(dependency, _)| dependency == job);
            takes && (member.place == MemberState::Live || member.graph != graph)
        })
    }

    pub(super) fn drain(&mut self) -> StepOutcome {
        for round in 0..ROUNDS_MAX {
            let mut granted = 0;
            for node in 0..self.nodes.len() {
                let grants = self.lease(node, 100, 100)?;
                granted += grants.len();
                for grant in grants {
                    self.report(node, &grant, 0)?;
                }
            }
            let wait = if granted > 0 {
                SECOND
            } else {
                30 * SECOND + self.plan.lease_ms * 1_000
            };
            self.run_until(self.time + wait)?;
            let live: usize = self
                .nodes
                .iter()
                .map(|node| node.store.rows.live.len())
                .sum();
            if live == 0 {
                return self.run_until(self.time + 60 * SECOND);
            }
            if granted == 0 && round > 3 {
                self.cancel_those_waiting_for_retry()?;
            }
        }
        let left = self.nodes.iter().flat_map(|node| {
            let jobs = node.store.rows.live.values();
            jobs.map(|job| {
                (
                    node.id.clone(),
                    job.id.clone(),
                    job.state,
                    node.store
                        .rows
                        .inputs
                        .range((job.key, 0)..=(job.key, u32::MAX))
                        .map(|(_, state)| state.clone())
                        .collect::<Vec<_>>(),
                )
            })
        });
        let left: Vec<_> = left.take(3).collect();
        Err(broken("T8", format!("jobs never end: {left:?}")))
    }

    /// Cancels the jobs that wait for the retry of a failed job, because they would wait forever.
    fn cancel_those_waiting_for_retry(&mut self) -> StepOutcome {
        for node in 0..self.nodes.len() {
            let store = &self.nodes[node].store;
            let blocked = store
                .rows
                .live
                .values()
                .filter(|job| job.state == JobState::Blocked);
            let hopeless = blocked.filter(|job| {
                let mut inputs = store.rows.inputs.range((job.key, 0)..=(job.key, u32::MAX));
                inputs.any(|(_, state)| may_wait_for_a_retry(state))
            });
            let ids: Vec<_> = hopeless.map(|job| job.id.clone()).collect();
            for id in ids {
                let job = JobRef {
                    shard: self.shards[node].clone(),
                    id: id.clone(),
                };
                if !self.waits_in_vain(&job) {
                    continue;
                }
                self.oracle.ended_by_hand(&job);
                let cancel = Command::Cancel(Box::new(Cancel {
                    namespace: Namespace::default(),
                    jobs: Selection::Jobs(vec![id]),
                    reason: "by hand".into(),
                }));
                self.turn(node, Some(cancel))?;
            }
        }
        Ok(())
    }

    fn waits_in_vain(&self, job: &JobRef) -> bool {
        if self.oracle.has_restored_store {
            return true;
        }
        let edges = self.oracle.members.get(job).map(|member| &member.edges);
        edges.is_some_and(|edges| {
            edges.values().any(|(dependency, policy)| {
                let by = self.oracle.members.get(dependency).map(|by| by.place);
                let is_lost =
                    matches!(by, Some(MemberState::Ended(outcome)) if outcome != Outcome::Succeeded);
                *policy == FailurePolicy::Wait && is_lost
            })
        })
    }

    /// Checks that each submission is all or nothing, and that outcomes follow from those of dependencies (`rel G6`,
    /// `G8`).
    fn outcomes(&self) -> StepOutcome {
        if self.oracle.has_restored_store {
            return Ok(());
        }
        for (number, graph) in self.oracle.graphs.iter().enumerate() {
            let places = graph.ids.iter();
            let places = places.map(|id| self.oracle.place_in(number, id));
            let born = places
                .clone()
                .filter(|place| *place != MemberState::Unborn)
                .count();
            let expected = if graph.is_decided { graph.ids.len() } else { 0 };
            if born != expected || (graph.is_acknowledged && !graph.is_decided) {
                let what = format!(
                    "graph {} has {born} of {} jobs",
                    graph.name,
                    graph.ids.len()
                );
                return Err(broken("G8", what));
            }
            if graph.is_decided && !graph.is_irregular && !graph.is_cancelled {
                let ids = graph.ids.iter();
                for id in ids.filter(|id| self.oracle.members[*id].graph == number) {
                    self.outcome(id)?;
                }
            }
        }
        for node in &self.nodes {
            for record in node.store.rows.finished.values().map(|row| &row.record) {
                let job = JobRef {
                    shard: node.id.clone(),
                    id: record.id.clone(),
                };
                let stored = record
                    .finished
                    .as_ref()
                    .map(|end| MemberState::Ended(end.outcome));
                let known = self.oracle.members.get(&job).map(|member| member.place);
                if stored != known {
                    let what = format!("{job:?} is stored as {stored:?} and was {known:?}");
                    return Err(broken("D2", what));
                }
            }
        }
        Ok(())
    }

    /// Checks the outcome of a job against those of its dependencies and the policies of the edges.
    fn outcome(&self, job: &JobRef) -> StepOutcome {
        let member = &self.oracle.members[job];
        let fails_by = |slot: u32, dependency: &JobRef, policy: FailurePolicy| {
            let by = self.oracle.members.get(dependency).map(|by| by.place);
            // A deleted job may have succeeded before.
            let is_gone = matches!(by, None | Some(MemberState::Gone)) && !member.has(slot);
            let failed = matches!(by, Some(MemberState::Ended(end)) if end != Outcome::Succeeded);
            match policy {
                FailurePolicy::Fail => is_gone || failed,
                FailurePolicy::Wait => is_gone,
                FailurePolicy::Ignore => false,
            }
        };
        let mut edges = member.edges.iter();
        let fails = edges.any(|(slot, (dependency, policy))| {
            !member.is_unsure_of(*slot) && fails_by(*slot, dependency, *policy)
        });
        let mut edges = member.edges.iter();
        let may_fail = fails
            || edges.any(|(slot, (_, policy))| {
                member.is_unsure_of(*slot) && *policy != FailurePolicy::Ignore
            });
        let may_be_cancelled = self.oracle.is_unneeded(job) || member.is_by_hand;
        let is_right = match member.place {
            MemberState::Gone => member.is_by_hand,
            MemberState::Ended(Outcome::Failed) if member.group == "dependency" => may_fail,
            MemberState::Ended(Outcome::Succeeded | Outcome::Failed) => !fails,
            MemberState::Ended(Outcome::Cancelled) => may_be_cancelled,
            _ => false,
        };
        if is_right {
            return Ok(());
        }
        let dependencies: Vec<_> = member
            .edges
            .values()
            .map(|(dependency, policy)| {
                (
                    dependency,
                    policy,
                    self.oracle.members.get(dependency).map(|by| by.place),
                )
            })
            .collect();
        let what = format!(
            "{job:?} is {:?} ({}) behind {dependencies:?}",
            member.place, member.group
        );
        Err(broken("G6", what))
    }
}

fn may_wait_for_a_retry(state: &InputState) -> bool {
    match state {
        InputState::Missing { policy, .. } | InputState::Remote { policy, .. } => {
            *policy == FailurePolicy::Wait
        }
        _ => false,
    }
}

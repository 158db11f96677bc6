//! Invariants: recomputes every index from the job records and compares (`rel A1`, `T1`).

use std::collections::{BTreeMap, BTreeSet};

use ganger_types::{Due, JobKey, JobState, Message, MessageResult, QueueCounts};

use crate::command::forgotten_at;
use crate::engine::Engine;
use crate::state::{Job, QueueIndex, ReadyOrder, Timer};

impl Engine {
    /// Recomputes every index and compares it with the engine's. Returns a line for each difference; none means that
    /// all is well. The cost is proportional to the number of live jobs.
    pub fn check_invariants(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let jobs: BTreeMap<JobKey, &Job> = self.jobs.iter().map(|job| (job.key, job)).collect();
        if jobs.len() != self.jobs.len() {
            wrong.push(format!(
                "the table says {} jobs, it holds {}",
                self.jobs.len(),
                jobs.len()
            ));
        }
        self.check_queues(&jobs, &mut wrong);
        self.check_edges(&jobs, &mut wrong);
        self.check_timers(&jobs, &mut wrong);
        self.check_names(&jobs, &mut wrong);
        self.check_workers(&jobs, &mut wrong);
        self.check_peers(&mut wrong);
        self.external.check(&mut wrong);
        if !self.ended.is_empty() {
            wrong.push(format!("{} endings have not been told", self.ended.len()));
        }
        wrong
    }

    fn check_queues(&self, jobs: &BTreeMap<JobKey, &Job>, wrong: &mut Vec<String>) {
        let mut counts: BTreeMap<QueueIndex, QueueCounts> = BTreeMap::new();
        let mut ready: BTreeMap<QueueIndex, ReadyOrder> = BTreeMap::new();
        for job in jobs.values() {
            *counts.entry(job.queue).or_default().of_mut(job.state) += 1;
            if job.state == JobState::Ready {
                ready.entry(job.queue).or_default().insert(job.place());
            }
            if job.state.is_terminal() {
                wrong.push(format!(
                    "job {} is {} but in the table of the live",
                    job.key, job.state
                ));
            }
        }
        for (place, queue) in self.queues.iter().enumerate() {
            let index = QueueIndex::new(place);
            let recounted = counts.get(&index).copied().unwrap_or_default();
            for state in [
                JobState::Blocked,
                JobState::Scheduled,
                JobState::Ready,
                JobState::Running,
            ] {
                if recounted.of(state) != queue.counts.of(state) {
                    let (said, is) = (queue.counts.of(state), recounted.of(state));
                    wrong.push(format!(
                        "queue {} says {said} {state}, there are {is}",
                        queue.name
                    ));
                }
            }
            if ready.remove(&index).unwrap_or_default() != queue.ready {
                wrong.push(format!(
                    "the line of queue {} is not its ready jobs",
                    queue.name
                ));
            }
            let key_of = &self.spaces[queue.space].queues;
            if recounted.live() > 0 && key_of.get(&queue.name) != Some(&index) {
                wrong.push(format!("queue {} has jobs but cannot be found", queue.name));
            }
        }
    }

    fn check_edges(&self, jobs: &BTreeMap<JobKey, &Job>, wrong: &mut Vec<String>) {
        if !self.edges.is_consistent() {
            wrong.push("the two directions of the edges disagree".to_owned());
        }
        let mut missing: BTreeMap<JobKey, u32> = BTreeMap::new();
        for (dependent, slot, edge) in self.edges.all() {
            if !jobs.contains_key(&dependent) {
                wrong.push(format!(
                    "slot {slot} belongs to job {dependent}, which is not live"
                ));
            }
            if edge.is_delivered && jobs.contains_key(&edge.dependency) {
                wrong.push(format!(
                    "job {} has delivered to {dependent} but is live",
                    edge.dependency
                ));
            }
            if !edge.is_delivered {
                *missing.entry(dependent).or_default() += 1;
            }
        }
        for (dependent, slot) in self.peers.up.keys() {
            if !jobs.contains_key(dependent) {
                wrong.push(format!(
                    "slot {slot} waits elsewhere for job {dependent}, which is not live"
                ));
            }
            *missing.entry(*dependent).or_default() += 1;
        }
        for job in jobs.values() {
            let says = job.details.as_deref().map_or(0, |details| details.missing);
            let is = missing.get(&job.key).copied().unwrap_or(0);
            if says != is {
                wrong.push(format!(
                    "job {} says {says} inputs are missing, {is} are",
                    job.key
                ));
            }
            if (is > 0) != (job.state == JobState::Blocked) {
                wrong.push(format!(
                    "job {} is {} with {is} inputs missing",
                    job.key, job.state
                ));
            }
        }
    }

    /// Checks that every job that waits for a time has its timer, and that there are no other timers (`rel T1`).
    fn check_timers(&self, jobs: &BTreeMap<JobKey, &Job>, wrong: &mut Vec<String>) {
        let mut expected = 0;
        for job in jobs.values() {
            let timers = &self.spaces[self.queues[job.queue].space].timers;
            let mut need = |due: Due, timer: Timer, wrong: &mut Vec<String>| {
                expected += 1;
                if !timers.is_armed(due, timer.clone()) {
                    wrong.push(format!(
                        "job {} is {} without its timer {timer:?}",
                        job.key, job.state
                    ));
                }
            };
            let details = job.details.as_deref();
            match job.state {
                JobState::Scheduled => match details.and_then(|details| details.due) {
                    Some(due) => need(due, Timer::JobDue(job.key), wrong),
                    None => wrong.push(format!("job {} is scheduled for no time", job.key)),
                },
                JobState::Running => match job.lease() {
                    Some(lease) => need(
                        Due::Elapsed(lease.expires_at),
                        Timer::LeaseEnd(job.key),
                        wrong,
                    ),
                    None => wrong.push(format!("job {} runs without a lease", job.key)),
                },
                _ => {}
            }
            if job.state != JobState::Running {
                if let Some(deadline) = job.deadline() {
                    need(Due::Wall(deadline), Timer::Deadline(job.key), wrong);
                }
                if job.lease().is_some() {
                    wrong.push(format!("job {} is {} and has a lease", job.key, job.state));
                }
            }
        }
        for space in self.spaces.iter() {
            let armed = |schedule: &&ganger_types::ScheduleRecord| {
                schedule.next_at.is_some() && !schedule.paused
            };
            expected += space.schedules.values().filter(armed).count();
            expected += space
                .unique
                .values()
                .filter(|record| record.until.is_some())
                .count();
            expected += space.idempotency_records.len();
        }
        expected += self.check_operations(wrong);
        expected += self.peers.parts.len();
        for (name, due) in &self.peers.part_due {
            let space = self.find_space(&name.0);
            let is_armed = space.is_some_and(|space| {
                let timers = &self.spaces[space].timers;
                timers.is_armed(*due, Timer::Part(name.1.clone()))
            });
            if !is_armed || !self.peers.parts.contains_key(name) {
                wrong.push(format!("submission {} is without its timer", name.1));
            }
        }
        let armed: usize = self.spaces.iter().map(|space| space.timers.len()).sum();
        if armed != expected {
            wrong.push(format!(
                "{armed} timers are armed, {expected} are accounted for"
            ));
        }
    }

    /// The number of operations with a timer: all that have ended, apart from the newest if it stays longer.
    fn check_operations(&self, wrong: &mut Vec<String>) -> usize {
        let mut armed = 0;
        let running = self.operations.running();
        let cancelled = running.filter_map(|record| {
            let name = (record.namespace.clone(), record.cancelled_graph()?.clone());
            Some((name, record.number))
        });
        let cancelled: BTreeMap<_, _> = cancelled.collect();
        if !cancelled
            .keys()
            .eq(self.operations.cancelled_graphs().keys())
        {
            wrong.push(
                "graphs that running operations cancel are not those in the index".to_owned(),
            );
        }
        for record in self.operations.iter() {
            let Some(due) = forgotten_at(record) else {
                continue;
            };
            let space = self.find_space(&record.namespace);
            let timer = Timer::OperationEnd(record.number);
            if space.is_some_and(|space| self.spaces[space].timers.is_armed(due, timer)) {
                armed += 1;
            } else if !self.operations.is_newest(record.number) {
                wrong.push(format!("{} has ended and has no timer", record.number));
            }
        }
        armed
    }

    fn check_names(&self, jobs: &BTreeMap<JobKey, &Job>, wrong: &mut Vec<String>) {
        for space in self.spaces.iter() {
            let mine = || {
                jobs.values().filter(|job| {
                    std::ptr::eq(&raw const self.spaces[self.queues[job.queue].space], space)
                })
            };
            let mut given = BTreeMap::new();
            for job in mine() {
                let Some(id) = job
                    .details
                    .as_deref()
                    .and_then(|details| details.id.clone())
                else {
                    continue;
                };
                if let Some(other) = given.insert(id.clone(), job.key) {
                    wrong.push(format!(
                        "jobs number {other} and {} of {} have one id, {id}",
                        job.key, space.name
                    ));
                }
            }
            if given != space.given {
                wrong.push(format!(
                    "the given ids of {} are not those of its jobs",
                    space.name
                ));
            }
            let mut graphs: BTreeMap<_, BTreeSet<JobKey>> = BTreeMap::new();
            for job in mine() {
                if let Some(graph) = job.graph() {
                    graphs.entry(graph.clone()).or_default().insert(job.key);
                }
            }
            if graphs != space.graphs {
                wrong.push(format!(
                    "the graphs of {} are not those of its jobs",
                    space.name
                ));
            }
            if u64::try_from(mine().count()).ok() != Some(space.live) {
                wrong.push(format!(
                    "namespace {} says {} live jobs",
                    space.name, space.live
                ));
            }
            for (key, record) in &space.unique {
                if record.until.is_none() && !jobs.contains_key(&record.job) {
                    wrong.push(format!(
                        "unique key {key} is held by job {}, which is not live",
                        record.job
                    ));
                }
            }
        }
    }

    fn check_workers(&self, jobs: &BTreeMap<JobKey, &Job>, wrong: &mut Vec<String>) {
        let mut held = 0;
        for space in self.spaces.iter() {
            for (worker, state) in &space.workers {
                held += state.holds.len();
                for key in &state.holds {
                    let lease = jobs.get(key).and_then(|job| job.lease());
                    if lease.is_none_or(|lease| lease.worker != *worker) {
                        wrong.push(format!("worker {worker} does not hold job {key}"));
                    }
                }
            }
        }
        let running = jobs
            .values()
            .filter(|job| job.state == JobState::Running)
            .count();
        if held != running {
            wrong.push(format!("workers hold {held} jobs, {running} run"));
        }
    }

    fn check_peers(&self, wrong: &mut Vec<String>) {
        self.check_waits(wrong);
        let mut pins: BTreeMap<JobKey, u32> = BTreeMap::new();
        for (shard, peer) in &self.peers.known {
            let record = &peer.record;
            let numbers = peer.outbox.iter().map(|message| message.number);
            if !numbers.eq(record.confirmed + 1..=record.last_sent) {
                let (given, confirmed) = (record.last_sent, record.confirmed);
                wrong.push(format!(
                    "the outbox for shard {shard} does not hold messages {confirmed} to {given}"
                ));
            }
            for message in &peer.outbox {
                if let Message::Ended {
                    result: MessageResult::Stored(key),
                    ..
                } = message.message
                {
                    *pins.entry(key).or_default() += 1;
                }
            }
        }
        if pins != self.peers.pins {
            wrong.push("results are kept for other messages than those that wait".to_owned());
        }
        let parts = self.peers.parts.iter();
        let undecided: BTreeMap<_, _> = parts
            .filter(|(_, part)| !part.is_committed)
            .map(|(name, part)| (part.first, name.clone()))
            .collect();
        if undecided != self.peers.undecided {
            wrong.push("the undecided submissions are not those without a decision".to_owned());
        }
        let promised: usize = self.spaces.iter().map(|space| space.promised.len()).sum();
        let given = undecided
            .values()
            .map(|name| self.peers.parts[name].client_ids.len());
        if promised != given.sum::<usize>() {
            wrong.push("other ids are promised than the undecided submissions give".to_owned());
        }
        for (dependency, waiting) in &self.peers.down {
            if waiting.is_empty() {
                wrong.push(format!(
                    "nobody elsewhere waits for job {dependency}, but it is listed"
                ));
            }
        }
    }
}

//! Leases jobs to workers.

use crate::check::at_most;
use ganger_types::command::{Lease, TakeMode};
use ganger_types::limits;
use ganger_types::{Answer, Grant, Happening, JobKey, LeaseRecord, Now, Rejection, Reply, Worker};

use crate::engine::Engine;
use crate::state::{Occurrence, QueueIndex, SpaceIndex, WorkerState};
use crate::transition::Move;
use crate::turn::Turn;

impl Engine {
    pub(crate) fn lease(&mut self, cmd: &Lease, turn: &mut Turn<'_>) -> Answer {
        let worker = check(cmd)?;

        let space = self.make_space(&cmd.namespace);
        self.record_worker(space, worker, turn);
        if let Some(grants) = self.repeated_request(turn.now, space, worker, cmd) {
            return Ok(Reply::Leased(grants));
        }
        let queues = self.record_interest(turn.now, space, cmd);
        self.record_lease_length(space, worker, cmd, &queues);
        let mut grants = Vec::new();
        let jobs_max = usize::try_from(cmd.jobs_max).unwrap_or(usize::MAX);
        while grants.len() < jobs_max {
            let Some(queue) = self.next_queue(space, cmd.mode, &queues) else {
                break;
            };
            if !self.fail_if_past_deadline(queue, turn) {
                grants.push(self.grant(queue, worker, cmd, turn));
            }
        }
        if grants.len() < jobs_max {
            let more = jobs_max - grants.len();
            grants.extend(self.lease_external(space, worker, cmd, more, turn));
        }
        Ok(Reply::Leased(grants))
    }

    /// The live grants of an earlier request with the same id (`rel L11`).
    fn repeated_request(
        &self,
        now: Now,
        space: SpaceIndex,
        worker: &Worker,
        cmd: &Lease,
    ) -> Option<Vec<Grant>> {
        let asked = (worker.clone(), cmd.request.clone()?);
        let keys = self.spaces[space].requests.get(&asked);
        let keys = keys.into_iter().flatten();
        let mut grants: Vec<Grant> = keys.map(|key| self.show_grant(*key)).collect();
        grants.extend(self.repeated_external_leases(now, worker, &asked.1, cmd));
        (!grants.is_empty()).then_some(grants)
    }

    /// Records that a worker asks for jobs of these queues. Returns those that exist, with their weights.
    fn record_interest(
        &mut self,
        now: Now,
        space: SpaceIndex,
        cmd: &Lease,
    ) -> Vec<(QueueIndex, i64)> {
        let mut queues = Vec::with_capacity(cmd.queues.len());
        for take in &cmd.queues {
            let Some(queue) = self.spaces[space].queues.get(&take.queue).copied() else {
                continue;
            };
            self.queues[queue].asked = Some(now.elapsed);
            queues.push((queue, i64::from(take.weight)));
        }
        queues
    }

    /// Records the length of the leases that a worker asks for: the longest of its queues, unless the request names one.
    fn record_lease_length(
        &mut self,
        space: SpaceIndex,
        worker: &Worker,
        cmd: &Lease,
        queues: &[(QueueIndex, i64)],
    ) {
        let default = self.spaces[space].settings.lease_for;
        let of = |queue: QueueIndex| self.queues[queue].settings.lease_for.unwrap_or(default);
        let longest = || queues.iter().map(|(queue, _)| of(*queue)).max();
        let lease_for = cmd.lease_for.or_else(longest).unwrap_or(default);
        if let Some(state) = self.spaces[space].workers.get_mut(worker) {
            state.lease_for = lease_for;
        }
    }

    /// The queue of the next job; `None` if all are empty, paused, or at their limits.
    fn next_queue(
        &mut self,
        space: SpaceIndex,
        mode: TakeMode,
        queues: &[(QueueIndex, i64)],
    ) -> Option<QueueIndex> {
        let leasable = |engine: &Self, queue: QueueIndex| engine.queues[queue].has_leasable();
        match mode {
            TakeMode::Ordered => queues
                .iter()
                .map(|(queue, _)| *queue)
                .find(|queue| leasable(self, *queue)),
            TakeMode::RoundRobin => {
                let start = usize::try_from(self.spaces[space].lease_turns).unwrap_or(0);
                let place = (0..queues.len())
                    .map(|step| (start + step) % queues.len())
                    .find(|place| leasable(self, queues[*place].0))?;
                self.spaces[space].lease_turns = u64::try_from(place + 1).unwrap_or(0);
                Some(queues[place].0)
            }
            TakeMode::Weighted => self.next_by_weight(queues),
        }
    }

    /// Smooth weighted round-robin, as in nginx: each queue with jobs earns its weight, and the one with the highest
    /// credit pays for all.
    fn next_by_weight(&mut self, queues: &[(QueueIndex, i64)]) -> Option<QueueIndex> {
        let mut total = 0;
        let mut best: Option<QueueIndex> = None;
        for &(queue, weight) in queues {
            if !self.queues[queue].has_leasable() {
                continue;
            }
            total += weight;
            let credit = self.queues[queue].credit.saturating_add(weight);
            self.queues[queue].credit = credit;
            if best.is_none_or(|best| self.queues[best].credit < credit) {
                best = Some(queue);
            }
        }
        let best = best?;
        self.queues[best].credit -= total;
        Some(best)
    }

    /// Fails the first ready job of a queue if its deadline has passed, and returns whether it did. That happens if
    /// the job returns to its queue after the deadline and its timer has not fired yet (`rel R5`).
    fn fail_if_past_deadline(&mut self, queue: QueueIndex, turn: &mut Turn<'_>) -> bool {
        let state = &self.queues[queue];
        let (_, _, key) = *state.ready.first().expect("the queue has a leasable job");
        let is_late = self
            .job(key)
            .deadline()
            .is_some_and(|deadline| deadline <= turn.now.wall);
        if is_late {
            self.deadline_passed(key, turn);
        }
        is_late
    }

    /// Leases the first ready job of a queue, which must have one.
    fn grant(
        &mut self,
        queue: QueueIndex,
        worker: &Worker,
        cmd: &Lease,
        turn: &mut Turn<'_>,
    ) -> Grant {
        let state = &self.queues[queue];
        let (_, _, key) = *state.ready.first().expect("the queue has a leasable job");
        let space = &self.spaces[state.space];
        let lease_for = cmd
            .lease_for
            .or(state.settings.lease_for)
            .unwrap_or(space.settings.lease_for);
        let token = self.random.token();
        let job = self.job(key);
        let timeout_at = job
            .details
            .as_deref()
            .and_then(|details| details.timeout)
            .map(|timeout| turn.now.elapsed.after(timeout));
        let lease = LeaseRecord {
            key,
            attempt: job.attempt + 1,
            attempts_counted: job.attempts_counted + 1,
            worker: worker.clone(),
            token,
            granted_at: turn.now.wall,
            lease_for,
            expires_at: turn
                .now
                .elapsed
                .after(lease_for)
                .min(timeout_at.unwrap_or(ganger_types::Elapsed(u64::MAX))),
            timeout_at,
            ready_at: job.ready_at,
            granted_elapsed: turn.now.elapsed,
            request: cmd.request.clone(),
            is_warned: false,
        };
        let waited = turn.now.elapsed.since(job.ready_at);
        self.count(turn.now, queue, Occurrence::Waited(waited));
        self.transition(key, Move::Running(Box::new(lease)), "", turn);
        self.show_grant(key)
    }

    fn show_grant(&self, key: JobKey) -> Grant {
        let job = self.job(key);
        let lease = job.lease().expect("a granted job has a lease");
        let queue = &self.queues[job.queue];
        let details = job
            .details
            .as_deref()
            .expect("a running job has its lease there");
        let retries_max = self.names.retry(job.retry).retries_max;
        Grant {
            key,
            job: job.id(),
            namespace: self.spaces[queue.space].name.clone(),
            queue: queue.name.clone(),
            kind: self.names.kind(job.kind).clone(),
            attempt: lease.attempt,
            retries_left: (retries_max + 1).saturating_sub(lease.attempts_counted),
            token: lease.token,
            lease_for: lease.expires_at.since(lease.granted_elapsed),
            timeout: details.timeout,
            deadline: details.deadline,
            created_at: job.created_at,
            priority: job.priority,
            payload_bytes: job.payload_bytes,
            inputs: details.inputs,
            graph: details.graph.clone(),
            tags: details.tags.clone(),
            labels: details.labels.clone(),
        }
    }

    /// Records a request of a worker.
    pub(crate) fn record_worker(
        &mut self,
        space: SpaceIndex,
        worker: &Worker,
        turn: &mut Turn<'_>,
    ) {
        let workers = &mut self.spaces[space].workers;
        if let Some(state) = workers.get_mut(worker) {
            state.seen = turn.now.elapsed;
            state.seen_at = turn.now.wall;
            return;
        }
        if workers.len() >= limits::WORKERS_MAX {
            let silent = workers
                .iter()
                .filter(|(_, state)| state.holds.is_empty())
                .min_by_key(|(_, state)| state.seen)
                .map(|(worker, _)| worker.clone());
            if let Some(silent) = silent {
                workers.remove(&silent);
                self.announce(
                    space,
                    turn.now.wall,
                    Happening::WorkerGone { worker: silent },
                    turn,
                );
            }
        }
        let state = WorkerState {
            seen: turn.now.elapsed,
            seen_at: turn.now.wall,
            lease_for: self.spaces[space].settings.lease_for,
            holds: std::collections::BTreeSet::new(),
        };
        self.spaces[space].workers.insert(worker.clone(), state);
        self.announce(
            space,
            turn.now.wall,
            Happening::WorkerSeen {
                worker: worker.clone(),
            },
            turn,
        );
    }
}

/// Checks the request and returns its worker.
fn check(cmd: &Lease) -> Result<&Worker, Rejection> {
    let count = |len: usize| u64::try_from(len).unwrap_or(u64::MAX);
    let worker = cmd.worker.as_ref().filter(|worker| !worker.is_empty());
    let worker = worker.ok_or(Rejection::OutOfRange {
        what: "worker",
        expected: "a name that is not empty",
    })?;
    if cmd.queues.is_empty() {
        return Err(Rejection::OutOfRange {
            what: "queues",
            expected: "a list of at least one queue",
        });
    }
    at_most(
        "the number of queues",
        count(cmd.queues.len()),
        count(limits::LEASE_QUEUES_MAX),
    )?;
    if cmd.jobs_max == 0 {
        return Err(Rejection::OutOfRange {
            what: "the number of jobs",
            expected: "at least 1",
        });
    }
    at_most(
        "the number of jobs",
        u64::from(cmd.jobs_max),
        u64::from(limits::LEASE_JOBS_MAX),
    )?;
    if cmd.queues.iter().any(|take| take.weight == 0) {
        return Err(Rejection::OutOfRange {
            what: "the weight of a queue",
            expected: "at least 1",
        });
    }
    check_lease_for(cmd.lease_for)?;
    Ok(worker)
}

/// Refuses a lease length that is out of range.
pub(super) fn check_lease_for(lease_for: Option<std::time::Duration>) -> Result<(), Rejection> {
    let fits = lease_for
        .is_none_or(|length| (limits::LEASE_FOR_MIN..=limits::LEASE_FOR_MAX).contains(&length));
    if fits {
        return Ok(());
    }
    Err(Rejection::OutOfRange {
        what: "the length of the lease",
        expected: "between 100 ms and 7 days",
    })
}

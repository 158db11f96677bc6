//! The engine's state, and how a turn runs through it.

use std::collections::VecDeque;

use ganger_types::{
    Answer, Command, Due, Elapsed, Event, Happening, JobId, JobKey, Meta, Namespace,
    NamespaceSettings, Now, Position, Queue, Rejection, Reply, ShardId, Timestamp,
};

use crate::external::ExternalSystems;
use crate::finished_index::FinishedIndex;
use crate::state::{
    AuditLog, ClockTrust, Edges, EndedJob, Job, JobTable, Names, Operations, Peers, QueueIndex,
    QueueState, Queues, RandomSource, RemovedJobs, Space, SpaceIndex, Spaces, Statistics,
};
use crate::turn::Turn;
use crate::{Effects, PrefetchedRows, Start};

/// The state machine of one shard.
pub struct Engine {
    pub(crate) shard: ShardId,
    /// Counters that are committed with every turn.
    pub(crate) meta: Meta,
    pub(crate) clock: ClockTrust,
    pub(crate) random: RandomSource,
    pub(crate) names: Names,
    pub(crate) spaces: Spaces,
    pub(crate) queues: Queues,
    pub(crate) jobs: JobTable,
    pub(crate) edges: Edges,
    pub(crate) statistics: Statistics,
    pub(crate) operations: Operations,
    pub(crate) audit_log: AuditLog,
    pub(crate) peers: Peers,
    pub(crate) external: ExternalSystems,
    pub(crate) removed: RemovedJobs,
    /// Jobs that ended during this command and whose dependents have not been handled yet.
    pub(crate) ended: VecDeque<EndedJob>,
    /// Time of the last search for silent workers.
    workers_looked_at: Elapsed,
}

impl Engine {
    pub(crate) fn new(start: Start) -> Self {
        let mut random = RandomSource::new(start.epoch, start.seed);
        let peers = Peers {
            tag: random.number(),
            ..Peers::default()
        };
        Self {
            shard: start.shard,
            meta: start.meta,
            clock: ClockTrust::new(start.now, start.meta.next_order),
            random,
            names: Names::default(),
            spaces: Spaces::default(),
            queues: Queues::default(),
            jobs: JobTable::default(),
            edges: Edges::default(),
            statistics: Statistics::default(),
            operations: Operations::default(),
            audit_log: AuditLog::default(),
            peers,
            external: ExternalSystems::default(),
            removed: RemovedJobs::default(),
            ended: VecDeque::new(),
            workers_looked_at: start.now.elapsed,
        }
    }

    /// Applies one command at `now` and appends its effects to `out`. A rejected command changes neither the engine
    /// nor `out`.
    ///
    /// In a namespace on its callers' clocks, both readings of `now` are the caller's time, and timers that are due
    /// by then fire first.
    ///
    /// # Errors
    /// If the command is rejected.
    pub fn apply(
        &mut self,
        now: Now,
        command: Command,
        known: &PrefetchedRows,
        out: &mut Effects,
    ) -> Answer {
        self.settle_callers_clock(now, &command, out);
        let turn = &mut Turn {
            now,
            known: &FinishedIndex::new(known),
            out,
        };
        let answer = match command {
            Command::Enqueue(cmd) => self.enqueue(*cmd, turn),
            Command::Lease(cmd) => self.lease(&cmd, turn),
            Command::Renew(cmd) => self.renew(*cmd, turn),
            Command::Complete(cmd) => self.complete(*cmd, turn),
            Command::Fail(cmd) => self.fail(*cmd, turn),
            Command::Release(cmd) => self.release(*cmd, turn),
            Command::AppendLog(cmd) => self.append_log(&cmd, turn),
            Command::Cancel(cmd) => self.cancel(&cmd, turn),
            Command::Retry(cmd) => self.retry_jobs(&cmd, turn),
            Command::TimeOut(cmd) => self.time_out(&cmd, turn),
            Command::Delete(cmd) => self.delete(&cmd, turn),
            Command::Retire(cmd) => Ok(self.retire(cmd, turn)),
            Command::Alter(cmd) => self.alter(*cmd, turn),
            Command::AddDependencies(cmd) => self.add_dependencies(&cmd, turn),
            Command::RemoveDependencies(cmd) => self.remove_dependencies(&cmd, turn),
            Command::ConfigureQueue(cmd) => self.configure_queue(*cmd, turn),
            Command::ForgetQueue(cmd) => self.forget_queue(&cmd, turn),
            Command::ConfigureNamespace(cmd) => self.configure_namespace(*cmd, turn),
            Command::PutSchedule(cmd) => self.put_schedule(*cmd, turn),
            Command::RemoveSchedule(cmd) => self.remove_schedule(&cmd, turn),
            Command::RunSchedule(cmd) => self.run_schedule_now(&cmd, turn),
            Command::PauseSchedule(cmd) => self.pause_schedule(&cmd, turn),
            Command::DeregisterWorker(cmd) => Ok(self.deregister(&cmd, turn)),
            Command::StartOperation(cmd) => self.start_operation(*cmd, turn),
            Command::WorkOperation(cmd) => self.work_operation(*cmd, turn),
            Command::StopOperation(cmd) => self.stop_operation(&cmd, turn),
            Command::KeepAudit(cmd) => Ok(self.keep_audit(cmd, turn)),
            Command::Reserve(cmd) => self.reserve(cmd),
            Command::Prepare(part) => self.prepare(*part, turn),
            Command::Decide(cmd) => self.decide(&cmd, turn),
            Command::Receive(cmd) => self.receive(*cmd, turn),
            Command::Confirm(cmd) => Ok(self.confirm(&cmd, turn)),
            Command::Reconcile(cmd) => self.reconcile(&cmd, turn),
            Command::External(call) => Ok(Reply::External(
                self.external.apply(turn.now, call, turn.out),
            )),
            Command::Import(cmd) => self.import(*cmd, turn),
            Command::Query(query) => self.query(turn.now, &query, turn.known),
        };
        self.settle_endings(turn);
        self.emit_external_events(turn);
        self.peers.graph_being_cancelled = None;
        answer
    }

    /// Emits events about the external jobs that the command changed, except those that a live job with the same id
    /// hides.
    fn emit_external_events(&mut self, turn: &mut Turn<'_>) {
        for (namespace, happening) in self.external.take_happened() {
            let (Happening::JobMoved { job, .. } | Happening::JobRemoved { job, .. }) = &happening
            else {
                continue;
            };
            if self.find_job(&namespace, job).is_none() {
                self.announce_in(namespace, turn.now.wall, happening, turn);
            }
        }
    }

    /// Fires at most `limit` due timers, each as of its own time. Returns whether more are due.
    pub fn advance(&mut self, now: Now, limit: usize, out: &mut Effects) -> bool {
        self.clock.notice_jumps(now, self.meta.next_order);
        let turn = &mut Turn {
            now,
            known: &FinishedIndex::default(),
            out,
        };
        for _ in 0..limit {
            let Some((space, due_at)) = self.earliest_due(now) else {
                self.clock.reached(now);
                return self.external.advance(now, limit, turn.out);
            };
            self.fire_next(space, due_at, turn);
        }
        self.earliest_due(now).is_some()
    }

    fn earliest_due(&self, now: Now) -> Option<(SpaceIndex, Elapsed)> {
        let on_our_clock = |space: &&Space| !space.runs_on_callers_clock();
        self.spaces
            .iter()
            .enumerate()
            .filter(|(_, space)| on_our_clock(space))
            .filter_map(|(place, space)| {
                let due_at = space.timers.earliest_due(now)?;
                Some((due_at, SpaceIndex::new(place)))
            })
            .min()
            .map(|(due_at, space)| (space, due_at))
    }

    /// Fires the earliest due timer of a namespace as of the time at which it became due, but never before the latest
    /// applied time.
    fn fire_next(&mut self, space: SpaceIndex, due_at: Elapsed, turn: &mut Turn<'_>) {
        let now = turn.now;
        let at = due_at.max(self.clock.latest_elapsed()).min(now.elapsed);
        let moment = Now {
            elapsed: at,
            wall: now.wall.before(now.elapsed.since(at)),
        };
        let Some((_, timer)) = self.spaces[space].timers.pop_due(now) else {
            return;
        };
        let turn = &mut turn.at(moment);
        self.fire(space, timer, now, turn);
        self.settle_endings(turn);
    }

    /// Fires the timers that are due at `now` in the namespace of a command, if it runs on its callers' clocks.
    /// [`Engine::apply`] does this too; a host must do it before it looks up the jobs that the command names, because
    /// jobs may end here. Commands that change settings carry no caller's time, so they fire nothing.
    pub fn settle_callers_clock(&mut self, now: Now, command: &Command, out: &mut Effects) {
        if command.is_setting() {
            return;
        }
        let Some(space) = command.namespace().and_then(|name| self.spaces.find(name)) else {
            return;
        };
        if !self.spaces[space].runs_on_callers_clock() {
            return;
        }
        let turn = &mut Turn {
            now,
            known: &FinishedIndex::default(),
            out,
        };
        while let Some((_, timer)) = self.spaces[space].timers.pop_due(now) {
            self.fire(space, timer, now, turn);
            self.settle_endings(turn);
        }
    }

    /// Writes what changed during the turn but is stored once per turn: queues, counts, statistics, some rows of
    /// external systems. Call it once, after the last command of a turn and before its commit.
    pub fn end_turn(&mut self, now: Now, out: &mut Effects) {
        let turn = &mut Turn {
            now,
            known: &FinishedIndex::default(),
            out,
        };
        for queue in self.queues.take_changed() {
            let state = &self.queues[queue];
            let record = state.record(&self.spaces[state.space].name);
            turn.out
                .changes
                .push(ganger_types::Change::PutQueue(Box::new(record)));
        }
        for space in self.spaces.iter_mut() {
            let changed = std::mem::take(&mut space.changed);
            for tag in changed.tags {
                let count = space.tag_counts.get(&tag).copied().unwrap_or(0);
                turn.out.changes.push(ganger_types::Change::PutTagCount(
                    space.name.clone(),
                    tag,
                    count,
                ));
            }
            for group in changed.groups {
                let count = space.group_counts.get(&group).copied().unwrap_or(0);
                let name = space.name.clone();
                turn.out
                    .changes
                    .push(ganger_types::Change::PutGroupCount(name, group, count));
            }
        }
        self.end_peers_turn(turn);
        self.end_statistics_turn(turn);
        self.external.end_turn(turn.out);
        self.forget_silent_workers(turn);
        self.removed.end_turn();
        self.meta.elapsed = self.meta.elapsed.max(now.elapsed);
        self.meta.wall = now.wall;
    }

    /// Forgets workers that hold no lease and have been silent for a day. Searches once an hour.
    fn forget_silent_workers(&mut self, turn: &mut Turn<'_>) {
        const LOOK_EVERY: std::time::Duration = std::time::Duration::from_secs(3_600);
        if turn.now.elapsed < self.workers_looked_at.after(LOOK_EVERY) {
            return;
        }
        self.workers_looked_at = turn.now.elapsed;
        for space in self.spaces.indexes() {
            let mut gone = Vec::new();
            self.spaces[space].workers.retain(|worker, state| {
                let is_silent =
                    state.seen.after(ganger_types::limits::WORKER_SILENT_MAX) <= turn.now.elapsed;
                let is_gone = is_silent && state.holds.is_empty();
                if is_gone {
                    gone.push(worker.clone());
                }
                !is_gone
            });
            for worker in gone {
                let happening = Happening::WorkerGone { worker };
                self.announce(space, turn.now.wall, happening, turn);
            }
        }
    }

    /// The counters to commit with the turn.
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// The earliest times at which [`Engine::advance`] has something to do, on the elapsed and on the wall clock.
    pub fn next_due(&self) -> Vec<Due> {
        let ours = || {
            self.spaces
                .iter()
                .filter(|space| !space.runs_on_callers_clock())
        };
        let of_jobs = ours().filter_map(|space| space.timers.next_elapsed());
        let elapsed = of_jobs.chain(self.external.next_due()).min();
        let wall = ours().filter_map(|space| space.timers.next_wall()).min();
        elapsed
            .map(Due::Elapsed)
            .into_iter()
            .chain(wall.map(Due::Wall))
            .collect()
    }

    /// Queues in which a job may have become leasable since the last call, to wake waiting workers.
    pub fn take_woken(&mut self) -> Vec<(Namespace, Queue)> {
        let of_external_jobs = self.external.take_woken();
        self.queues
            .take_woken()
            .into_iter()
            .map(|queue| &self.queues[queue])
            .filter(|state| state.has_leasable())
            .map(|state| (self.spaces[state.space].name.clone(), state.name.clone()))
            .chain(of_external_jobs)
            .collect()
    }

    /// Whether [`Engine::end_turn`] may write rows of external systems besides the changes of the commands.
    pub fn may_write_at_end(&self) -> bool {
        self.external.may_write_at_end()
    }

    /// Number of jobs that leases of this queue would get right now; `u64::MAX` if it has jobs of external systems,
    /// which are not counted.
    pub fn leasable(&self, namespace: &Namespace, queue: &Queue) -> u64 {
        let ours = self.find_queue(namespace, queue);
        let ours = ours.map(|queue| &self.queues[queue]);
        let has_slots = ours.is_none_or(|queue| queue.slots() > 0);
        if has_slots && self.external.has_ready(namespace, queue) {
            return u64::MAX;
        }
        ours.map_or(0, QueueState::leasable)
    }

    /// Whether commands in this namespace must carry their caller's time.
    pub fn runs_on_callers_clock(&self, namespace: &Namespace) -> bool {
        self.spaces
            .find(namespace)
            .is_some_and(|space| self.spaces[space].runs_on_callers_clock())
    }

    /// The number of live jobs.
    pub fn live_jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Whether this job is live.
    pub fn is_live(&self, key: JobKey) -> bool {
        self.jobs.get(key).is_some()
    }
}

/// Lookups, and creation of namespaces and queues at their first use.
impl Engine {
    pub(crate) fn find_space(&self, namespace: &Namespace) -> Option<SpaceIndex> {
        self.spaces.find(namespace)
    }

    pub(crate) fn find_queue(&self, namespace: &Namespace, queue: &Queue) -> Option<QueueIndex> {
        let space = self.find_space(namespace)?;
        self.spaces[space].queues.get(queue).copied()
    }

    /// The settings of a namespace; the defaults if it was never used.
    pub(crate) fn settings(&self, namespace: &Namespace) -> NamespaceSettings {
        self.find_space(namespace)
            .map(|space| self.spaces[space].settings.clone())
            .unwrap_or_default()
    }

    pub(crate) fn make_space(&mut self, namespace: &Namespace) -> SpaceIndex {
        self.spaces.make(namespace)
    }

    pub(crate) fn make_queue(
        &mut self,
        space: SpaceIndex,
        queue: &Queue,
        at: Timestamp,
    ) -> QueueIndex {
        if let Some(found) = self.spaces[space].queues.get(queue).copied() {
            return found;
        }
        let index = self.queues.add(space, queue.clone(), at);
        self.spaces[space].queues.insert(queue.clone(), index);
        index
    }

    /// The live job with this id.
    pub(crate) fn find_job(&self, namespace: &Namespace, id: &JobId) -> Option<JobKey> {
        let space = self.find_space(namespace)?;
        if let Some(key) = self.spaces[space].given.get(id) {
            return Some(*key);
        }
        let (key, tag) = id.parts()?;
        let job = self.jobs.get(key)?;
        let is_it = job.id_tag == tag
            && self.queues[job.queue].space == space
            && job
                .details
                .as_deref()
                .is_none_or(|details| details.id.is_none());
        is_it.then_some(key)
    }

    /// The rejection of a command about a job that is neither live nor finished. A job of an undecided part may
    /// appear at any time, and clients that know the decision already take it as existing (`rel P4`).
    pub(crate) fn no_job(&self, namespace: &Namespace, id: &JobId) -> Rejection {
        let job = id.clone();
        match self.undecided_job(namespace, id) {
            Some(_) => Rejection::JobPrepared { job },
            None => Rejection::JobNotFound { job },
        }
    }

    pub(crate) fn job(&self, key: JobKey) -> &Job {
        self.jobs.get(key).expect("callers have looked the job up")
    }

    pub(crate) fn job_mut(&mut self, key: JobKey) -> &mut Job {
        self.jobs
            .get_mut(key)
            .expect("callers have looked the job up")
    }

    pub(crate) fn space_of_job(&self, key: JobKey) -> SpaceIndex {
        self.queues[self.job(key).queue].space
    }

    pub(crate) fn announce(
        &mut self,
        space: SpaceIndex,
        at: Timestamp,
        happening: Happening,
        turn: &mut Turn<'_>,
    ) {
        let namespace = self.spaces[space].name.clone();
        self.announce_in(namespace, at, happening, turn);
    }

    /// Emits an event in a namespace that the engine may not have.
    fn announce_in(
        &mut self,
        namespace: Namespace,
        at: Timestamp,
        happening: Happening,
        turn: &mut Turn<'_>,
    ) {
        let position = self.meta.next_event;
        self.meta.next_event = Position(position.0 + 1);
        turn.out.events.push(Event {
            position,
            at,
            namespace,
            happening,
        });
    }
}

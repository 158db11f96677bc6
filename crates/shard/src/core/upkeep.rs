//! Housekeeping in bounded slices: retention, checks of free space, the store's own upkeep.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use ganger_store::{Reader, Reserve, StoreError};
use ganger_types::command::{ExpiredJob, ExpiredJobsQuery, Retire};
use ganger_types::{Change, Command, Elapsed, JobKey, Now};

use super::request::Ticket;
use super::{Core, StoreTask};

/// Number of checks after which the store does its upkeep even if it was never idle.
const CHECKS_WITHOUT_IDLE_MAX: u32 = 10;

/// Number of slices that a search finds jobs for. Each search makes the store write its waiting commits into the tables,
/// which is cheaper for many commits at once.
const SLICES_PER_SEARCH: usize = 16;

/// Number of jobs that a search finds at most, however much has expired; a sixteenth of it is one slice.
const FOUND_MAX: usize = 32_000;

/// Queues whose counts are sampled for the series; of further ones only what happens is counted.
const SAMPLED_QUEUES_MAX: usize = 20_000;

/// State of the store's upkeep and of retention.
pub(super) struct Upkeep {
    looked_at: Elapsed,
    looks_without_idle: u32,
    /// Whether the store has an upkeep task that it has not reported on.
    is_ordered: bool,
    /// Retention queries left in this round, and the number of jobs that a search finds at most. It grows while searches
    /// find all that they may: then jobs expire faster than they are removed.
    queries: VecDeque<ExpiredJobsQuery>,
    limit: usize,
    /// Jobs that the last search found and that no slice has taken yet.
    found: VecDeque<ExpiredJob>,
    /// Whether that search found all jobs of its query.
    is_all: bool,
    /// Number of jobs of that search that were removed.
    removed: usize,
    /// Commit that must be durable before the next slice or search, so that removed jobs are not found again.
    after_commit: u64,
    /// Number of searches for expired jobs so far, and whether the last one is running.
    round: u64,
    is_finding: bool,
    /// Finished jobs changed by turns released since that search began: what it found of them is stale.
    touched: BTreeSet<JobKey>,
}

impl Upkeep {
    pub(super) fn new(now: Elapsed) -> Self {
        Self {
            looked_at: now,
            looks_without_idle: 0,
            is_ordered: false,
            queries: VecDeque::new(),
            limit: 0,
            found: VecDeque::new(),
            is_all: false,
            removed: 0,
            after_commit: 0,
            round: 0,
            is_finding: false,
            touched: BTreeSet::new(),
        }
    }

    /// Resets after a recovery: ordered and running tasks are forgotten.
    pub(super) fn restart(&mut self, now: Elapsed) {
        self.looked_at = now;
        self.is_ordered = false;
        self.queries.clear();
        self.found.clear();
        self.after_commit = 0;
        self.is_finding = false;
    }

    /// Records which finished jobs a released turn has changed.
    pub(super) fn note_touched(&mut self, changes: &[Change]) {
        if !self.is_finding && self.found.is_empty() {
            return;
        }
        for change in changes {
            match change {
                Change::PutFinished(record) => {
                    self.touched.insert(record.key);
                }
                Change::RetryJob(key) | Change::RemoveJob(key) => {
                    self.touched.insert(*key);
                }
                _ => {}
            }
        }
    }

    pub(super) fn next_at(&self, every: Duration) -> Elapsed {
        self.looked_at.after(every)
    }
}

impl<R: Reader, T: Ticket> Core<R, T> {
    /// Orders checks of space and retention when they are due, and does one slice of the current round.
    pub(super) fn run_upkeep(&mut self, now: Now) {
        if self.upkeep.next_at(self.settings.upkeep_every) <= now.elapsed {
            self.upkeep.looked_at = now.elapsed;
            self.order_upkeep();
            self.sample_series(now);
            if self.upkeep.queries.is_empty() {
                self.upkeep.queries = self.live().engine.retention_due(now).into();
                self.upkeep.limit = self.search_limit();
            }
        }
        if self.may_retire() {
            if self.upkeep.found.is_empty() {
                self.order_expired_lookup();
            } else {
                self.retire_slice(now);
            }
        }
    }

    /// Number of jobs that the last search for expired jobs found and that no slice has taken yet.
    pub fn expired_jobs_waiting(&self) -> usize {
        self.upkeep.found.len()
    }

    fn search_limit(&self) -> usize {
        let slices = self.settings.retire_slice.saturating_mul(SLICES_PER_SEARCH);
        slices.min(FOUND_MAX)
    }

    /// Number of jobs that one slice removes at most.
    fn slice(&self) -> usize {
        let of_search = self.upkeep.limit / SLICES_PER_SEARCH;
        self.settings.retire_slice.max(of_search)
    }

    /// Whether retention can take its next slice, or search for more, now.
    pub(super) fn may_retire(&self) -> bool {
        !self.upkeep.queries.is_empty()
            && !self.upkeep.is_finding
            && !self.is_write_stopped()
            && self.durable >= self.upkeep.after_commit
    }

    /// Counts the queues for the series if that is due. The counts belong to the open turn: they are recorded once it
    /// is durable.
    fn sample_series(&mut self, now: Now) {
        if self.has_room() && self.metrics.series().is_sample_due(now.wall) {
            let (queues, _) = self.snapshot(now, SAMPLED_QUEUES_MAX);
            self.engine_and_turn(now).1.sample = Some((now.wall, queues));
        }
    }

    fn order_upkeep(&mut self) {
        if self.upkeep.is_ordered {
            return;
        }
        let is_quiet = self.turns_in_flight.is_empty() && self.inbox.is_empty();
        let is_idle = is_quiet || self.upkeep.looks_without_idle >= CHECKS_WITHOUT_IDLE_MAX;
        self.upkeep.looks_without_idle = if is_idle {
            0
        } else {
            self.upkeep.looks_without_idle + 1
        };
        self.upkeep.is_ordered = true;
        self.store_tasks.push(StoreTask::Upkeep { is_idle });
    }

    pub(super) fn upkeep_finished(
        &mut self,
        free: Option<u64>,
        reserve: Reserve,
        error: Option<&StoreError>,
        now: Now,
    ) {
        self.upkeep.is_ordered = false;
        if let Some(error) = error {
            self.metrics.counters.upkeep_errors_total.inc();
            tracing::warn!(shard = %self.settings.shard, %error, "upkeep of the store failed");
        }
        if let Some(over) = self.failures.look(now.elapsed) {
            let shard = &self.settings.shard;
            tracing::warn!(%shard, times = over.times, lasted = ?over.lasted, "the store has been written and read without a failure since");
        }
        self.note_space(free, reserve, now);
    }

    /// Orders a search for jobs with expired retention, which runs beside the shard.
    fn order_expired_lookup(&mut self) {
        let Some(query) = self.upkeep.queries.front().cloned() else {
            return;
        };
        self.upkeep.round += 1;
        self.upkeep.is_finding = true;
        self.upkeep.touched.clear();
        let (round, limit) = (self.upkeep.round, self.upkeep.limit);
        self.store_tasks.push(StoreTask::Find {
            round,
            query,
            limit,
        });
    }

    /// Takes over what a search has found, and removes the first slice of it.
    pub(super) fn found(
        &mut self,
        round: u64,
        jobs: Result<Vec<ExpiredJob>, StoreError>,
        now: Now,
    ) {
        if !self.upkeep.is_finding || round != self.upkeep.round || self.live.is_none() {
            return;
        }
        self.upkeep.is_finding = false;
        let jobs = jobs.unwrap_or_else(|error| {
            tracing::warn!(shard = %self.settings.shard, %error, "retention could not look");
            Vec::new()
        });
        self.upkeep.is_all = jobs.len() < self.upkeep.limit;
        self.upkeep.removed = 0;
        self.upkeep.found = jobs.into();
        self.retire_slice(now);
    }

    /// Removes a slice of the found jobs, as far as the engine allows. Jobs that changed since they were read, or are
    /// about to change, wait for the next search.
    fn retire_slice(&mut self, now: Now) {
        self.upkeep.after_commit = 0;
        let mut removed = 0;
        while removed == 0 && !self.upkeep.found.is_empty() {
            let slice = self.slice().min(self.upkeep.found.len());
            let mut jobs: Vec<ExpiredJob> = self.upkeep.found.drain(..slice).collect();
            jobs.retain(|expired| {
                let key = expired.record.key;
                !self.upkeep.touched.contains(&key) && !self.pending().knows(key)
            });
            if !jobs.is_empty() {
                removed = self.remove_expired(now, jobs);
            }
        }
        self.upkeep.removed += removed;
        if self.upkeep.found.is_empty() {
            self.upkeep.touched.clear();
            self.end_search();
        }
    }

    /// Sends candidates to the engine; returns how many it removed.
    fn remove_expired(&mut self, now: Now, jobs: Vec<ExpiredJob>) -> usize {
        let before = self
            .open
            .as_ref()
            .map_or(0, |turn| turn.effects.changes.len());
        drop(self.apply(now, Command::Retire(Retire { jobs }), None));
        let changes = self
            .open
            .as_ref()
            .map_or(&[][..], |turn| &turn.effects.changes[before..]);
        let removed = changes
            .iter()
            .filter(|change| matches!(change, Change::RemoveJob(_)))
            .count();
        if removed > 0 {
            self.upkeep.after_commit = self.last_submitted + 1;
        }
        removed
    }

    /// Advances to the next search. A query is done when it finds less than the limit. Else the next search has a larger
    /// one: live jobs still need the oldest ones, and it looks past them, or more has expired than was removed so far. Beyond
    /// the largest, what cannot be removed is tried again in the next round.
    fn end_search(&mut self) {
        let has_removed = self.upkeep.removed > 0;
        let is_stuck = !has_removed && self.upkeep.limit >= FOUND_MAX;
        if self.upkeep.is_all || is_stuck {
            self.upkeep.queries.pop_front();
            self.upkeep.limit = self.search_limit();
        } else {
            let growth = if has_removed { 2 } else { 4 };
            self.upkeep.limit = (self.upkeep.limit * growth).min(FOUND_MAX);
        }
    }
}

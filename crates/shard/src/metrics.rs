//! The metrics of a shard: counters and distributions that threads update without locks.

mod external;

use std::collections::HashSet;
use std::hash::BuildHasherDefault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ganger_metrics::{Distribution, Histogram};
use ganger_store::{NumberHasher, NumberMap};
use ganger_types::history::AttemptEnd;
use ganger_types::{
    Change, Event, Happening, JobKey, JobRecord, JobState, Namespace, Queue, QueueCounts, What,
};

use crate::failures::FailureTable;
use crate::runs::{RunMetrics, RunMetricsTable};
use crate::series::{EndedAttempt, SeriesTable};
use crate::workers::WorkerTable;
pub use external::ExternalGauges;

/// Time that each job waited before a turn leased it.
pub(crate) type WaitTimes = NumberMap<JobKey, Duration>;

/// Counters, gauges and histograms of a shard at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricsSnapshot {
    /// Queues with live jobs: namespace, queue, counts by state, age of the oldest ready job in seconds.
    pub queues: Vec<(Namespace, Queue, QueueCounts, f64)>,
    /// Results of runs, by queue and kind, in the order of their names; the last entry covers all others.
    pub runs: Vec<RunMetrics>,
    /// Seconds that one commit of the store takes.
    pub commit_seconds: Histogram,
    /// Number of commands in one commit.
    pub commit_batch_size: Histogram,
    /// Named counters, such as `lease_expired_total`, `jobs_enqueued_total`, `commits_total`.
    pub counters: Vec<(&'static str, u64)>,
    /// Named gauges, such as `inbox_commands`, `waiting_workers`, `subscriptions`, `live_jobs`.
    pub gauges: Vec<(&'static str, u64)>,
    /// Slots of workers by state: `busy` (leased jobs) and `waiting` (asked for by waiting requests).
    pub worker_slots: Vec<(&'static str, u64)>,
}

/// A number that threads share. Access is relaxed, since each number is independent.
#[derive(Debug, Default)]
pub struct MetricValue(AtomicU64);

impl MetricValue {
    /// Adds one to the number.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `by` to the number.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Adds a length to the number.
    pub fn add_len(&self, by: usize) {
        self.add(count(by));
    }

    /// Sets the number to `to`.
    pub fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// Returns the number's current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Converts a length to a number.
pub(crate) fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

macro_rules! metrics {
    ($(#[$doc:meta])* $type:ident { $($(#[$field_doc:meta])* $name:ident,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $type {
            $($(#[$field_doc])* pub $name: MetricValue,)*
        }

        impl $type {
            /// Returns every number with its name.
            pub fn list(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get()),)*]
            }
        }
    };
}
use metrics;

metrics! {
    /// Counters since the start.
    Counters {
        /// Commands that the engine applied.
        commands_total,
        /// Commands refused by the engine.
        rejected_total,
        /// Commands refused by admission control because too much was waiting.
        overloaded_total,
        /// Commands refused for lack of space.
        full_total,
        /// Turns whose commit became durable.
        commits_total,
        /// Flushes to the device that the store has ordered, those of its upkeep too.
        store_flushes_total,
        /// Turns whose commit failed.
        commit_failures_total,
        /// Commits that were sent and not confirmed, and that the store had when it was opened again.
        commits_unknown_kept_total,
        /// Commits that were sent and not confirmed, and that the store had not when it was opened again.
        commits_unknown_missing_total,
        /// Times that a part of the store's log could not be freed because somebody else used it.
        store_log_busy_total,
        /// Commits whose wait for a standby the database has cancelled; each is taken as unknown.
        store_waits_cancelled_total,
        /// Commits that waited because too many were in the log and not in the rows.
        store_commits_blocked_total,
        /// Commits that were too large for the log and were written into the rows at once.
        store_commits_too_large_total,
        /// Seconds in which the store was known to confirm no commits, for example for want of a standby.
        store_held_up_seconds_total,
        /// Times an engine was loaded: at start, and after each failed commit.
        loads_total,
        /// Recoveries that waited, because the preceding write had failed too.
        recovery_pauses_total,
        /// Times that the store's upkeep failed.
        upkeep_errors_total,
        /// Jobs that were created.
        jobs_enqueued_total,
        /// Jobs that have ended with success.
        jobs_succeeded_total,
        /// Jobs that have failed for good.
        jobs_failed_total,
        /// Jobs that were cancelled.
        jobs_cancelled_total,
        /// Jobs removed by retention or on request.
        jobs_removed_total,
        /// Attempts granted to workers.
        leases_granted_total,
        /// Attempts whose lease expired.
        lease_expired_total,
        /// Attempts that took longer than allowed.
        attempt_timed_out_total,
        /// Attempts that workers gave back.
        lease_released_total,
        /// Attempts that ended with a failure.
        attempt_failed_total,
        /// Reports refused because their lease had ended.
        stale_reports_total,
        /// Waiting lease requests tried because a job might be there.
        wakes_total,
        /// Waiting lease requests answered with jobs.
        wakes_served_total,
        /// Grants whose caller had gone.
        undelivered_total,
        /// Jobs failed because their payload or inputs could not be read.
        damaged_total,
        /// Payloads and results found in memory.
        blob_hits_total,
        /// Payloads and results read from the store.
        blob_misses_total,
        /// Events whose commit became durable.
        events_total,
        /// Subscribers disconnected for being too slow.
        subscribers_cut_total,
    }
}

metrics! {
    /// Values that describe the current state.
    Gauges {
        /// Commands admitted and not yet answered.
        inbox_commands,
        /// Bytes of payloads in those commands.
        inbox_bytes,
        /// Lease requests that wait.
        waiting_workers,
        /// Waits for the end of a job.
        waiting_ends,
        /// Queues with live jobs that are not among those counted by name, because there are too many.
        queues_left_out,
        /// Open subscriptions to events.
        subscriptions,
        /// Reads that wait for a reader thread.
        waiting_reads,
        /// Jobs that have not ended.
        live_jobs,
        /// Bytes of payloads and results kept in memory.
        blob_cache_bytes,
        /// Turns submitted to the store and not yet durable.
        turns_in_flight,
        /// Sequence of the last durable commit.
        commit_sequence,
        /// The epoch of this start of the shard.
        epoch,
        /// Free bytes on the store's device; 0 if unknown.
        store_free_bytes,
        /// Size of the store's files in bytes; 0 if the store has none.
        store_bytes,
        /// Bytes of the log in a database; 0 for another store.
        store_log_bytes,
        /// Durable commits whose rows are not written yet.
        store_commits_behind,
        /// Bytes that these commits have in the log.
        store_bytes_behind,
        /// What an acknowledged commit survives: 1 nothing, 2 a crash of the database's server, 3 and 4 its loss, by
        /// replicated storage or a standby; 0 if the store is a file.
        store_durability,
        /// Bytes of the store's device that are held in reserve; 0 if there is no reserve.
        store_reserve_bytes,
        /// 1 while the store is known to confirm no commits, for example for want of a standby; else 0.
        store_held_up,
        /// Rows in the last durable commit.
        last_commit_changes,
        /// Live jobs loaded so far at the last start.
        loaded_jobs,
    }
}

/// Upper bounds of buckets in microseconds, about three to a decade: from 50 us, a fast flush, to an hour.
pub(crate) const TIME_BOUNDS: &[u64] = &[
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
];
const SIZE_BOUNDS: &[u64] = &[
    1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 16_384,
];

/// All metrics of a shard, shared by its threads.
#[derive(Debug)]
pub struct ShardMetrics {
    /// Counters of what happened since the start.
    pub counters: Counters,
    /// Gauges of the current state.
    pub gauges: Gauges,
    /// Gauges of the external systems.
    pub external: ExternalGauges,
    /// Runs by queue and kind. One thread counts; the lock is for readers.
    runs: Mutex<RunMetricsTable>,
    /// Series for charts. One thread counts; the lock is for readers.
    series: Mutex<SeriesTable>,
    /// What workers ask for and how their attempts end.
    workers: Mutex<WorkerTable>,
    /// What is known of failure groups.
    failures: Mutex<FailureTable>,
    /// Seconds that one commit of the store takes.
    pub commit: Distribution,
    /// Number of commands in one commit.
    pub batch: Distribution,
    /// Number of slots that waiting requests ask for.
    pub slots_waiting: MetricValue,
}

impl Default for ShardMetrics {
    fn default() -> Self {
        Self {
            counters: Counters::default(),
            gauges: Gauges::default(),
            external: ExternalGauges::default(),
            runs: Mutex::default(),
            series: Mutex::default(),
            workers: Mutex::default(),
            failures: Mutex::default(),
            commit: Distribution::times(TIME_BOUNDS),
            batch: Distribution::numbers(SIZE_BOUNDS),
            slots_waiting: MetricValue::default(),
        }
    }
}

impl ShardMetrics {
    /// Returns all current values, with the given snapshot of the queues.
    pub fn snapshot(&self, queues: Vec<(Namespace, Queue, QueueCounts, f64)>) -> MetricsSnapshot {
        let busy = queues.iter().map(|(_, _, counts, _)| counts.running).sum();
        MetricsSnapshot {
            queues,
            runs: self.runs().snapshot(),
            commit_seconds: self.commit.snapshot(),
            commit_batch_size: self.batch.snapshot(),
            counters: self.counters.list(),
            gauges: [self.gauges.list(), self.external.list()].concat(),
            worker_slots: vec![("busy", busy), ("waiting", self.slots_waiting.get())],
        }
    }

    fn runs(&self) -> MutexGuard<'_, RunMetricsTable> {
        // After a panic during counting the numbers are still usable.
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The series for charts.
    pub(crate) fn series(&self) -> MutexGuard<'_, SeriesTable> {
        // After a panic during counting the numbers are still usable.
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What workers ask for and how their attempts end.
    pub(crate) fn workers(&self) -> MutexGuard<'_, WorkerTable> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of failure groups.
    pub(crate) fn failures(&self) -> MutexGuard<'_, FailureTable> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a durable turn with this number of commands. Returns how long the jobs that it leased had waited.
    pub(crate) fn observe_turn(&self, commands: usize, changes: &[Change]) -> WaitTimes {
        self.counters.commits_total.inc();
        self.batch.observe(count(commands));
        self.gauges.last_commit_changes.set(count(changes.len()));
        // Jobs whose lease ended in this turn; the job's next row shows how.
        let mut ended: HashSet<JobKey, BuildHasherDefault<NumberHasher>> = HashSet::default();
        let mut waits = WaitTimes::default();
        let mut attempts = Vec::new();
        for change in changes {
            if let Change::FinishJob { record, .. } = change
                && record.state == JobState::Failed
            {
                self.failures().note(record);
            }
            match change {
                // A lease that expires exactly its own length after its grant has not been renewed, so it is new.
                Change::PutLease(lease)
                    if lease.expires_at == lease.granted_elapsed.after(lease.lease_for) =>
                {
                    waits.insert(lease.key, lease.granted_elapsed.since(lease.ready_at));
                }
                Change::RemoveLease(key) => drop(ended.insert(*key)),
                Change::PutJob(record) | Change::FinishJob { record, .. }
                    if ended.remove(&record.key) =>
                {
                    attempts.extend(ended_attempt(record));
                }
                _ => {}
            }
        }
        if !attempts.is_empty() {
            self.observe_attempts(&attempts);
        }
        waits
    }

    /// Counts the attempts that ended in a turn.
    fn observe_attempts(&self, attempts: &[EndedAttempt<'_>]) {
        self.series().observe_attempts(attempts);
        let mut workers = self.workers();
        for attempt in attempts {
            let namespace = &attempt.record.namespace;
            workers.end(namespace, attempt.worker, attempt.end, attempt.at);
        }
        drop(workers);
        let mut runs = self.runs();
        for attempt in attempts {
            let record = attempt.record;
            let series = runs.of(&record.namespace, &record.queue, &record.kind);
            series.ran(attempt.ran);
            match attempt.end {
                AttemptEnd::Expired => {
                    self.counters.lease_expired_total.inc();
                    series.leases_expired.inc();
                }
                AttemptEnd::TimedOut => {
                    self.counters.attempt_timed_out_total.inc();
                    series.attempts_timed_out.inc();
                }
                AttemptEnd::Released { .. } => {
                    self.counters.lease_released_total.inc();
                    series.leases_released.inc();
                }
                AttemptEnd::Failed { .. } => {
                    self.counters.attempt_failed_total.inc();
                    series.attempts_failed.inc();
                }
                AttemptEnd::Succeeded | AttemptEnd::Cancelled => {}
            }
        }
    }

    /// Counts the events of a durable turn.
    pub(crate) fn observe_events(&self, events: &[Event], mut waits: WaitTimes) {
        let counters = &self.counters;
        counters.events_total.add_len(events.len());
        self.series().observe(events, &waits);
        let mut runs = self.runs();
        for event in events {
            match &event.happening {
                Happening::JobMoved {
                    key,
                    queue,
                    kind,
                    from,
                    to,
                    worker,
                    ..
                } => {
                    let namespace = &event.namespace;
                    if from.is_none() {
                        counters.jobs_enqueued_total.inc();
                        runs.of(namespace, queue, kind).jobs_enqueued.inc();
                    }
                    match to {
                        JobState::Running => {
                            counters.leases_granted_total.inc();
                            if let Some(worker) = worker {
                                self.workers().grant(namespace, worker);
                            }
                            let series = runs.of(namespace, queue, kind);
                            series.leases_granted.inc();
                            if let Some(wait) = waits.remove(key) {
                                series.waited(wait);
                            }
                        }
                        JobState::Succeeded => {
                            counters.jobs_succeeded_total.inc();
                            runs.of(namespace, queue, kind).jobs_succeeded.inc();
                        }
                        JobState::Failed => {
                            counters.jobs_failed_total.inc();
                            runs.of(namespace, queue, kind).jobs_failed.inc();
                        }
                        JobState::Cancelled => {
                            counters.jobs_cancelled_total.inc();
                            runs.of(namespace, queue, kind).jobs_cancelled.inc();
                        }
                        JobState::Blocked | JobState::Scheduled | JobState::Ready => {}
                    }
                }
                Happening::JobRemoved { .. } => counters.jobs_removed_total.inc(),
                _ => {}
            }
        }
        // Each lease has an event; if one is missing, its wait is still counted.
        for wait in waits.into_values() {
            runs.other().waited(wait);
        }
    }
}

/// The attempt that a job's row shows to have ended: the newest entry of its history.
fn ended_attempt(record: &JobRecord) -> Option<EndedAttempt<'_>> {
    let entry = record.history.last()?;
    let What::Attempt {
        leased_at,
        end,
        worker,
        ..
    } = &entry.what
    else {
        return None;
    };
    Some(EndedAttempt {
        record,
        worker,
        at: entry.at,
        ran: entry.at.since(*leased_at),
        end,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_name() {
        let metrics = ShardMetrics::default();
        metrics.counters.commits_total.add(3);
        let shown = metrics.snapshot(Vec::new());
        assert!(shown.counters.contains(&("commits_total", 3)));
        assert!(
            shown
                .gauges
                .iter()
                .any(|(name, _)| *name == "waiting_workers")
        );
    }
}

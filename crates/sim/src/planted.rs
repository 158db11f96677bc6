//! Planted bugs: numbered mistakes that a run can switch on, one at a time, to prove that the oracle finds them. They
//! change requests, answers, clock readings, commits and loaded rows, never the shard or its store.

use std::sync::Arc;
use std::time::Duration;

use ganger_shard::Delivery;
use ganger_store::Loaded;
use ganger_types::command::{QueueChange, Selection, Start};
use ganger_types::{
    Answer, Change, Command, Commit, Elapsed, ExternalRow, ImportRecord, InputState, JobKey, Now,
    Reply, Timestamp,
};

use crate::rng::Rng;

/// Every planted bug with its level. Numbers are stable.
pub(crate) const BUGS: &[(u32, u8, &str)] = &[
    (1, 1, "a commit is acknowledged and lost in a crash"),
    (2, 1, "tokens and epoch repeat after a restart"),
    (3, 1, "lease expiry reads the wall clock"),
    (
        4,
        1,
        "the clock is read too rarely: timers fire after the commands that follow them",
    ),
    (5, 1, "a completed job's result is not stored"),
    (6, 1, "the attempt is not stored with the lease"),
    (7, 1, "leases are not read back after a restart"),
    (8, 1, "delivered inputs are not stored"),
    (
        9,
        1,
        "an input is stored with the result of another dependency",
    ),
    (10, 1, "reports are accepted under any token of the job"),
    (11, 1, "idempotency keys are not read back after a restart"),
    (12, 1, "unique keys are not stored"),
    (13, 1, "pause is forgotten after a restart"),
    (14, 1, "edges are not read back after a restart"),
    (15, 1, "half of a commit is written before a crash"),
    (16, 1, "ended jobs are removed at random"),
    (17, 1, "a delay is dropped"),
    (18, 1, "a grant is told twice"),
    (19, 1, "priorities are turned round"),
    (20, 1, "a renewal is acknowledged and forgotten"),
    (21, 1, "a schedule's next run is not stored"),
    (22, 1, "failure policies of edges are mixed up"),
    (23, 1, "counted attempts are not stored"),
    (24, 1, "the end of a lease is not stored"),
    (27, 1, "one job more than the limit may run"),
    (28, 1, "deadlines are dropped"),
    (29, 1, "every release counts as an attempt"),
    (30, 1, "a deregistration is answered and forgotten"),
    (31, 1, "of the jobs to be cancelled only the first is"),
    (
        32,
        1,
        "a job completed into its next queue waits for nobody",
    ),
    (33, 1, "leases on callers' clocks end with a restart"),
    (34, 1, "the shard's clock rules where its callers' should"),
    (35, 1, "the window of a unique key is forgotten"),
    (36, 1, "a permanent failure is tried again"),
    (37, 1, "dependencies are added to a job and not stored"),
    (38, 1, "the pause that a worker asks for is dropped"),
    (39, 1, "marks of imports are not read back after a restart"),
    (40, 1, "jobs that had failed are imported as ready"),
    (25, 2, "an unknown commit is treated as failed"),
    (26, 2, "an answer goes out before its commit"),
];

/// The planted bug of a run, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlantedBug {
    bug: u32,
    calls: u64,
    /// Elapsed reading that bug 4 repeats.
    elapsed: Elapsed,
}

impl PlantedBug {
    pub(crate) fn new(bug: u32) -> Self {
        Self {
            bug,
            ..Self::default()
        }
    }

    pub(crate) fn is(&self, bug: u32) -> bool {
        self.bug == bug
    }

    /// True in every `n`-th call, so that the bug does not occur each time.
    fn now_and_then(&mut self, n: u64) -> bool {
        self.calls += 1;
        self.calls.is_multiple_of(n)
    }

    /// The seed of a new engine.
    pub(crate) fn seed(&self, rng: &mut Rng) -> [u8; 32] {
        let seed = rng.bytes();
        if self.is(2) { [7; 32] } else { seed }
    }

    /// The clock readings for the shard.
    pub(crate) fn time(&mut self, now: Now) -> Now {
        let elapsed = match self.bug {
            3 => {
                let wall = now.wall.since(Timestamp(crate::clock::DAWN));
                Elapsed(1).after(wall).max(now.elapsed)
            }
            4 => {
                if self.now_and_then(3) {
                    self.elapsed = now.elapsed;
                }
                self.elapsed
            }
            _ => now.elapsed,
        };
        let wall = now.wall;
        Now { elapsed, wall }
    }

    /// The time that a command carries into a namespace on its callers' clocks.
    pub(crate) fn callers_time(&self, callers: Timestamp, ours: Now) -> Timestamp {
        if self.is(34) {
            return Timestamp(ours.elapsed.0);
        }
        callers
    }

    /// A row as a new engine loads it; `None` if it does not.
    pub(crate) fn loads(&mut self, row: Loaded) -> Option<Loaded> {
        match (self.bug, row) {
            (33, Loaded::Lease(mut record)) => {
                // Every reading of the shard's clock is earlier than any of a caller's.
                record.expires_at = record.expires_at.min(Elapsed(1));
                Some(Loaded::Lease(record))
            }
            (7, Loaded::Lease(_))
            | (11, Loaded::IdempotencyRecord(_))
            | (14, Loaded::Input(_))
            | (39, Loaded::External(ExternalRow::Key(_))) => None,
            (13, Loaded::Queue(mut record)) => {
                record.settings.paused = false;
                Some(Loaded::Queue(record))
            }
            (_, row) => Some(row),
        }
    }

    /// A command as the shard receives it.
    pub(crate) fn command(&mut self, mut command: Command) -> Command {
        match (self.bug, &mut command) {
            (17, Command::Enqueue(cmd)) => {
                for job in &mut cmd.jobs {
                    if matches!(job.start, Start::After(_)) {
                        job.start = Start::Now;
                    }
                }
            }
            (27, Command::ConfigureQueue(cmd)) => {
                if let QueueChange::All(settings) | QueueChange::AllIf { settings, .. } =
                    &mut cmd.change
                {
                    settings.running_max = settings.running_max.map(|max| max + 1);
                }
            }
            (28, Command::Enqueue(cmd)) => {
                cmd.jobs.iter_mut().for_each(|job| job.deadline = None);
            }
            (29, Command::Release(cmd)) => cmd.counted = true,
            (30, Command::DeregisterWorker(cmd)) => {
                cmd.worker = ganger_types::Worker::from_static("nobody");
            }
            (31, Command::Cancel(cmd)) => {
                if let Selection::Jobs(ids) = &mut cmd.jobs {
                    ids.truncate(1);
                }
            }
            (32, Command::Complete(cmd)) => {
                if let Some(next) = &mut cmd.next {
                    next.after.clear();
                }
            }
            (35, Command::Enqueue(cmd)) => {
                let uniques = cmd.jobs.iter_mut().filter_map(|job| job.unique.as_mut());
                uniques.for_each(|unique| unique.window = None);
            }
            (36, Command::Fail(cmd)) => cmd.permanent = false,
            (40, Command::Import(cmd)) => {
                for record in &mut cmd.records {
                    if let ImportRecord::Job(source) = record {
                        source.failed = None;
                    }
                }
            }
            (38, Command::Fail(cmd)) => {
                cmd.retry_after = cmd.retry_after.map(|_| Duration::ZERO);
            }
            (20, Command::Renew(cmd)) => cmd.lease_for = Some(Duration::from_millis(100)),
            (22, Command::Enqueue(cmd)) => {
                for job in &mut cmd.jobs {
                    for edge in &mut job.after {
                        edge.policy = ganger_types::FailurePolicy::Ignore;
                    }
                }
            }
            _ => {}
        }
        command
    }

    /// The answer that the client and the oracle get.
    pub(crate) fn answer(&self, command: &Command, answer: &mut Answer) {
        let is_stale = answer.as_ref().is_err_and(|why| why.code() == "lease_lost");
        if self.is(10) && is_stale && matches!(command, Command::Complete(_)) {
            *answer = Ok(Reply::Reported {
                state: ganger_types::JobState::Succeeded,
                retry_at: None,
                repeat: false,
            });
        }
    }

    /// The jobs that a lease request gets.
    pub(crate) fn deliveries(&mut self, deliveries: &mut Vec<Delivery>) {
        if self.is(18)
            && self.now_and_then(5)
            && let Some(first) = deliveries.first().cloned()
        {
            deliveries.push(first);
        }
    }

    /// A commit as the store receives it.
    pub(crate) fn commit(&mut self, commit: Arc<Commit>) -> Arc<Commit> {
        let bug = self.bug;
        if bug == 0 {
            return commit;
        }
        let mut commit = Commit::clone(&commit);
        let mut removed = Vec::new();
        for change in &mut commit.changes {
            self.bend(bug, change, &mut removed);
        }
        commit.changes.retain(|change| !self.drops(change));
        commit
            .changes
            .extend(removed.into_iter().map(Change::RemoveJob));
        Arc::new(commit)
    }

    fn bend(&mut self, bug: u32, change: &mut Change, removed: &mut Vec<JobKey>) {
        match (bug, change) {
            (5, Change::FinishJob { result, .. }) => *result = None,
            (6, Change::PutLease(lease)) => lease.attempt = lease.attempt.saturating_sub(1).max(1),
            (9, Change::PutInput(row)) => {
                if let InputState::Delivered { dependency, .. } = &mut row.state {
                    dependency.0 = dependency.0.saturating_sub(1);
                }
            }
            (16, Change::FinishJob { record, .. }) if self.now_and_then(4) => {
                removed.push(record.key);
            }
            (19, Change::PutJob(record)) => {
                record.priority =
                    ganger_types::Priority::from_millionths(-record.priority.millionths());
            }
            (23, Change::PutJob(record)) => record.attempts_counted = 0,
            _ => {}
        }
    }

    fn drops(&self, change: &Change) -> bool {
        match (self.bug, change) {
            (37, Change::PutInput(row)) => {
                row.slot > ganger_types::InputRow::EDGE_FIRST
                    && matches!(row.state, InputState::Missing { .. })
            }
            (8, Change::PutInput(row)) => matches!(row.state, InputState::Delivered { .. }),
            (24, Change::RemoveLease(_))
            | (12, Change::PutUnique(_))
            | (21, Change::PutSchedule(_)) => true,
            _ => false,
        }
    }
}

//! The queue of commits that wait for the tables.

use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use ganger_types::{Commit, JobKey};

use super::QueueLimits;
use crate::merge::job_of;
use crate::number_map::NumberMap;

/// Commits waiting for the tables, in order.
///
/// The committing thread adds them. Whichever thread writes the tables first moves them to the commits being written,
/// and removes them afterwards: a reader that does not find a job here finds everything about it in the tables.
#[derive(Default)]
pub struct CommitQueue {
    state: Mutex<State>,
    /// Signalled when the thread that writes the tables may have something to do.
    changed: Condvar,
    /// Whether a commit is waiting or being written.
    is_behind: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Commits that a thread is writing into the tables, or that it could not write.
    writing: Batch,
    /// Commits after those in `writing`.
    waiting: Batch,
    /// How often commits were removed.
    removals: u64,
    /// Work that was asked for, even without a commit.
    asked: Option<RowWork>,
    /// Whether the thread that writes the tables should end.
    is_stopped: bool,
}

/// What the thread that writes the tables should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowWork {
    /// Write the waiting commits.
    Write,
    /// Write them, and do the upkeep for which there is time while the store is idle.
    WriteIdle,
}

/// Commits, and where each job occurs in them.
#[derive(Default)]
struct Batch {
    commits: Vec<Arc<Commit>>,
    /// Index in `occurrences` of the last commit that changes a job's rows.
    last_of_job: NumberMap<JobKey, u32>,
    /// One entry for each job in each commit. Each entry leads to the one before it of the same job, so that no job
    /// needs a list of its own.
    occurrences: Vec<Occurrence>,
    changes: usize,
    /// Bytes that the commits have in the log.
    bytes: u64,
    /// Time at which the first commit arrived; `None` if there is none.
    since: Option<Instant>,
}

/// A job that occurs in a commit.
#[derive(Clone, Copy)]
struct Occurrence {
    /// Index of the commit.
    commit: u32,
    /// Index of the same job's occurrence in an earlier commit; `None` if this is the first.
    before: Option<u32>,
}

impl Batch {
    fn push(&mut self, commit: Arc<Commit>, bytes: u64) {
        let index = number(self.commits.len());
        let mut previous = None;
        for job in commit.changes.iter().filter_map(job_of) {
            if previous != Some(job) {
                self.note_job(job, index);
                previous = Some(job);
            }
        }
        self.since.get_or_insert_with(Instant::now);
        self.changes += commit.changes.len();
        self.bytes += bytes;
        self.commits.push(commit);
    }

    fn note_job(&mut self, job: JobKey, commit: u32) {
        let next = number(self.occurrences.len());
        match self.last_of_job.entry(job) {
            Entry::Vacant(entry) => {
                entry.insert(next);
                self.occurrences.push(Occurrence {
                    commit,
                    before: None,
                });
            }
            Entry::Occupied(mut entry) => {
                let before = *entry.get();
                if self.occurrences[at(before)].commit == commit {
                    return;
                }
                entry.insert(next);
                self.occurrences.push(Occurrence {
                    commit,
                    before: Some(before),
                });
            }
        }
    }

    fn append(&mut self, later: Self) {
        if self.commits.is_empty() {
            *self = later;
            return;
        }
        let bytes = later.bytes;
        for commit in later.commits {
            self.push(commit, 0);
        }
        self.bytes += bytes;
    }

    /// Appends the commits that change a job's rows to `found`, in order.
    fn find_job(&self, job: JobKey, found: &mut Vec<Arc<Commit>>) {
        let first = found.len();
        let mut next = self.last_of_job.get(&job).copied();
        while let Some(occurrence) = next {
            let Occurrence { commit, before } = self.occurrences[at(occurrence)];
            found.push(Arc::clone(&self.commits[at(commit)]));
            next = before;
        }
        found[first..].reverse();
    }
}

/// An index as it is stored. Memory bounds the commits that wait, far below the largest number.
fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 jobs are in the commits that wait")
}

fn at(number: u32) -> usize {
    usize::try_from(number).expect("an index fits")
}

impl State {
    fn is_empty(&self) -> bool {
        self.writing.commits.is_empty() && self.waiting.commits.is_empty()
    }

    fn is_over(&self, limits: &QueueLimits) -> bool {
        let (first, second) = (&self.writing, &self.waiting);
        first.commits.len() + second.commits.len() >= limits.commits
            || first.changes + second.changes >= limits.changes
            || first.bytes + second.bytes >= limits.bytes
    }
}

/// The commits that change a job's rows and are not in the tables.
pub struct CommitsOfJob {
    /// The commits, in order.
    pub commits: Vec<Arc<Commit>>,
    /// How often commits had been removed, for [`CommitQueue::has_removed_since`].
    removals: u64,
}

impl CommitQueue {
    fn lock(&self) -> MutexGuard<'_, State> {
        let state = self.state.lock();
        state.expect("no thread panics while it holds this lock")
    }

    /// Whether the tables lack a commit.
    pub fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    /// Number of commits that the tables lack.
    pub fn commits_behind(&self) -> u64 {
        let state = self.lock();
        let behind = state.waiting.commits.len() + state.writing.commits.len();
        u64::try_from(behind).unwrap_or(u64::MAX)
    }

    /// Bytes that these commits have in the log.
    pub fn bytes_behind(&self) -> u64 {
        let state = self.lock();
        state.waiting.bytes + state.writing.bytes
    }

    /// Whether so much is waiting that it should be written.
    pub fn is_over(&self, limits: &QueueLimits) -> bool {
        self.lock().is_over(limits)
    }

    /// Adds a commit that has `bytes` in the log.
    pub fn push(&self, commit: &Arc<Commit>, bytes: u64, limits: &QueueLimits) {
        let mut state = self.lock();
        let (was_empty, was_over) = (state.waiting.commits.is_empty(), state.is_over(limits));
        state.waiting.push(Arc::clone(commit), bytes);
        self.is_behind.store(true, Ordering::Release);
        let is_due = was_empty || (!was_over && state.is_over(limits));
        drop(state);
        if is_due {
            self.changed.notify_one();
        }
    }

    /// Returns all commits that the tables lack, for the one thread that writes the tables.
    pub fn take_for_writing(&self) -> Vec<Arc<Commit>> {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        state.writing.append(waiting);
        state.writing.commits.clone()
    }

    /// Removes the commits that were taken for writing, which the tables now have.
    pub fn remove_written(&self) {
        let mut state = self.lock();
        let written = std::mem::take(&mut state.writing);
        state.removals += 1;
        self.is_behind.store(!state.is_empty(), Ordering::Release);
        drop(state);
        // Freeing thousands of commits takes time, during which others may add some.
        drop(written);
    }

    /// Removes everything: a new session finds the commits in the log.
    pub fn clear(&self) {
        self.take_for_writing();
        self.remove_written();
    }

    /// Returns the commits that change a job's rows and are not in the tables.
    pub fn of_job(&self, job: JobKey) -> CommitsOfJob {
        if !self.is_behind() {
            return CommitsOfJob {
                commits: Vec::new(),
                removals: 0,
            };
        }
        let state = self.lock();
        let mut commits = Vec::new();
        state.writing.find_job(job, &mut commits);
        state.waiting.find_job(job, &mut commits);
        CommitsOfJob {
            commits,
            removals: state.removals,
        }
    }

    /// Returns for each job, in the order of `jobs`, whether commits that the tables lack change its rows.
    pub fn change_jobs(&self, jobs: &[JobKey]) -> Vec<bool> {
        if !self.is_behind() {
            return vec![false; jobs.len()];
        }
        let state = self.lock();
        let is_in = |batch: &Batch, job| batch.last_of_job.contains_key(job);
        jobs.iter()
            .map(|job| is_in(&state.writing, job) || is_in(&state.waiting, job))
            .collect()
    }

    /// Returns all commits that the tables may lack, in order.
    pub fn commits(&self) -> Vec<Arc<Commit>> {
        if !self.is_behind() {
            return Vec::new();
        }
        let state = self.lock();
        let commits = state.writing.commits.iter().chain(&state.waiting.commits);
        commits.map(Arc::clone).collect()
    }

    /// Whether commits were removed since these were looked up, so that the tables may have newer rows.
    pub fn has_removed_since(&self, found: &CommitsOfJob) -> bool {
        self.lock().removals != found.removals
    }

    /// Asks the thread that writes the tables to do this now.
    pub fn ask(&self, work: RowWork) {
        let mut state = self.lock();
        state.asked = state.asked.max(Some(work));
        drop(state);
        self.changed.notify_one();
    }

    /// Ends the thread that writes the tables.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_one();
    }

    /// Waits until the tables should be written; returns `None` if the thread should end.
    ///
    /// # Panics
    /// Never: no thread panics while it holds the lock.
    pub fn wait_for_work(&self, limits: &QueueLimits) -> Option<RowWork> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            let age = state.waiting.since.map(|since| since.elapsed());
            let left = age.map(|age| limits.age.saturating_sub(age));
            let is_due = left.is_some_and(|left| left.is_zero()) || state.is_over(limits);
            let due = is_due.then_some(RowWork::Write);
            if let Some(work) = state.asked.take().max(due) {
                return Some(work);
            }
            state = match left {
                Some(left) => {
                    let woken = self.changed.wait_timeout(state, left);
                    woken.expect("no thread panics while it holds this lock").0
                }
                None => {
                    let woken = self.changed.wait(state);
                    woken.expect("no thread panics while it holds this lock")
                }
            };
        }
    }
}

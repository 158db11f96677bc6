//! Groups a commit's jobs with consecutive numbers that change in the same way, so that their rows are deleted
//! together.

use std::collections::BTreeMap;

use ganger_store::merge::{Body, JobChange};
use ganger_types::JobKey;

/// How a commit changes the rows of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunKind {
    /// All rows of the job are removed.
    Removed,
    /// The stored live job has ended: its row moves to the finished jobs, and its lease is removed.
    Ended,
    /// Any other change of the rows.
    Usual,
}

impl RunKind {
    fn of(key: JobKey, change: &JobChange<'_>, new_from: JobKey) -> Self {
        let was_stored = key < new_from;
        if change.is_removed && was_stored {
            return Self::Removed;
        }
        let ends = matches!(change.body, Body::Finished(..)) && change.lease == Some(None);
        if ends && was_stored && !change.is_retried {
            return Self::Ended;
        }
        Self::Usual
    }
}

/// Jobs with consecutive numbers and the same kind of change; never empty.
#[derive(Debug, PartialEq)]
pub(crate) struct JobRun<'a> {
    pub(crate) kind: RunKind,
    pub(crate) jobs: Vec<(JobKey, &'a JobChange<'a>)>,
}

impl<'a> JobRun<'a> {
    /// Splits a commit's jobs into runs. No stored row has the number `new_from` or a larger one.
    pub(crate) fn all(jobs: &'a BTreeMap<JobKey, JobChange<'a>>, new_from: JobKey) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for (key, change) in jobs {
            let kind = RunKind::of(*key, change, new_from);
            match runs.last_mut() {
                Some(run) if run.kind == kind && run.keys().1.0 + 1 == key.0 => {
                    run.jobs.push((*key, change));
                }
                _ => runs.push(Self {
                    kind,
                    jobs: vec![(*key, change)],
                }),
            }
        }
        runs
    }

    /// Returns the first and the last number.
    pub(crate) fn keys(&self) -> (JobKey, JobKey) {
        let (first, last) = (self.jobs.first(), self.jobs.last());
        let key = |job: Option<&(JobKey, _)>| job.expect("a run is never empty").0;
        (key(first), key(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_store::merge::MergedCommit;
    use ganger_store::suite::sample::{ended, job};
    use ganger_types::{Change, Outcome};

    #[test]
    fn a_run_ends_at_a_gap_at_another_course_and_at_new_numbers() {
        let finish = |key| Change::FinishJob {
            record: Box::new(ended(job(key), Outcome::Succeeded, key, 5)),
            result: None,
        };
        let remove = |key| Change::RemoveJob(JobKey(key));
        let changes = [
            finish(1),
            finish(2),
            finish(4),
            remove(5),
            remove(6),
            finish(7),
            finish(8),
        ];
        let merged = MergedCommit::new(&changes);
        let runs = JobRun::all(&merged.jobs, JobKey(8));
        let runs: Vec<_> = runs
            .iter()
            .map(|run| (run.kind, run.keys().0.0, run.keys().1.0))
            .collect();
        let expected = [
            (RunKind::Ended, 1, 2),
            (RunKind::Ended, 4, 4),
            (RunKind::Removed, 5, 6),
            (RunKind::Ended, 7, 7),
            (RunKind::Usual, 8, 8),
        ];
        assert_eq!(runs, expected);
    }
}
